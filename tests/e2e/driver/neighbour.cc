// SPDX-License-Identifier: Apache-2.0
// A client that keeps the context from becoming quiescent until standard input has a line. It
// prints "ready" once it does. `kernel`: a kernel that does not end. `host`: a stream waits for a
// host function. `value`: a stream waits for a value. `giving`: as `value`, with a texture object
// destroyed behind the wait. `queue`: a long queue of long kernels. `values`, `device_values`,
// `calls`, `events`: more streams than a context has hardware queues, each with work behind its
// wait, wait for a value in host memory, for a value in device memory, for host functions, or for
// an event behind a kernel that does not end. `legacy`: such streams wait for the legacy stream, by
// its implicit order. Some waiting streams are destroyed, and objects are created and destroyed
// meanwhile. In the end the results of the work behind the waits are checked. Run by run_e2e.py.
// usage: drv_neighbour kernel|host|value|giving|queue|values|device_values|calls|events|legacy
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <string>

#include "driver.h"
#include "endless.h"

namespace {

constexpr uint32_t kWords = 1000;
constexpr uint32_t kLongRounds = 200'000;  // about 10 ms on softgpu
constexpr uint32_t kAhead = 16;
constexpr uint32_t kStreams = 44;  // more than the 32 hardware queues of a context
constexpr uint32_t kGone = 4;      // the last streams, which are destroyed while they wait

void say_ready() {
  printf("ready\n");
  fflush(stdout);
}

void await_line() {
  if (getchar() == EOF) quick_exit(2);
}

void wait_for_gate(void* gate) {
  auto& open = *static_cast<std::atomic<bool>*>(gate);
  while (!open.load()) usleep(1000);
}

bool line_is_there() {
  pollfd input{STDIN_FILENO, POLLIN, 0};
  return poll(&input, 1, 0) > 0;
}

void wait_on_host(void*) {
  say_ready();
  await_line();
}

void give_up_texture(CUdeviceptr words, uint32_t count) {
  CUDA_RESOURCE_DESC resource{};
  resource.resType = CU_RESOURCE_TYPE_LINEAR;
  resource.res.linear = {words, CU_AD_FORMAT_UNSIGNED_INT32, 1, count * 4};
  const CUDA_TEXTURE_DESC description{};
  CUtexObject texture = 0;
  CHECK_CU(cuTexObjectCreate(&texture, &resource, &description, nullptr));
  CHECK_CU(cuTexObjectDestroy(texture));
}

// Creates and destroys objects that belong to no stream, while other streams wait.
void pass_by(CUfunction mix, CUfunction spin, CUdeviceptr words) {
  CHECK_CU(cuFuncSetAttribute(spin, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 50));
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr;
  CUgraphExec exec = nullptr;
  uint32_t count = 1, rounds = 9;
  void* parameters[] = {&words, &count, &rounds};
  const CUDA_KERNEL_NODE_PARAMS launch{mix, 1, 1, 1, 1, 1, 1, 0, parameters, nullptr, {}, {}};
  CHECK_CU(cuGraphCreate(&graph, 0));
  CHECK_CU(cuGraphAddKernelNode_v2(&node, graph, nullptr, 0, &launch));
  CHECK_CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
  CHECK_CU(cuGraphExecKernelNodeSetParams_v2(exec, node, &launch));
  CHECK_CU(cuGraphExecDestroy(exec));
  CHECK_CU(cuGraphDestroy(graph));
  give_up_texture(words, kStreams);
  CUmemGenericAllocationHandle memory = 0;
  CUmemAllocationProp where{};
  where.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  where.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  const size_t bytes = 2 << 20;
  CUdeviceptr address = 0;
  CHECK_CU(cuMemCreate(&memory, bytes, &where, 0));
  CHECK_CU(cuMemAddressReserve(&address, bytes, 0, 0, 0));
  CHECK_CU(cuMemMap(address, bytes, 0, memory, 0));
  const CUmemAccessDesc access{where.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CHECK_CU(cuMemSetAccess(address, bytes, &access, 1));
  CHECK_CU(cuMemUnmap(address, bytes));
  CHECK_CU(cuMemAddressFree(address, bytes));
  CHECK_CU(cuMemRelease(memory));
}

}  // namespace

int main(int argc, char** argv) {
  const std::string kind = argc > 1 ? argv[1] : "kernel";
  const e2e::Session session;
  const CUfunction mix = session.function("mix"), spin = session.function("spin");
  CUmodule module = nullptr;
  CUfunction endless = nullptr;
  CHECK_CU(cuModuleLoadData(&module, e2e::kEndlessPtx.c_str()));
  CHECK_CU(cuModuleGetFunction(&endless, module, "endless"));
  std::vector<uint32_t> model(kWords, 3);
  e2e::Buffer<uint32_t> words(model), busy(1);
  void* pinned = nullptr;
  CHECK_CU(cuMemHostAlloc(&pinned, 8, CU_MEMHOSTALLOC_DEVICEMAP));
  memset(pinned, 0, 8);
  auto* flag = static_cast<volatile uint32_t*>(pinned);
  CUstream stream = nullptr;
  CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  const auto last = [&] {
    e2e::launch(mix, e2e::blocks_for(kWords, 128), 128, 0, stream, words.address, kWords, 9u);
  };

  if (kind == "kernel") {
    e2e::launch(endless, 1, 1, 0, stream, reinterpret_cast<CUdeviceptr>(pinned));
    last();
    while (flag[0] == 0) usleep(1000);
    say_ready();
    await_line();
    flag[1] = 1;
  } else if (kind == "host") {
    CHECK_CU(cuLaunchHostFunc(stream, wait_on_host, nullptr));
    last();
  } else if (kind == "value" || kind == "giving") {
    CHECK_CU(cuStreamWaitValue32_v2(stream, reinterpret_cast<CUdeviceptr>(pinned), 1,
                                    CU_STREAM_WAIT_VALUE_GEQ));
    last();
    if (kind == "giving") give_up_texture(words.address, kWords);
    say_ready();
    await_line();
    flag[0] = 1;
  } else if (kind == "queue") {
    CUevent events[kAhead];
    for (CUevent& event : events) CHECK_CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    for (uint32_t launches = 0; !line_is_there(); launches++) {
      CUevent event = events[launches % kAhead];
      CHECK_CU(cuEventSynchronize(event));  // the event of an earlier launch
      e2e::launch(spin, 1, 32, 0, stream, busy.address, kLongRounds);
      CHECK_CU(cuEventRecord(event, stream));
      if (launches == kAhead) say_ready();
    }
    last();
    for (CUevent event : events) CHECK_CU(cuEventDestroy_v2(event));
  } else {
    const auto pinned_address = reinterpret_cast<CUdeviceptr>(pinned);
    e2e::Buffer<uint32_t> device_flag(std::vector<uint32_t>(1, 0));
    e2e::Buffer<uint32_t> counts(std::vector<uint32_t>(kStreams, 0));
    std::atomic<bool> gate = false;
    CUevent event = nullptr;
    CHECK_CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    const bool is_legacy = kind == "legacy";
    if (is_legacy || kind == "events") {
      const CUstream busy_one = is_legacy ? nullptr : stream;
      e2e::launch(endless, 1, 1, 0, busy_one, pinned_address);
      CHECK_CU(cuEventRecord(event, busy_one));
    }
    CUstream others[kStreams];
    for (uint32_t i = 0; i < kStreams; i++) {
      CUstream& other = others[i];
      CHECK_CU(cuStreamCreate(&other, is_legacy ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
      if (is_legacy) {
        // The stream waits for the kernel implicitly.
      } else if (kind == "values") {
        CHECK_CU(cuStreamWaitValue32_v2(other, pinned_address, 1, CU_STREAM_WAIT_VALUE_GEQ));
      } else if (kind == "device_values") {
        CHECK_CU(cuStreamWaitValue32_v2(other, device_flag.address, 1, CU_STREAM_WAIT_VALUE_GEQ));
      } else if (kind == "calls") {
        CHECK_CU(cuLaunchHostFunc(other, wait_for_gate, &gate));
      } else {
        CHECK_CU(cuStreamWaitEvent(other, event, 0));
      }
      e2e::launch(mix, 1, 1, 0, other, counts.address + 4 * i, 1u, 9u);
    }
    last();
    for (uint32_t i = kStreams - kGone; i < kStreams; i++) CHECK_CU(cuStreamDestroy_v2(others[i]));
    pass_by(mix, spin, counts.address);
    say_ready();
    await_line();
    gate = true;
    flag[0] = 1;
    flag[1] = 1;
    // The GPU writes the value, in a stream that has not waited for anything.
    CHECK_CU(cuStreamWriteValue32_v2(stream, device_flag.address, 1, 0));
    for (uint32_t i = 0; i < kStreams - kGone; i++) {
      CHECK_CU(cuStreamSynchronize(others[i]));
      CHECK_CU(cuStreamDestroy_v2(others[i]));
    }
    CHECK_CU(cuCtxSynchronize());
    std::vector<uint32_t> once(1, 0);
    e2e::mix_on_host(once, 9);
    e2e::expect(counts.get() == std::vector<uint32_t>(kStreams, once[0]),
                "each stream did once what was behind");
    CHECK_CU(cuEventDestroy_v2(event));
  }
  CHECK_CU(cuStreamSynchronize(stream));
  e2e::mix_on_host(model, 9);
  e2e::expect(words.get() == model, "the rest of the stream has run");
  CHECK_CU(cuStreamDestroy_v2(stream));
  CHECK_CU(cuMemFreeHost(pinned));
  CHECK_CU(cuModuleUnload(module));
  return e2e::finish();
}
