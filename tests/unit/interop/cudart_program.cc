// SPDX-License-Identifier: Apache-2.0
// An ordinary program of the CUDA runtime: starts it, looks at the device, uses its context.
// Prints what it saw; cudart_test.cmake compares.
#include <cuda_runtime_api.h>

#include <cstdio>

int main() {
  int count = -1;
  cudaError_t result = cudaGetDeviceCount(&count);
  std::printf("cudaGetDeviceCount: %d, %d\n", static_cast<int>(result), count);
  if (result != cudaSuccess) return 1;
  cudaDeviceProp properties;
  result = cudaGetDeviceProperties(&properties, 0);
  std::printf("cudaGetDeviceProperties: %d, %s, %zu, %d\n", static_cast<int>(result),
              properties.name, properties.totalGlobalMem, properties.multiProcessorCount);
  // The first use of a context puts the runtime's state into context storage, a later one finds it.
  for (int i = 0; i < 2; ++i) {
    std::printf("cudaStreamSynchronize: %d\n", static_cast<int>(cudaStreamSynchronize(nullptr)));
  }
  // An entry that the driver below lacks is an error, not a crash.
  void* memory = nullptr;
  std::printf("cudaMalloc: %d\n", static_cast<int>(cudaMalloc(&memory, 64)));
  return 0;
}
