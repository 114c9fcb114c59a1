// SPDX-License-Identifier: Apache-2.0
// A client with far more waiting work than a driver would accept. When standard input has a line,
// the work continues, and its results are checked. Prints "ready" when all work has been issued.
// COUNT streams wait, each with a kernel behind the wait: for a value in host memory (`values`) or
// in device memory (`device_values`), for an event of a stream that waits for such a value
// (`events`) or that runs a kernel which does not end (`kernel`), for the legacy stream, which
// waits for such an event (`legacy`), for a value, in streams of many contexts (`contexts`).
// `launches`: COUNT launches behind one wait for a value in device memory, which another thread
// writes; "ready" is printed before the launches. Run by run_e2e.py. usage: drv_waiting_work
// values|device_values|events|kernel|legacy|contexts|launches COUNT
#include <unistd.h>

#include <string>
#include <thread>

#include "driver.h"
#include "endless.h"

namespace {

constexpr uint32_t kStreamsOfContext = 10;

void say_ready() {
  printf("ready\n");
  fflush(stdout);
}

void await_line() {
  if (getchar() == EOF) quick_exit(2);
}

void wait_until_there(CUstream stream, CUdeviceptr word) {
  CHECK_CU(cuStreamWaitValue32_v2(stream, word, 1, CU_STREAM_WAIT_VALUE_GEQ));
}

void write_in_a_stream_of_its_own(CUdeviceptr word) {
  CUstream stream = nullptr;
  CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CHECK_CU(cuStreamWriteValue32_v2(stream, word, 1, 0));
  CHECK_CU(cuStreamSynchronize(stream));
  CHECK_CU(cuStreamDestroy_v2(stream));
}

struct Work {
  const e2e::Session& session;
  CUfunction mix;
  CUfunction endless;
  CUstream first;
  CUdeviceptr there;  // the word in device memory for which streams wait
  volatile uint32_t* flag;
  [[nodiscard]] CUdeviceptr flag_address() const {
    return reinterpret_cast<CUdeviceptr>(const_cast<uint32_t*>(flag));
  }
};

// Begins the work for which streams of `kind` wait besides values. The result is an event behind
// it.
CUevent begin(const Work& work, const std::string& kind) {
  CUevent event = nullptr;
  CHECK_CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  if (kind == "legacy") wait_until_there(nullptr, work.there);
  if (kind == "events") wait_until_there(work.first, work.there);
  if (kind == "kernel") {
    e2e::launch(work.endless, 1, 1, 0, work.first, work.flag_address());
  }
  CHECK_CU(cuEventRecord(event, work.first));
  return event;
}

std::vector<uint32_t> many_streams(const Work& work, const std::string& kind, uint32_t count) {
  const e2e::Buffer<uint32_t> counts(std::vector<uint32_t>(count, 0));
  std::vector<CUstream> streams(count);
  std::vector<CUfunction> mixes(count, work.mix);
  std::vector<CUcontext> contexts;
  const bool is_blocking = kind == "legacy" || kind == "contexts";
  for (uint32_t i = 0; i < count; i++) {
    if (kind == "contexts" && i % kStreamsOfContext == 0) {
      CUmodule module = nullptr;
      CHECK_CU(cuCtxCreate_v2(&contexts.emplace_back(), 0, work.session.device));
      CHECK_CU(cuModuleLoadData(&module, e2e::kernels_ptx()));
      CHECK_CU(cuModuleGetFunction(&mixes[i], module, "mix"));
    } else if (i != 0) {
      mixes[i] = mixes[i - 1];
    }
    CHECK_CU(cuStreamCreate(&streams[i], is_blocking ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
  }
  CHECK_CU(cuCtxSetCurrent(work.session.context));
  const CUevent event = begin(work, kind);
  for (uint32_t i = 0; i < count; i++) {
    if (kind == "contexts") CHECK_CU(cuCtxSetCurrent(contexts[i / kStreamsOfContext]));
    if (kind == "values") wait_until_there(streams[i], work.flag_address());
    if (kind == "device_values" || kind == "contexts") wait_until_there(streams[i], work.there);
    if (kind == "events" || kind == "kernel") CHECK_CU(cuStreamWaitEvent(streams[i], event, 0));
    e2e::launch(mixes[i], 1, 1, 0, streams[i], counts.address + 4 * i, 1u, 9u);
  }
  CHECK_CU(cuCtxSetCurrent(work.session.context));
  say_ready();
  await_line();
  work.flag[0] = 1;
  work.flag[1] = 1;
  write_in_a_stream_of_its_own(work.there);
  for (CUstream stream : streams) CHECK_CU(cuStreamSynchronize(stream));
  for (CUstream stream : streams) CHECK_CU(cuStreamDestroy_v2(stream));
  for (CUcontext context : contexts) CHECK_CU(cuCtxDestroy_v2(context));
  CHECK_CU(cuEventDestroy_v2(event));
  return counts.get();
}

// The launches are in one stream, one after the other.
std::vector<uint32_t> many_launches(const Work& work, uint32_t count) {
  const e2e::Buffer<uint32_t> counts(std::vector<uint32_t>(1, 0));
  std::thread writer([&work] {
    CHECK_CU(cuCtxSetCurrent(work.session.context));
    await_line();
    write_in_a_stream_of_its_own(work.there);
  });
  wait_until_there(work.first, work.there);
  say_ready();
  for (uint32_t i = 0; i < count; i++) {
    e2e::launch(work.mix, 1, 1, 0, work.first, counts.address, 1u, 9u);
  }
  CHECK_CU(cuStreamSynchronize(work.first));
  writer.join();
  return counts.get();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string kind = argc > 1 ? argv[1] : "values";
  const auto count = static_cast<uint32_t>(e2e::argument(argc, argv, 2, 600));
  const e2e::Session session;
  CUmodule module = nullptr;
  CUfunction endless = nullptr;
  CHECK_CU(cuModuleLoadData(&module, e2e::kEndlessPtx.c_str()));
  CHECK_CU(cuModuleGetFunction(&endless, module, "endless"));
  const e2e::Buffer<uint32_t> there(std::vector<uint32_t>(1, 0));
  void* pinned = nullptr;
  CHECK_CU(cuMemHostAlloc(&pinned, 8, CU_MEMHOSTALLOC_DEVICEMAP));
  memset(pinned, 0, 8);
  CUstream first = nullptr;
  CHECK_CU(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
  const Work work{session, session.function("mix"), endless,
                  first,   there.address,           static_cast<volatile uint32_t*>(pinned)};

  std::vector<uint32_t> model(1, 0);
  if (kind == "launches") {
    for (uint32_t i = 0; i < count; i++) e2e::mix_on_host(model, 9);
    e2e::expect(many_launches(work, count) == model, "%u launches", count);
  } else {
    e2e::mix_on_host(model, 9);
    e2e::expect(many_streams(work, kind, count) == std::vector<uint32_t>(count, model[0]),
                "each of %u streams did once what was behind", count);
  }
  CHECK_CU(cuStreamDestroy_v2(first));
  CHECK_CU(cuMemFreeHost(pinned));
  CHECK_CU(cuModuleUnload(module));
  return e2e::finish();
}
