// SPDX-License-Identifier: Apache-2.0
// CUDA calls in a host function, a stream callback and a host node: they are not permitted there,
// and work on other threads meanwhile. Run by run_e2e.py. usage: drv_host_functions
#include <atomic>
#include <string>

#include "driver.h"

namespace {

using e2e::expect;
using e2e::expect_result;

struct Answers {
  const e2e::Session* session = nullptr;
  CUdeviceptr memory = 0;
  CUstream stream = nullptr;
  std::vector<std::pair<const char*, CUresult>> list;
};

void call(void* data) {
  auto& answers = *static_cast<Answers*>(data);
  const auto add = [&](const char* what, CUresult result) {
    answers.list.push_back({what, result});
  };
  CUdeviceptr memory = 0;
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  CUstream stream = nullptr;
  CUevent event = nullptr;
  CUgraph graph = nullptr;
  int number = 0;
  void* host = nullptr;
  add("cuMemAlloc", cuMemAlloc_v2(&memory, 16));
  add("cuMemFree", cuMemFree_v2(answers.memory));
  add("cuMemAllocAsync", cuMemAllocAsync(&memory, 16, answers.stream));
  add("cuMemHostAlloc", cuMemHostAlloc(&host, 16, 0));
  add("cuMemcpyHtoD", cuMemcpyHtoD_v2(answers.memory, &number, 4));
  add("cuMemcpyHtoDAsync", cuMemcpyHtoDAsync_v2(answers.memory, &number, 4, answers.stream));
  add("cuDeviceGetCount", cuDeviceGetCount(&number));
  add("cuCtxGetCurrent", cuCtxGetCurrent(&context));
  add("cuCtxSetCurrent", cuCtxSetCurrent(answers.session->context));
  add("cuDevicePrimaryCtxRetain", cuDevicePrimaryCtxRetain(&context, 0));
  add("cuModuleLoadData", cuModuleLoadData(&module, e2e::kernels_ptx()));
  add("cuModuleGetFunction", cuModuleGetFunction(&function, answers.session->module, "none"));
  add("cuStreamCreate", cuStreamCreate(&stream, 0));
  add("cuEventCreate", cuEventCreate(&event, 0));
  add("cuGraphCreate", cuGraphCreate(&graph, 0));
  const char* text = nullptr;
  add("cuGetErrorName", cuGetErrorName(CUDA_ERROR_NOT_PERMITTED, &text));
}

void callback(CUstream, CUresult, void* data) { call(data); }

// Expects the error from all calls but the last, which uses no device.
void report(const char* where, Answers& answers) {
  bool all = answers.list.size() == 16;
  for (size_t i = 0; i < answers.list.size(); i++) {
    const auto [what, result] = answers.list[i];
    const bool last = i + 1 == answers.list.size();
    if (result == (last ? CUDA_SUCCESS : CUDA_ERROR_NOT_PERMITTED)) continue;
    expect(false, "%s in %s: %s", what, where, e2e::name(result));
    all = false;
  }
  if (all) expect(true, "no CUDA in %s", where);
  answers.list.clear();
}

std::atomic<int> g_stage{0};

void wait_for_main(void* data) {
  g_stage = 1;
  while (g_stage != 2) {
  }
  call(data);
}

}  // namespace

int main() {
  e2e::Session session;
  Answers answers;
  answers.session = &session;
  e2e::Buffer<uint32_t> buffer(4);
  answers.memory = buffer.address;
  CHECK_CU(cuStreamCreate(&answers.stream, CU_STREAM_NON_BLOCKING));
  CUstream stream = nullptr;
  CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));

  CHECK_CU(cuLaunchHostFunc(stream, call, &answers));
  CHECK_CU(cuStreamSynchronize(stream));
  report("a host function", answers);
  CHECK_CU(cuStreamAddCallback(stream, callback, &answers, 0));
  CHECK_CU(cuStreamSynchronize(stream));
  report("a stream callback", answers);

  CUgraph graph = nullptr;
  CUgraphNode node = nullptr;
  CUgraphExec exec = nullptr;
  CUDA_HOST_NODE_PARAMS params{call, &answers};
  CHECK_CU(cuGraphCreate(&graph, 0));
  CHECK_CU(cuGraphAddHostNode(&node, graph, nullptr, 0, &params));
  CHECK_CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
  for (int i = 0; i < 2; i++) {
    CHECK_CU(cuGraphLaunch(exec, stream));
    CHECK_CU(cuStreamSynchronize(stream));
    report("a host node", answers);
  }
  CHECK_CU(cuGraphExecDestroy(exec));
  CHECK_CU(cuGraphDestroy(graph));

  CHECK_CU(cuLaunchHostFunc(stream, wait_for_main, &answers));
  while (g_stage != 1) {
  }
  CUdeviceptr memory = 0;
  int count = 0;
  expect_result("meanwhile, allocating elsewhere", cuMemAlloc_v2(&memory, 16), CUDA_SUCCESS);
  expect_result("and asking for devices", cuDeviceGetCount(&count), CUDA_SUCCESS);
  g_stage = 2;
  CHECK_CU(cuStreamSynchronize(stream));
  report("the host function that waited", answers);
  CHECK_CU(cuMemFree_v2(memory));
  CHECK_CU(cuStreamDestroy_v2(stream));
  CHECK_CU(cuStreamDestroy_v2(answers.stream));
  return e2e::finish();
}
