// SPDX-License-Identifier: Apache-2.0
// A client whose use of the GPU is known beforehand: a number of launches, and bytes copied in each
// direction. Then a stream waits for a value, with a kernel behind the wait. The program prints
// "ready", and writes the value after a line on standard input. Run by run_e2e.py, whose scenario
// `measured` has the same numbers.
#include "driver.h"

namespace {

constexpr uint32_t kToDevice = 700'001;  // words; more than one piece of staging memory holds
constexpr uint32_t kFromDevice = 4'321;
constexpr uint32_t kBetween = 5'000;
constexpr uint32_t kFilled = 6'000;
constexpr int kLaunches = 50;
constexpr int kGraphLaunches = 3;

void add_kernel(CUgraph graph, CUfunction kernel, CUdeviceptr words, uint32_t n, uint32_t key) {
  void* parameters[] = {&words, &n, &key};
  const CUDA_KERNEL_NODE_PARAMS node{kernel, 1, 1,          1,       32,      1,
                                     1,      0, parameters, nullptr, nullptr, nullptr};
  CUgraphNode made = nullptr;
  CHECK_CU(cuGraphAddKernelNode_v2(&made, graph, nullptr, 0, &node));
}

void await_line() {
  int c = 0;
  while ((c = getchar()) != '\n') {
    if (c == EOF) quick_exit(2);
  }
}

}  // namespace

int main() {
  const e2e::Session session;
  const CUfunction mix = session.function("mix");
  CUstream stream = nullptr;
  CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  std::vector<uint32_t> model(kToDevice, 5);
  e2e::Buffer<uint32_t> words(model), other(kToDevice);
  const auto mix_words = [&](uint32_t key) {
    e2e::launch(mix, e2e::blocks_for(kToDevice, 128), 128, 0, stream, words.address, kToDevice,
                key);
    e2e::mix_on_host(model, key);
  };
  for (uint32_t i = 0; i < kLaunches; i++) mix_words(i);
  CHECK_CU(cuStreamSynchronize(stream));
  CHECK_CU(cuMemcpyDtoDAsync_v2(other.address, words.address, kBetween * 4, stream));
  CHECK_CU(cuMemsetD32Async(other.address + kBetween * 4, 7, kFilled, stream));

  // Two kernels, a copy to the host and a copy on the device.
  void* pinned = nullptr;
  CHECK_CU(cuMemAllocHost_v2(&pinned, kFromDevice * 4));
  CUgraph graph = nullptr;
  CHECK_CU(cuGraphCreate(&graph, 0));
  add_kernel(graph, mix, other.address + 400'000, 100, 1);
  add_kernel(graph, mix, other.address + 800'000, 100, 2);
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = words.address;
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = pinned;
  copy.WidthInBytes = kFromDevice * 4;
  copy.Height = copy.Depth = 1;
  CUgraphNode made = nullptr;
  CHECK_CU(cuGraphAddMemcpyNode(&made, graph, nullptr, 0, &copy, session.context));
  CUgraphExec exec = nullptr;
  CHECK_CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
  for (int i = 0; i < kGraphLaunches; i++) CHECK_CU(cuGraphLaunch(exec, stream));
  CHECK_CU(cuStreamSynchronize(stream));
  const bool same = memcmp(pinned, model.data(), kFromDevice * 4) == 0;

  void* value = nullptr;
  CHECK_CU(cuMemAllocHost_v2(&value, 4));
  auto* flag = static_cast<volatile uint32_t*>(value);
  *flag = 0;
  CHECK_CU(cuStreamWaitValue32_v2(stream, reinterpret_cast<CUdeviceptr>(value), 1,
                                  CU_STREAM_WAIT_VALUE_GEQ));
  mix_words(99);
  printf("ready\n");
  fflush(stdout);
  await_line();
  *flag = 1;
  CHECK_CU(cuStreamSynchronize(stream));
  printf("done\n");
  fflush(stdout);
  await_line();
  e2e::expect(same, "what came back");
  e2e::expect(words.get() == model, "the words");
  CHECK_CU(cuGraphExecDestroy(exec));
  CHECK_CU(cuGraphDestroy(graph));
  CHECK_CU(cuMemFreeHost(pinned));
  CHECK_CU(cuMemFreeHost(value));
  CHECK_CU(cuStreamDestroy_v2(stream));
  return e2e::finish();
}
