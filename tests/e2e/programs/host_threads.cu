// SPDX-License-Identifier: Apache-2.0
// Several host threads, each with streams of its own and its default stream, allocate, copy, launch
// and check at once. Built twice: with the legacy and with the per-thread default stream. Run by
// run_e2e.py. usage: host_threads [THREADS [ROUNDS]]
#include <atomic>
#include <thread>
#include <vector>

#include "e2e.h"

constexpr int kItems = 3000;

__global__ void mix(unsigned* data, int n, unsigned key) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) data[i] = (data[i] ^ key) * 2654435761u + i;
}

// Runs on a thread of its own. Returns how many words are wrong.
static size_t work(unsigned id, int rounds) {
  size_t wrong = 0;
  cudaStream_t own;
  CHECK_CUDA(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking));
  cudaEvent_t event;
  CHECK_CUDA(cudaEventCreate(&event));
  for (int round = 0; round < rounds; round++) {
    const cudaStream_t stream = round % 3 == 0 ? nullptr : own;
    std::vector<unsigned> expected(kItems), got(kItems);
    for (int i = 0; i < kItems; i++) expected[i] = id * 1000003u + round * 7919u + i;
    unsigned* device;
    CHECK_CUDA(cudaMalloc(&device, kItems * sizeof(unsigned)));
    CHECK_CUDA(cudaMemcpyAsync(device, expected.data(), kItems * sizeof(unsigned),
                               cudaMemcpyHostToDevice, stream));
    for (unsigned key = 1; key <= 4; key++) {
      mix<<<e2e::blocks_for(kItems, 128), 128, 0, stream>>>(device, kItems, key * id);
      CHECK_CUDA(cudaGetLastError());
      for (int i = 0; i < kItems; i++) expected[i] = (expected[i] ^ (key * id)) * 2654435761u + i;
    }
    CHECK_CUDA(cudaEventRecord(event, stream));
    if (round % 2) CHECK_CUDA(cudaEventSynchronize(event));
    CHECK_CUDA(cudaMemcpyAsync(got.data(), device, kItems * sizeof(unsigned),
                               cudaMemcpyDeviceToHost, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    for (int i = 0; i < kItems; i++) wrong += got[i] != expected[i];
    CHECK_CUDA(cudaFree(device));
  }
  CHECK_CUDA(cudaEventDestroy(event));
  CHECK_CUDA(cudaStreamDestroy(own));
  return wrong;
}

int main(int argc, char** argv) {
  const unsigned threads = static_cast<unsigned>(e2e::argument(argc, argv, 1, 6));
  const int rounds = static_cast<int>(e2e::argument(argc, argv, 2, 9));
  std::atomic<size_t> wrong{0};
  std::vector<std::thread> workers;
  for (unsigned id = 1; id <= threads; id++) {
    workers.emplace_back([&wrong, id, rounds] { wrong += work(id, rounds); });
  }
  for (std::thread& worker : workers) worker.join();
  e2e::expect(wrong == 0, "%u host threads, %d rounds: %zu wrong", threads, rounds, wrong.load());

  // The last error is that of the calling thread.
  cudaError_t elsewhere = cudaErrorUnknown;
  cudaMalloc(nullptr, 1);
  std::thread([&elsewhere] { elsewhere = cudaGetLastError(); }).join();
  e2e::expect_error("another thread's last error", elsewhere, cudaSuccess);
  e2e::expect_error("this thread's last error", cudaGetLastError(), cudaErrorInvalidValue);
  return e2e::finish();
}
