// SPDX-License-Identifier: Apache-2.0
// Kernels that launch kernels (dynamic parallelism), linked with the device's runtime by
// nvcc -rdc=true. Run by run_e2e.py.
// usage: nested_launches
#include <vector>

#include "e2e.h"

__global__ void child(int* out, int base) {
  out[blockIdx.x * blockDim.x + threadIdx.x] = base + static_cast<int>(threadIdx.x);
}

__global__ void parent(int* out, int width) {
  child<<<2, width>>>(out + static_cast<int>(threadIdx.x) * 2 * width,
                      1000 * static_cast<int>(threadIdx.x));
}

__global__ void tree(int* count, int depth) {
  atomicAdd(count, 1);
  if (depth > 0) tree<<<2, 1, 0, cudaStreamFireAndForget>>>(count, depth - 1);
}

__global__ void tail(int* count) { *count = *count * 2; }
__global__ void with_tail(int* count) {
  tree<<<1, 1, 0, cudaStreamFireAndForget>>>(count, 2);
  tail<<<1, 1, 0, cudaStreamTailLaunch>>>(count);
}

int main() {
  constexpr int kParents = 4;
  constexpr int kWidth = 32;
  constexpr int kCount = kParents * 2 * kWidth;
  int* device = nullptr;
  CHECK_CUDA(cudaMalloc(&device, kCount * sizeof(int)));
  parent<<<1, kParents>>>(device, kWidth);
  CHECK_CUDA(cudaGetLastError());
  CHECK_CUDA(cudaDeviceSynchronize());
  std::vector<int> got(kCount);
  CHECK_CUDA(cudaMemcpy(got.data(), device, kCount * sizeof(int), cudaMemcpyDeviceToHost));
  bool right = true;
  for (int i = 0; i < kCount; i++) {
    right &= got[static_cast<size_t>(i)] == 1000 * (i / (2 * kWidth)) + i % kWidth;
  }
  e2e::expect(right, "%d words of kernels that kernels launched", kCount);

  const auto counted = [&](const char* what, int wanted) {
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaDeviceSynchronize());
    int count = 0;
    CHECK_CUDA(cudaMemcpy(&count, device, sizeof count, cudaMemcpyDeviceToHost));
    e2e::expect(count == wanted, "%s: %d", what, count);
  };
  CHECK_CUDA(cudaMemset(device, 0, sizeof(int)));
  tree<<<1, 1>>>(device, 5);
  counted("a tree of kernels", 63);
  CHECK_CUDA(cudaMemset(device, 0, sizeof(int)));
  with_tail<<<1, 1>>>(device);
  counted("a tail after a tree", 14);
  CHECK_CUDA(cudaFree(device));
  return e2e::finish();
}
