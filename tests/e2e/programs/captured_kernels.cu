// SPDX-License-Identifier: Apache-2.0
// Kernel nodes that were captured from <<<>>> launches are read back (function, grid, block, shared
// memory and parameters), changed and run again. Run by run_e2e.py. usage: captured_kernels
#include <vector>

#include "e2e.h"

__global__ void add(int* out, int value, signed char more) {
  const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x;
  const unsigned block = blockIdx.y * gridDim.x + blockIdx.x;
  atomicAdd(&out[block * blockDim.x * blockDim.y + thread], value + more);
}
__global__ void negate(int* out) { out[threadIdx.x] = -out[threadIdx.x]; }

static bool names(const cudaKernelNodeParams& params, const void* function, dim3 grid, dim3 block,
                  unsigned shared) {
  return params.func == function && params.gridDim.x == grid.x && params.gridDim.y == grid.y &&
         params.gridDim.z == grid.z && params.blockDim.x == block.x &&
         params.blockDim.y == block.y && params.blockDim.z == block.z &&
         params.sharedMemBytes == shared && params.extra == nullptr;
}

int main() {
  constexpr int kCount = 2 * 3 * 8 * 4;
  int* device = nullptr;
  CHECK_CUDA(cudaMalloc(&device, kCount * sizeof(int)));
  CHECK_CUDA(cudaMemset(device, 0, kCount * sizeof(int)));
  cudaStream_t stream;
  CHECK_CUDA(cudaStreamCreate(&stream));
  const auto first = [&] {
    int value = 0;
    CHECK_CUDA(cudaMemcpy(&value, device, sizeof value, cudaMemcpyDeviceToHost));
    return value;
  };

  cudaGraph_t graph;
  CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  add<<<dim3(2, 3), dim3(8, 4), 128, stream>>>(device, 1000, -7);
  negate<<<1, 32, 0, stream>>>(device);
  CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
  std::vector<cudaGraphNode_t> nodes(2);
  size_t count = nodes.size();
  CHECK_CUDA(cudaGraphGetNodes(graph, nodes.data(), &count));
  e2e::expect(count == 2, "%zu captured nodes", count);

  cudaKernelNodeParams seen{};
  CHECK_CUDA(cudaGraphKernelNodeGetParams(nodes[0], &seen));
  e2e::expect(names(seen, reinterpret_cast<void*>(add), dim3(2, 3), dim3(8, 4), 128),
              "the first node: its function, grid, block and shared memory");
  if (e2e::expect(seen.kernelParams != nullptr, "its parameters")) {
    e2e::expect(*static_cast<int**>(seen.kernelParams[0]) == device &&
                    *static_cast<int*>(seen.kernelParams[1]) == 1000 &&
                    *static_cast<signed char*>(seen.kernelParams[2]) == -7,
                "the values of its parameters");
  }
  CHECK_CUDA(cudaGraphKernelNodeGetParams(nodes[1], &seen));
  e2e::expect(names(seen, reinterpret_cast<void*>(negate), dim3(1), dim3(32), 0),
              "the second node");

  // The second node gets another function.
  int value = 5;
  signed char more = 1;
  void* parameters[] = {&device, &value, &more};
  seen.func = reinterpret_cast<void*>(add);
  seen.kernelParams = parameters;
  CHECK_CUDA(cudaGraphKernelNodeSetParams(nodes[1], &seen));
  CHECK_CUDA(cudaGraphKernelNodeGetParams(nodes[1], &seen));
  e2e::expect(names(seen, reinterpret_cast<void*>(add), dim3(1), dim3(32), 0),
              "the second node with another function");

  // Likewise for a node that cudaGraphAddKernelNode adds, and for a cloned node.
  cudaKernelNodeParams made{};
  made.func = reinterpret_cast<void*>(negate);
  made.gridDim = dim3(1);
  made.blockDim = dim3(4);
  made.kernelParams = parameters;
  cudaGraphNode_t added;
  CHECK_CUDA(cudaGraphAddKernelNode(&added, graph, &nodes[1], 1, &made));
  CHECK_CUDA(cudaGraphKernelNodeGetParams(added, &seen));
  e2e::expect(names(seen, reinterpret_cast<void*>(negate), dim3(1), dim3(4), 0), "an added node");
  cudaGraph_t clone;
  cudaGraphNode_t twin;
  CHECK_CUDA(cudaGraphClone(&clone, graph));
  CHECK_CUDA(cudaGraphNodeFindInClone(&twin, nodes[0], clone));
  CHECK_CUDA(cudaGraphKernelNodeGetParams(twin, &seen));
  e2e::expect(names(seen, reinterpret_cast<void*>(add), dim3(2, 3), dim3(8, 4), 128),
              "a cloned node");

  cudaGraphExec_t exec;
  CHECK_CUDA(cudaGraphInstantiate(&exec, clone, 0));
  CHECK_CUDA(cudaGraphLaunch(exec, stream));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  e2e::expect(first() == -(993 + 6), "the graph's result: %d", first());
  CHECK_CUDA(cudaGraphExecDestroy(exec));
  CHECK_CUDA(cudaGraphDestroy(clone));
  CHECK_CUDA(cudaGraphDestroy(graph));
  CHECK_CUDA(cudaStreamDestroy(stream));
  CHECK_CUDA(cudaFree(device));
  return e2e::finish();
}
