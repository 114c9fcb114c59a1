// SPDX-License-Identifier: Apache-2.0
// Occupancy queries: their values differ between devices, so relations are checked that hold on
// all, and the suggested launch runs. Run by run_e2e.py. usage: occupancy
#include <algorithm>
#include <vector>

#include "e2e.h"

__global__ void plain(int* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = i * 3 + 1;
}

__global__ void uses_shared(int* out, int n) {
  extern __shared__ int room[];
  room[threadIdx.x] = threadIdx.x;
  __syncthreads();
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = room[blockDim.x - 1 - threadIdx.x];
}

__global__ void __launch_bounds__(128) bounded(int* out) { out[threadIdx.x] = 1; }

static int blocks_per_sm(const void* kernel, int threads, size_t shared) {
  int blocks = -1;
  CHECK_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, shared));
  return blocks;
}

int main() {
  cudaDeviceProp device;
  CHECK_CUDA(cudaGetDeviceProperties(&device, 0));
  const auto* kernel = reinterpret_cast<const void*>(plain);
  const auto* shared_kernel = reinterpret_cast<const void*>(uses_shared);
  for (int threads : {32, 64, 256, 1024}) {
    const int blocks = blocks_per_sm(kernel, threads, 0);
    e2e::expect(blocks >= 1 && blocks * threads <= device.maxThreadsPerMultiProcessor &&
                    blocks <= device.maxBlocksPerMultiProcessor,
                "%d threads fit", threads);
  }
  int last = blocks_per_sm(shared_kernel, 64, 0);
  bool falls = true;
  for (size_t shared = 1024; shared <= 48 * 1024; shared *= 2) {
    const int blocks = blocks_per_sm(shared_kernel, 64, shared);
    falls = falls && blocks <= last && blocks >= 1 &&
            blocks * shared <= device.sharedMemPerMultiprocessor;
    last = blocks;
  }
  e2e::expect(falls, "more shared memory never raises occupancy");

  int least_grid = 0, block = 0;
  CHECK_CUDA(cudaOccupancyMaxPotentialBlockSize(&least_grid, &block, plain, 0, 0));
  e2e::expect(block >= 32 && block <= 1024 && block % 32 == 0, "suggested block is whole warps");
  e2e::expect(least_grid == device.multiProcessorCount * blocks_per_sm(kernel, block, 0),
              "suggested grid fills the device once");
  int limited = 0;
  CHECK_CUDA(cudaOccupancyMaxPotentialBlockSize(&least_grid, &limited, plain, 0, 96));
  e2e::expect(limited >= 32 && limited <= 96, "block limit is kept");
  size_t room = 0;
  CHECK_CUDA(cudaOccupancyAvailableDynamicSMemPerBlock(&room, shared_kernel, 2, 128));
  e2e::expect(room > 0 && 2 * room <= device.sharedMemPerMultiprocessor,
              "dynamic shared memory for two blocks");
  cudaFuncAttributes attributes;
  CHECK_CUDA(cudaFuncGetAttributes(&attributes, bounded));
  e2e::expect(attributes.maxThreadsPerBlock == 128, "launch bound %d",
              attributes.maxThreadsPerBlock);
  CHECK_CUDA(cudaFuncGetAttributes(&attributes, plain));
  e2e::expect(
      attributes.maxThreadsPerBlock == 1024 && attributes.numRegs > 0 && attributes.numRegs <= 255,
      "kernel attributes");
  e2e::expect_error("occupancy of no kernel",
                    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&limited, &device, 64, 0),
                    cudaErrorInvalidResourceHandle);
  cudaGetLastError();

  constexpr int kItems = 10000;
  int* out;
  CHECK_CUDA(cudaMalloc(&out, kItems * sizeof(int)));
  plain<<<e2e::blocks_for(kItems, block), block>>>(out, kItems);
  CHECK_CUDA(cudaGetLastError());
  std::vector<int> got(kItems);
  CHECK_CUDA(cudaMemcpy(got.data(), out, kItems * sizeof(int), cudaMemcpyDeviceToHost));
  int wrong = 0;
  for (int i = 0; i < kItems; i++) wrong += got[i] != i * 3 + 1;
  e2e::expect(wrong == 0, "launch with the suggested block: %d wrong", wrong);
  bounded<<<1, 256>>>(out);
  e2e::expect_error("launch beyond the bound", cudaGetLastError(), cudaErrorInvalidValue);
  return e2e::finish();
}
