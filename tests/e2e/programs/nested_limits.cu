// SPDX-License-Identifier: Apache-2.0
// The limit of pending launches by kernels (cudaLimitDevRuntimePendingLaunchCount): as many as the
// limit are accepted, and the limit can be raised. Run by run_e2e.py.
// usage: nested_limits
#include <vector>

#include "e2e.h"

struct Outcome {
  int accepted;
  int error;
};

__device__ volatile int open = 0;

__global__ void until_open() {
  while (open == 0) {
  }
}
__global__ void count_one(int* count) { atomicAdd(count, 1); }

// Makes up to `most` launches, none of which can begin before all have been made.
__global__ void queue_up(Outcome* outcome, int* count, int most) {
  open = 0;
  __threadfence();
  until_open<<<1, 1>>>();
  int accepted = 0;
  cudaError_t error = cudaGetLastError();
  while (accepted < most && error == cudaSuccess) {
    count_one<<<1, 1>>>(count);
    error = cudaGetLastError();
    if (error == cudaSuccess) accepted++;
  }
  outcome->accepted = accepted;
  outcome->error = static_cast<int>(error);
  __threadfence();
  open = 1;
}

int main() {
  Outcome* outcome = nullptr;
  int* count = nullptr;
  CHECK_CUDA(cudaMalloc(&outcome, sizeof(Outcome)));
  CHECK_CUDA(cudaMalloc(&count, sizeof(int)));
  const auto limit = [] {
    size_t value = 0;
    CHECK_CUDA(cudaDeviceGetLimit(&value, cudaLimitDevRuntimePendingLaunchCount));
    return static_cast<int>(value);
  };
  const auto queue = [&](int most) {
    CHECK_CUDA(cudaMemset(count, 0, sizeof(int)));
    queue_up<<<1, 1>>>(outcome, count, most);
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaDeviceSynchronize());
    Outcome got{};
    int ran = 0;
    CHECK_CUDA(cudaMemcpy(&got, outcome, sizeof got, cudaMemcpyDeviceToHost));
    CHECK_CUDA(cudaMemcpy(&ran, count, sizeof ran, cudaMemcpyDeviceToHost));
    e2e::expect(ran == got.accepted, "what is accepted of %d launches runs", most);
    printf("# %d of %d: %s\n", got.accepted, most,
           cudaGetErrorName(static_cast<cudaError_t>(got.error)));
    return got;
  };
  e2e::expect(limit() == 2048, "2,048 launches to begin with");
  e2e::expect(queue(1000).accepted == 1000, "1,000 launches wait");
  queue(20000);
  CHECK_CUDA(cudaDeviceSetLimit(cudaLimitDevRuntimePendingLaunchCount, 8192));
  e2e::expect(limit() == 8192, "8,192 launches after asking for them");
  e2e::expect(queue(6000).accepted == 6000, "6,000 launches wait");
  queue(20000);
  CHECK_CUDA(cudaFree(outcome));
  CHECK_CUDA(cudaFree(count));
  return e2e::finish();
}
