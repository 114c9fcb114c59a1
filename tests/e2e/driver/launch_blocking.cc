// SPDX-License-Identifier: Apache-2.0
// CUDA_LAUNCH_BLOCKING: which calls return only when their work is done, and what the variable's
// values mean. No time is compared: a host function holds the stream until another thread lets it
// continue, which happens once the call has returned or, if the call waits, after a while. Run by
// run_e2e.py. usage: drv_launch_blocking
#include <pthread.h>
#include <unistd.h>

#include <atomic>

#include "driver.h"
#include "in_child.h"

namespace {

std::atomic<bool> g_open{false};
std::atomic<bool> g_returned{false};

void hold(void*) {
  while (!g_open) usleep(1000);
}

// Opens the gate for a call that waits, after a time in which a call that does not wait returns.
void* open_later(void*) {
  for (int i = 0; !g_returned && i < 500; i++) usleep(1000);
  g_open = true;
  return nullptr;
}

// Makes the call while a host function holds the stream. The call blocks if the work is done when
// it returns.
template <typename Call>
void tell(const char* what, CUstream held, Call call) {
  g_open = g_returned = false;
  CHECK_CU(cuLaunchHostFunc(held, hold, nullptr));
  pthread_t opener;
  pthread_create(&opener, nullptr, open_later, nullptr);
  const CUresult result = call();
  const CUresult then = cuStreamQuery(held);
  g_returned = true;
  pthread_join(opener, nullptr);
  printf("%s: %s, %s\n", what, e2e::name(result),
         then == CUDA_SUCCESS ? "blocks" : "returns at once");
  CHECK_CU(cuCtxSynchronize());
}

void tell_kinds() {
  e2e::Session session;
  const CUfunction empty = session.function("empty");
  CUstream stream = nullptr;
  CUstream other = nullptr;
  CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CHECK_CU(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  constexpr size_t kBytes = 1 << 20;
  const e2e::Buffer<unsigned char> memory(2 * kBytes);
  void* pinned = nullptr;
  CHECK_CU(cuMemAllocHost_v2(&pinned, kBytes));
  CUevent event = nullptr;
  CHECK_CU(cuEventCreate(&event, 0));

  tell("kernel", stream, [&] { return e2e::try_launch(empty, 1, 1, 0, stream); });
  tell("kernel, cooperative", stream,
       [&] { return cuLaunchCooperativeKernel(empty, 1, 1, 1, 1, 1, 1, 0, stream, nullptr); });
  tell("kernel in another stream", stream, [&] { return e2e::try_launch(empty, 1, 1, 0, other); });
  tell("fill", stream, [&] { return cuMemsetD8Async(memory.address, 1, kBytes, stream); });
  tell("copy between device memory", stream, [&] {
    return cuMemcpyDtoDAsync_v2(memory.address, memory.address + kBytes, kBytes, stream);
  });
  tell("copy to pinned memory", stream,
       [&] { return cuMemcpyDtoHAsync_v2(pinned, memory.address, kBytes, stream); });
  tell("record of an event", stream, [&] { return cuEventRecord(event, stream); });
  tell("write of a value", stream,
       [&] { return cuStreamWriteValue32_v2(stream, memory.address, 5, 0); });
  tell("host function", stream, [&] {
    return cuLaunchHostFunc(
        stream, [](void*) {}, nullptr);
  });

  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  tell("kernel in a capture", stream, [&] {
    CHECK_CU(cuStreamBeginCapture_v2(other, CU_STREAM_CAPTURE_MODE_RELAXED));
    const CUresult result = e2e::try_launch(empty, 1, 1, 0, other);
    CHECK_CU(cuStreamEndCapture(other, &graph));
    return result;
  });
  CHECK_CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
  tell("graph", stream, [&] { return cuGraphLaunch(exec, stream); });
  CHECK_CU(cuGraphExecDestroy(exec));
  CHECK_CU(cuGraphDestroy(graph));
  CHECK_CU(cuEventDestroy_v2(event));
  CHECK_CU(cuMemFreeHost(pinned));
  CHECK_CU(cuStreamDestroy_v2(other));
  CHECK_CU(cuStreamDestroy_v2(stream));
}

void tell_value() {
  e2e::Session session;
  CUstream stream = nullptr;
  CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  const CUfunction empty = session.function("empty");
  const char* value = getenv("CUDA_LAUNCH_BLOCKING");
  char what[64];
  snprintf(what, sizeof(what), "\"%s\"", value);
  tell(what, stream, [&] { return e2e::try_launch(empty, 1, 1, 0, stream); });
  CHECK_CU(cuStreamDestroy_v2(stream));
}

// An error of the work is that of the call; the context is lost.
void tell_error() {
  static e2e::Session session;
  const CUfunction spin = session.function("spin");
  constexpr CUdeviceptr kNowhere = 16;
  printf("kernel that faults: %s\n",
         e2e::name(e2e::try_launch(spin, 1, 1, 0, nullptr, kNowhere, 1u)));
  fflush(stdout);
  quick_exit(0);
}

void with_value(const char* value, void (*body)()) {
  e2e::in_child([&] {
    setenv("CUDA_LAUNCH_BLOCKING", value, 1);
    body();
  });
}

}  // namespace

int main() {
  with_value("1", tell_kinds);
  for (const char* value : {"0", "1", "2", "", "true", "01", "-1", " 1", "1x"}) {
    with_value(value, tell_value);
  }
  with_value("1", tell_error);
  return e2e::finish();
}
