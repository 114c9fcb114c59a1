// SPDX-License-Identifier: Apache-2.0
// Dynamic shared memory: several sizes, static and dynamic together, more than 48 KiB by opt-in,
// and the refusal without it. Run by run_e2e.py. usage: dynamic_shared
#include <numeric>
#include <vector>

#include "e2e.h"

__global__ void reverse(int* data, int n) {
  extern __shared__ int dynamic[];
  __shared__ int fixed[32];
  if (threadIdx.x < 32) fixed[threadIdx.x] = threadIdx.x * 1000;
  for (int i = threadIdx.x; i < n; i += blockDim.x) dynamic[i] = data[blockIdx.x * n + i];
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    data[blockIdx.x * n + i] = dynamic[n - 1 - i] + fixed[i % 32];
  }
}

static bool run(int blocks, int n, int threads) {
  std::vector<int> data(static_cast<size_t>(blocks) * n);
  std::iota(data.begin(), data.end(), 5);
  int* device;
  CHECK_CUDA(cudaMalloc(&device, data.size() * sizeof(int)));
  CHECK_CUDA(cudaMemcpy(device, data.data(), data.size() * sizeof(int), cudaMemcpyHostToDevice));
  reverse<<<blocks, threads, n * sizeof(int)>>>(device, n);
  CHECK_CUDA(cudaGetLastError());
  std::vector<int> got(data.size());
  CHECK_CUDA(cudaMemcpy(got.data(), device, data.size() * sizeof(int), cudaMemcpyDeviceToHost));
  CHECK_CUDA(cudaFree(device));
  for (int b = 0; b < blocks; b++) {
    for (int i = 0; i < n; i++) {
      if (got[b * n + i] != data[b * n + n - 1 - i] + i % 32 * 1000) return false;
    }
  }
  return true;
}

int main() {
  for (int n : {1, 33, 1000, 4096, 12000 - 32}) {
    e2e::expect(run(6, n, 128), "%d bytes of dynamic shared memory", n * 4);
  }
  e2e::expect(run(2, 77, 1024), "blocks of 1024 threads");

  constexpr int kLarge = 60 * 1024;  // every device of compute capability 7.5 and up grants 64 KiB
  int* device;
  CHECK_CUDA(cudaMalloc(&device, kLarge));
  reverse<<<1, 32, kLarge>>>(device, kLarge / 4);
  e2e::expect_error("60 KiB without opt-in", cudaGetLastError(), cudaErrorInvalidValue);
  CHECK_CUDA(cudaFuncSetAttribute(reverse, cudaFuncAttributeMaxDynamicSharedMemorySize, kLarge));
  cudaFuncAttributes attributes;
  CHECK_CUDA(cudaFuncGetAttributes(&attributes, reverse));
  e2e::expect(attributes.sharedSizeBytes == 128, "static shared memory %zu",
              attributes.sharedSizeBytes);
  e2e::expect(attributes.maxDynamicSharedSizeBytes == kLarge, "dynamic limit %d",
              attributes.maxDynamicSharedSizeBytes);
  e2e::expect(run(3, kLarge / 4, 256), "60 KiB after opt-in");
  e2e::expect_error(
      "opt-in beyond the device",
      cudaFuncSetAttribute(reverse, cudaFuncAttributeMaxDynamicSharedMemorySize, 1 << 20),
      cudaErrorInvalidValue);
  cudaGetLastError();
  return e2e::finish();
}
