// SPDX-License-Identifier: Apache-2.0
// Errors that a program can recover from: each call fails with CUDA's documented code, and the
// device still works afterwards. Faults that poison the context are in errors_sticky.cu. Run by
// run_e2e.py. The codes are those of CUDA 13.0 on an H200. usage: errors_runtime
#include "e2e.h"

__global__ void store(int* out, int value) { *out = value; }

static bool device_works() {
  int *device, value = 0;
  CHECK_CUDA(cudaMalloc(&device, sizeof(int)));
  store<<<1, 1>>>(device, 4711);
  CHECK_CUDA(cudaMemcpy(&value, device, sizeof value, cudaMemcpyDeviceToHost));
  CHECK_CUDA(cudaFree(device));
  return value == 4711;
}

static void bad_launches(int* device) {
  store<<<1, 1025>>>(device, 1);
  e2e::expect_error("1025 threads", cudaGetLastError(), cudaErrorInvalidValue);
  store<<<1, dim3(1, 1, 65)>>>(device, 1);
  e2e::expect_error("block depth 65", cudaGetLastError(), cudaErrorInvalidValue);
  store<<<0, 32>>>(device, 1);
  e2e::expect_error("empty grid", cudaGetLastError(), cudaErrorInvalidValue);
  store<<<dim3(1, 65536), 1>>>(device, 1);
  e2e::expect_error("grid height 65536", cudaGetLastError(), cudaErrorInvalidValue);
  store<<<1, 32, 1 << 20>>>(device, 1);
  e2e::expect_error("1 MiB of shared memory", cudaGetLastError(), cudaErrorInvalidValue);
  int not_a_kernel = 0;
  void* arguments[] = {&device, &not_a_kernel};
  e2e::expect_error("launch of what is no kernel",
                    cudaLaunchKernel(&not_a_kernel, 1, 1, arguments, 0, nullptr),
                    cudaErrorInvalidResourceHandle);
  e2e::expect_error("peek keeps the error", cudaPeekAtLastError(), cudaErrorInvalidResourceHandle);
  e2e::expect_error("get takes the error", cudaGetLastError(), cudaErrorInvalidResourceHandle);
  e2e::expect_error("then it is gone", cudaGetLastError(), cudaSuccess);
}

static void bad_memory(int* device) {
  void* pointer = nullptr;
  int host = 0;
  e2e::expect_error("allocation of 1 EiB", cudaMalloc(&pointer, size_t(1) << 60),
                    cudaErrorMemoryAllocation);
  e2e::expect_error("null result", cudaMalloc(nullptr, 16), cudaErrorInvalidValue);
  e2e::expect_error("free of null", cudaFree(nullptr), cudaSuccess);
  e2e::expect_error("free of a host address", cudaFree(&host), cudaErrorInvalidValue);
  e2e::expect_error("free inside an allocation", cudaFree(device + 1), cudaErrorInvalidValue);
  CHECK_CUDA(cudaMalloc(&pointer, 100));
  CHECK_CUDA(cudaFree(pointer));
  e2e::expect_error("double free", cudaFree(pointer), cudaErrorInvalidValue);
  e2e::expect_error("free of pageable memory", cudaFreeHost(&host), cudaErrorInvalidValue);
  e2e::expect_error("unknown direction",
                    cudaMemcpy(device, &host, 4, static_cast<cudaMemcpyKind>(77)),
                    cudaErrorInvalidMemcpyDirection);
  e2e::expect_error("copy past the allocation",
                    cudaMemcpy(device, device + (1 << 20), 64 << 20, cudaMemcpyDeviceToDevice),
                    cudaErrorInvalidValue);
  e2e::expect_error("device copy into a host address",
                    cudaMemcpy(&host, device, 4, cudaMemcpyDeviceToDevice), cudaErrorInvalidValue);
  e2e::expect_error("memset of a host address", cudaMemset(&host, 0, 4), cudaErrorInvalidValue);
  cudaGetLastError();
}

static void bad_objects() {
  cudaEvent_t never, untimed;
  float milliseconds;
  CHECK_CUDA(cudaEventCreate(&never));
  CHECK_CUDA(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming));
  e2e::expect_error("time between events never recorded",
                    cudaEventElapsedTime(&milliseconds, never, never),
                    cudaErrorInvalidResourceHandle);
  CHECK_CUDA(cudaEventRecord(untimed));
  CHECK_CUDA(cudaEventRecord(never));
  CHECK_CUDA(cudaDeviceSynchronize());
  e2e::expect_error("time of an event without timing",
                    cudaEventElapsedTime(&milliseconds, untimed, never),
                    cudaErrorInvalidResourceHandle);
  e2e::expect_error("null event", cudaEventSynchronize(nullptr), cudaErrorInvalidResourceHandle);
  e2e::expect_error("unknown stream flags",
                    cudaStreamCreateWithFlags(reinterpret_cast<cudaStream_t*>(&never), 0xf0),
                    cudaErrorInvalidValue);
  e2e::expect_error("unknown event flags", cudaEventCreateWithFlags(&never, 0xf0),
                    cudaErrorInvalidValue);
  cudaGetLastError();
}

int main() {
  int* device;
  CHECK_CUDA(cudaMalloc(&device, 64 << 20));
  bad_launches(device);
  e2e::expect(device_works(), "the device works after bad launches");
  bad_memory(device);
  e2e::expect(device_works(), "the device works after bad memory calls");
  bad_objects();
  e2e::expect(device_works(), "the device works after bad handles");
  e2e::expect(
      strcmp(cudaGetErrorName(static_cast<cudaError_t>(700)), "cudaErrorIllegalAddress") == 0 &&
          strlen(cudaGetErrorString(static_cast<cudaError_t>(700))) > 0,
      "error names");
  return e2e::finish();
}
