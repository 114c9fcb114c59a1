// SPDX-License-Identifier: Apache-2.0
// Device code of two files, linked by nvcc -rdc=true: functions, variables, constants and kernels
// of the other file (separate_compilation_parts.cu). Run by run_e2e.py. usage: separate_compilation
#include "separate_compilation.h"

#include <vector>

#include "e2e.h"

__device__ int local_total = 5;

__global__ void combine(int* out, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= count) return;
  out[i] = scaled(i) + shared_bonus + weights[i % 4];
  atomicAdd(&local_total, 1);
}

__global__ void through_pointer(int* out, int which, int value) { *out = operations[which](value); }

int main() {
  constexpr int kCount = 1000;
  int* device = nullptr;
  CHECK_CUDA(cudaMalloc(&device, kCount * sizeof(int)));
  const auto values = [&] {
    std::vector<int> host(kCount);
    CHECK_CUDA(cudaMemcpy(host.data(), device, kCount * sizeof(int), cudaMemcpyDeviceToHost));
    return host;
  };
  const auto right = [&](int bonus, const int* weight) {
    const std::vector<int> got = values();
    for (int i = 0; i < kCount; i++) {
      if (got[static_cast<size_t>(i)] != 3 * i + bonus + weight[i % 4]) return false;
    }
    return true;
  };
  const int first[4] = {1, 2, 4, 8};
  combine<<<8, 128>>>(device, kCount);
  CHECK_CUDA(cudaGetLastError());
  e2e::expect(right(100, first), "a function, a variable and constants of another file");

  const int changed[4] = {-10, 20, -30, 40};
  const int bonus = 7000;
  CHECK_CUDA(cudaMemcpyToSymbol(weights, changed, sizeof changed));
  CHECK_CUDA(cudaMemcpyToSymbol(shared_bonus, &bonus, sizeof bonus));
  combine<<<8, 128>>>(device, kCount);
  CHECK_CUDA(cudaGetLastError());
  e2e::expect(right(7000, changed), "the same, changed by the host");

  int total = 0;
  CHECK_CUDA(cudaMemcpyFromSymbol(&total, local_total, sizeof total));
  e2e::expect(total == 5 + 2 * kCount, "a variable of this file: %d", total);

  launch_fill(device, kCount, 42);
  CHECK_CUDA(cudaGetLastError());
  const std::vector<int> filled = values();
  bool all = true;
  for (const int value : filled) all &= value == 42 + 7000;
  e2e::expect(all, "a kernel of another file");

  for (int which = 0; which < 2; which++) {
    through_pointer<<<1, 1>>>(device, which, 11);
    CHECK_CUDA(cudaGetLastError());
    e2e::expect(values()[0] == (which == 0 ? 33 : 121), "function %d through a pointer: %d", which,
                values()[0]);
  }

  cudaFuncAttributes attributes{};
  CHECK_CUDA(cudaFuncGetAttributes(&attributes, combine));
  e2e::expect(attributes.maxThreadsPerBlock > 0, "attributes of a linked kernel");
  CHECK_CUDA(cudaFree(device));
  return e2e::finish();
}
