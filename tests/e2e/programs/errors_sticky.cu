// SPDX-License-Identifier: Apache-2.0
// One fault of a kernel, and what every later call returns: the error stays until the process ends.
// Run by run_e2e.py, once per kind. usage: errors_sticky illegal|null|misaligned|trap|assert
#include <cassert>

#include "e2e.h"

__global__ void illegal(int* out) { out[(1ll << 40) / 4 + threadIdx.x] = 1; }
__global__ void misaligned(char* out) { *reinterpret_cast<volatile long long*>(out + 4) = 1; }
__global__ void traps() { __trap(); }
__global__ void asserts(int value) { assert(value == 0); }
__global__ void reads_null(const int* null, int* out) { *out = *null; }
__global__ void harmless(int* out) { *out = 5; }

int main(int argc, char** argv) {
  const char* kind = argc > 1 ? argv[1] : "illegal";
  int* device;
  CHECK_CUDA(cudaMalloc(&device, 4096));
  harmless<<<1, 1>>>(device);
  CHECK_CUDA(cudaDeviceSynchronize());

  cudaError_t expected = cudaErrorIllegalAddress;
  if (!strcmp(kind, "illegal")) {
    illegal<<<2, 64>>>(device);
  } else if (!strcmp(kind, "null")) {
    reads_null<<<1, 1>>>(nullptr, device);
  } else if (!strcmp(kind, "misaligned")) {
    misaligned<<<1, 1>>>(reinterpret_cast<char*>(device));
    expected = cudaErrorMisalignedAddress;
  } else if (!strcmp(kind, "trap")) {
    traps<<<1, 1>>>();
    expected = cudaErrorLaunchFailure;
  } else if (!strcmp(kind, "assert")) {
    asserts<<<1, 1>>>(argc);
    expected = cudaErrorAssert;
  } else {
    fprintf(stderr, "errors_sticky: unknown kind %s\n", kind);
    return 2;
  }
  printf("%s\n", kind);
  e2e::expect_error("the launch itself", cudaGetLastError(), cudaSuccess);
  e2e::expect_error("synchronisation", cudaDeviceSynchronize(), expected);
  e2e::expect_error("last error", cudaGetLastError(), expected);
  void* more = nullptr;
  e2e::expect_error("allocation afterwards", cudaMalloc(&more, 16), expected);
  e2e::expect_error("copy afterwards", cudaMemcpy(device, kind, 4, cudaMemcpyHostToDevice),
                    expected);
  harmless<<<1, 1>>>(device);
  e2e::expect_error("launch afterwards", cudaGetLastError(), expected);
  e2e::expect_error("it stays", cudaDeviceSynchronize(), expected);
  return e2e::finish();
}
