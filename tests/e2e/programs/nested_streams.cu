// SPDX-License-Identifier: Apache-2.0
// Kernels that launch kernels, part two: the order of launches (the default stream of a block,
// streams and events that a kernel creates, tail launches), copies and fills, and errors. Run by
// run_e2e.py.
// usage: nested_streams
#include <vector>

#include "e2e.h"

__global__ void append(int* number, int digit) { *number = *number * 10 + digit; }

__global__ void in_order(int* numbers) {
  int* mine = numbers + blockIdx.x;
  for (int digit = 1; digit <= 5; digit++) append<<<1, 1>>>(mine, digit);
}

__global__ void tails(int* number) {
  append<<<1, 1, 0, cudaStreamTailLaunch>>>(number, 2);
  append<<<1, 1, 0, cudaStreamTailLaunch>>>(number, 3);
  append<<<1, 1>>>(number, 1);
}

__global__ void add_to(int* sum, const int* value) { *sum += *value; }

// The second stream waits for an event in the first.
__global__ void two_streams(int* values) {
  cudaStream_t first, second;
  cudaEvent_t come;
  cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking);
  cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking);
  cudaEventCreateWithFlags(&come, cudaEventDisableTiming);
  for (int digit = 1; digit <= 4; digit++) append<<<1, 1, 0, first>>>(values, digit);
  cudaEventRecord(come, first);
  cudaStreamWaitEvent(second, come, 0);
  add_to<<<1, 1, 0, second>>>(values + 1, values);
  cudaEventDestroy(come);
  cudaStreamDestroy(first);
  cudaStreamDestroy(second);
}

// The fill's value is 0, because an H200 with CUDA 13.0 fills with zeros whatever the value is
// (measured).
__global__ void copies(int* words) {
  for (int i = 0; i < 8; i++) words[i] = i < 4 ? 1 : 2;
  cudaMemcpyAsync(words + 4, words, 4 * sizeof(int), cudaMemcpyDeviceToDevice);
  cudaMemsetAsync(words, 0, 4 * sizeof(int));
}

__global__ void nothing() {}

__global__ void mistakes(int* seen) {
  nothing<<<1, 1>>>();
  seen[0] = cudaGetLastError();
  nothing<<<1, 1 << 20>>>();
  seen[1] = cudaPeekAtLastError() != cudaSuccess;
  seen[2] = cudaGetLastError() != cudaSuccess;
  seen[3] = cudaGetLastError();
  const char* text = cudaGetErrorString(cudaSuccess);
  seen[4] = text[0] == 'n' && text[1] == 'o';
  int device = -1;
  seen[5] = cudaGetDevice(&device);
  seen[6] = device;
}

__device__ int total;

__global__ void deep(int depth) {
  atomicAdd(&total, 1);
  if (depth > 0) deep<<<1, 1>>>(depth - 1);
}

__global__ void read_total(int* to) { *to = total; }

namespace {

template <typename T>
std::vector<T> read(const T* device, size_t count) {
  std::vector<T> host(count);
  CHECK_CUDA(cudaGetLastError());
  CHECK_CUDA(cudaDeviceSynchronize());
  CHECK_CUDA(cudaMemcpy(host.data(), device, count * sizeof(T), cudaMemcpyDeviceToHost));
  CHECK_CUDA(cudaMemset(const_cast<T*>(device), 0, count * sizeof(T)));
  return host;
}

}  // namespace

int main() {
  constexpr size_t kWords = 8;
  int* words = nullptr;
  CHECK_CUDA(cudaMalloc(&words, kWords * sizeof(int)));
  CHECK_CUDA(cudaMemset(words, 0, kWords * sizeof(int)));

  in_order<<<4, 1>>>(words);
  e2e::expect(read(words, 4) == std::vector<int>(4, 12345), "each block's launches are in order");
  tails<<<1, 1>>>(words);
  e2e::expect(read(words, 1)[0] == 123, "tails come last, in order");
  two_streams<<<1, 1>>>(words);
  const std::vector<int> streams = read(words, 2);
  e2e::expect(streams[0] == 1234 && streams[1] == 1234, "an event between streams of a kernel");
  copies<<<1, 1>>>(words);
  e2e::expect(read(words, 8) == std::vector<int>{0, 0, 0, 0, 1, 1, 1, 1}, "a copy, then a fill");

  mistakes<<<1, 1>>>(words);
  const std::vector<int> seen = read(words, 7);
  e2e::expect(seen[0] == 0, "no error");
  e2e::expect(seen[1] == 1 && seen[2] == 1 && seen[3] == 0, "a block too large, told once");
  e2e::expect(seen[4] == 1, "the text of an error");
  e2e::expect(seen[5] == 0 && seen[6] == 0, "the device");

  // The next kernel in the host's stream sees the results of the last kernel's children.
  deep<<<1, 1>>>(20);
  read_total<<<1, 1>>>(words);
  e2e::expect(read(words, 1)[0] == 21, "twenty kernels deep, and then the next");
  CHECK_CUDA(cudaFree(words));
  return e2e::finish();
}
