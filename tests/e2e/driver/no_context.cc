// SPDX-License-Identifier: Apache-2.0
// Calls that need no context, made before there is one; and a reset of the primary context while it
// is retained. Run by run_e2e.py. usage: drv_no_context devices|nodes|streams|reset
#include <string>

#include "driver.h"

namespace {

using e2e::expect;
using e2e::expect_result;

constexpr char kEmptyModule[] = ".version 7.0\n.target sm_70\n.address_size 64\n";

void devices() {
  int value = -1;
  expect_result("a device as its own peer", cuDeviceCanAccessPeer(&value, 0, 0), CUDA_SUCCESS);
  expect(value == 0, "which it is not");
  expect_result("no such peer", cuDeviceCanAccessPeer(&value, 0, 99), CUDA_ERROR_INVALID_DEVICE);
  const auto access = CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED;
  expect_result("the link of a device to itself", cuDeviceGetP2PAttribute(&value, access, 0, 0),
                CUDA_ERROR_INVALID_DEVICE);
  unsigned capabilities[1] = {};
  const CUatomicOperation operation[1] = {CU_ATOMIC_OPERATION_INTEGER_ADD};
  expect_result("atomics with the host",
                cuDeviceGetHostAtomicCapabilities(capabilities, operation, 1, 0),
                {CUDA_SUCCESS, CUDA_ERROR_NOT_SUPPORTED});
  expect_result("atomics of a device with itself",
                cuDeviceGetP2PAtomicCapabilities(capabilities, operation, 1, 0, 0),
                {CUDA_ERROR_INVALID_DEVICE, CUDA_ERROR_NOT_SUPPORTED});
  const auto widest = [](CUarray_format format, unsigned channels) {
    size_t width = 0;
    CHECK_CU(cuDeviceGetTexture1DLinearMaxWidth(&width, format, channels, 0));
    return width;
  };
  expect(widest(CU_AD_FORMAT_FLOAT, 1) == size_t{1} << 30 &&
             widest(CU_AD_FORMAT_FLOAT, 4) == size_t{1} << 28 &&
             widest(CU_AD_FORMAT_UNSIGNED_INT8, 2) == size_t{1} << 30,
         "widths of linear textures");
  size_t width = 0;
  expect_result("of three channels",
                cuDeviceGetTexture1DLinearMaxWidth(&width, CU_AD_FORMAT_FLOAT, 3, 0),
                CUDA_ERROR_INVALID_VALUE);
  expect_result("allocating", cuMemAlloc_v2(reinterpret_cast<CUdeviceptr*>(&width), 16),
                CUDA_ERROR_INVALID_CONTEXT);
}

void nodes() {
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr;
  CHECK_CU(cuGraphCreate(&graph, 0));
  expect_result("an empty node", cuGraphAddEmptyNode(&node, graph, nullptr, 0), CUDA_SUCCESS);
  CUDA_HOST_NODE_PARAMS params{[](void*) {}, &params};
  expect_result("a host node", cuGraphAddHostNode(&node, graph, &node, 1, &params), CUDA_SUCCESS);
  CUDA_HOST_NODE_PARAMS read{};
  expect_result("its parameters", cuGraphHostNodeGetParams(node, &read), CUDA_SUCCESS);
  expect(read.fn == params.fn && read.userData == &params, "as they were given");
  size_t count = 0;
  CHECK_CU(cuGraphGetNodes(graph, nullptr, &count));
  expect(count == 2, "%zu nodes", count);
  CHECK_CU(cuGraphDestroy(graph));
}

// Calls with streams, code and memory of a context that is not current on the thread.
void streams() {
  expect_result("freeing nothing", cuMemFree_v2(0), CUDA_SUCCESS);
  expect_result("freeing what is no memory", cuMemFree_v2(16), CUDA_ERROR_INVALID_VALUE);
  expect_result("freeing no host memory", cuMemFreeHost(nullptr), CUDA_SUCCESS);
  CUcontext context = nullptr;
  CUcontext popped = nullptr;
  CHECK_CU(cuDevicePrimaryCtxRetain(&context, 0));
  CHECK_CU(cuCtxPushCurrent_v2(context));
  CUstream stream = nullptr;
  CUmodule module = nullptr;
  CUdeviceptr memory = 0;
  CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CHECK_CU(cuMemAlloc_v2(&memory, 16));
  CHECK_CU(cuModuleLoadData(&module, kEmptyModule));
  CHECK_CU(cuCtxPopCurrent_v2(&popped));
  expect_result("work in a stream", cuMemsetD32Async(memory, 7, 4, stream), CUDA_SUCCESS);
  expect_result("waiting for it", cuStreamSynchronize(stream), CUDA_SUCCESS);
  expect_result("asking it", cuStreamQuery(stream), CUDA_SUCCESS);
  expect_result("the default stream", cuStreamSynchronize(nullptr), CUDA_ERROR_INVALID_CONTEXT);
  expect_result("freeing memory", cuMemFree_v2(memory), CUDA_SUCCESS);
  expect_result("destroying a stream", cuStreamDestroy_v2(stream), CUDA_SUCCESS);
  expect_result("unloading a module", cuModuleUnload(module), CUDA_SUCCESS);
  CHECK_CU(cuDevicePrimaryCtxRelease_v2(0));
}

bool active() {
  unsigned flags = 0;
  int is = -1;
  CHECK_CU(cuDevicePrimaryCtxGetState(0, &flags, &is));
  return is == 1;
}

void reset() {
  CUcontext context = nullptr;
  CUcontext again = nullptr;
  CUdeviceptr memory = 0;
  unsigned long long first = 0, second = 0;
  CHECK_CU(cuDevicePrimaryCtxRetain(&context, 0));
  CHECK_CU(cuDevicePrimaryCtxRetain(&again, 0));
  CHECK_CU(cuCtxSetCurrent(context));
  CHECK_CU(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096));
  CHECK_CU(cuMemAlloc_v2(&memory, 16));
  CHECK_CU(cuCtxGetId(context, &first));
  expect_result("a reset, twice retained", cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
  expect(!active(), "the context is over");
  CUdevice device = -1;
  expect_result("its device", cuCtxGetDevice(&device), CUDA_SUCCESS);
  expect_result("memory in it", cuMemAlloc_v2(&memory, 16), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  expect_result("what was in it", cuMemFree_v2(memory), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  expect_result("waiting for it", cuCtxSynchronize(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  expect_result("its number", cuCtxGetId(context, &second), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  expect_result("it current again", cuCtxSetCurrent(context), CUDA_SUCCESS);
  expect(!active(), "is still over");

  CHECK_CU(cuDevicePrimaryCtxRetain(&again, 0));
  expect(again == context && active(), "retained a third time it is back");
  CHECK_CU(cuMemAlloc_v2(&memory, 16));
  CHECK_CU(cuMemFree_v2(memory));
  CHECK_CU(cuCtxGetId(context, &second));
  expect(first != second, "as another one");
  size_t stack = 0;
  CHECK_CU(cuCtxGetLimit(&stack, CU_LIMIT_STACK_SIZE));
  // Behind OpenMPS the limit is that of the shared context, which never shrinks (decision 12).
  expect(stack >= 1024, "with the usual stack, or more");
  CHECK_CU(cuDevicePrimaryCtxRelease_v2(0));
  CHECK_CU(cuDevicePrimaryCtxRelease_v2(0));
  expect(active(), "two references given back");
  CHECK_CU(cuDevicePrimaryCtxRelease_v2(0));
  expect(!active(), "and the third");
  expect_result("one too many", cuDevicePrimaryCtxRelease_v2(0), CUDA_ERROR_INVALID_CONTEXT);

  unsigned flags = 99;
  int is = -1;
  CHECK_CU(cuDevicePrimaryCtxRetain(&context, 0));
  CHECK_CU(cuDevicePrimaryCtxSetFlags_v2(0, CU_CTX_SCHED_YIELD));
  CHECK_CU(cuDevicePrimaryCtxReset_v2(0));
  CHECK_CU(cuDevicePrimaryCtxGetState(0, &flags, &is));
  expect(flags == 0 && is == 0, "a reset takes the flags back");
  expect_result("references outlive a reset", cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
  expect_result("a reset of nothing", cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
}

}  // namespace

int main(int argc, char** argv) {
  setvbuf(stdout, nullptr, _IOLBF, 0);
  CHECK_CU(cuInit(0));
  const std::string group = argc > 1 ? argv[1] : "devices";
  if (group == "devices") devices();
  if (group == "nodes") nodes();
  if (group == "streams") streams();
  if (group == "reset") reset();
  return e2e::finish();
}
