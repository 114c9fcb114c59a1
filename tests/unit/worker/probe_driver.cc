// SPDX-License-Identifier: Apache-2.0
// A driver that does not start: cuInit fails with the number of hardware queues that the
// environment asks for at that moment, so that a program that loads it can report it.
#include <cstdlib>

#include "cuda/abi.h"

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED CUresult cuInit(unsigned) {
  const char* connections = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  return static_cast<CUresult>(connections == nullptr ? CUDA_ERROR_UNKNOWN : atoi(connections));
}
EXPORTED CUresult cuDeviceGetCount(int* count) { return *count = 0, CUDA_SUCCESS; }
EXPORTED CUresult cuDriverGetVersion(int* version) { return *version = 13000, CUDA_SUCCESS; }
