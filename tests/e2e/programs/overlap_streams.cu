// SPDX-License-Identifier: Apache-2.0
// Copies and kernels of several streams overlap; events order them across streams and measure them.
// Run by run_e2e.py. usage: overlap_streams [ELEMENTS_PER_CHUNK]
#include <vector>

#include "e2e.h"

constexpr int kStreams = 4;
constexpr int kChunks = 12;

__global__ void transform(const int* in, int* out, size_t n, int factor) {
  const size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
  if (i >= n) return;
  int x = in[i];
  for (int round = 0; round < 16; round++) x = x * factor + round;
  out[i] = x;
}

__global__ void total(const int* values, size_t n, unsigned long long* sum) {
  unsigned long long mine = 0;
  for (size_t i = threadIdx.x; i < n; i += blockDim.x) mine += static_cast<unsigned>(values[i]);
  atomicAdd(sum, mine);
}

struct HostNote {
  int calls = 0;
};

static void CUDART_CB note(void* data) { static_cast<HostNote*>(data)->calls++; }

int main(int argc, char** argv) {
  const size_t n = e2e::argument(argc, argv, 1, 20000), all = n * kChunks;
  int *host_in, *host_out, *device_in, *device_out;
  CHECK_CUDA(cudaMallocHost(&host_in, all * sizeof(int)));
  CHECK_CUDA(cudaMallocHost(&host_out, all * sizeof(int)));
  CHECK_CUDA(cudaMalloc(&device_in, all * sizeof(int)));
  CHECK_CUDA(cudaMalloc(&device_out, all * sizeof(int)));
  e2e::Random random(11);
  for (size_t i = 0; i < all; i++) host_in[i] = static_cast<int>(random.next());

  cudaStream_t streams[kStreams];
  cudaEvent_t begin, end, done[kStreams];
  int least, greatest;
  CHECK_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  e2e::expect(greatest <= least, "stream priority range");
  for (int s = 0; s < kStreams; s++) {
    CHECK_CUDA(
        cudaStreamCreateWithPriority(&streams[s], cudaStreamNonBlocking, s % 2 ? greatest : least));
    CHECK_CUDA(cudaEventCreateWithFlags(&done[s], cudaEventDisableTiming));
  }
  CHECK_CUDA(cudaEventCreate(&begin));
  CHECK_CUDA(cudaEventCreate(&end));

  // Chunks go round robin over the streams; the last stream waits for the others by events.
  CHECK_CUDA(cudaEventRecord(begin, streams[0]));
  for (int s = 1; s < kStreams; s++) CHECK_CUDA(cudaStreamWaitEvent(streams[s], begin, 0));
  for (int chunk = 0; chunk < kChunks; chunk++) {
    const size_t at = chunk * n;
    cudaStream_t stream = streams[chunk % kStreams];
    CHECK_CUDA(cudaMemcpyAsync(device_in + at, host_in + at, n * sizeof(int),
                               cudaMemcpyHostToDevice, stream));
    transform<<<e2e::blocks_for(n, 128), 128, 0, stream>>>(device_in + at, device_out + at, n,
                                                           chunk + 3);
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaMemcpyAsync(host_out + at, device_out + at, n * sizeof(int),
                               cudaMemcpyDeviceToHost, stream));
  }
  unsigned long long *device_sum, sum = 0;
  CHECK_CUDA(cudaMalloc(&device_sum, sizeof sum));
  const int last = kStreams - 1;
  for (int s = 0; s < last; s++) {
    CHECK_CUDA(cudaEventRecord(done[s], streams[s]));
    CHECK_CUDA(cudaStreamWaitEvent(streams[last], done[s], 0));
  }
  CHECK_CUDA(cudaMemsetAsync(device_sum, 0, sizeof sum, streams[last]));
  total<<<1, 256, 0, streams[last]>>>(device_out, all, device_sum);
  CHECK_CUDA(cudaMemcpyAsync(&sum, device_sum, sizeof sum, cudaMemcpyDeviceToHost, streams[last]));
  HostNote notes;
  CHECK_CUDA(cudaLaunchHostFunc(streams[last], note, &notes));
  CHECK_CUDA(cudaEventRecord(end, streams[last]));
  CHECK_CUDA(cudaEventSynchronize(end));
  e2e::expect_error("query of a finished event", cudaEventQuery(end), cudaSuccess);
  e2e::expect_error("query of a drained stream", cudaStreamQuery(streams[last]), cudaSuccess);
  e2e::expect(notes.calls == 1, "host function ran %d time", notes.calls);

  size_t wrong = 0;
  unsigned long long expected_sum = 0;
  for (size_t i = 0; i < all; i++) {
    unsigned x = static_cast<unsigned>(host_in[i]);
    const unsigned factor = static_cast<unsigned>(i / n) + 3;
    for (unsigned round = 0; round < 16; round++) x = x * factor + round;
    wrong += static_cast<unsigned>(host_out[i]) != x;
    expected_sum += x;
  }
  e2e::expect(wrong == 0, "%d chunks over %d streams: %zu wrong", kChunks, kStreams, wrong);
  e2e::expect(sum == expected_sum, "sum after all streams %llu", sum);
  float milliseconds = -1;
  CHECK_CUDA(cudaEventElapsedTime(&milliseconds, begin, end));
  e2e::expect(milliseconds > 0 && milliseconds < 60e3, "elapsed time is plausible");
  printf("# elapsed %.3f ms\n", milliseconds);

  // The legacy default stream waits for blocking streams and they wait for it.
  cudaStream_t blocking;
  CHECK_CUDA(cudaStreamCreate(&blocking));
  transform<<<e2e::blocks_for(n, 128), 128, 0, blocking>>>(device_in, device_out, n, 3);
  transform<<<e2e::blocks_for(n, 128), 128>>>(device_out, device_in, n, 5);
  transform<<<e2e::blocks_for(n, 128), 128, 0, blocking>>>(device_in, device_out, n, 7);
  std::vector<int> got(n);
  CHECK_CUDA(cudaMemcpy(got.data(), device_out, n * sizeof(int), cudaMemcpyDeviceToHost));
  wrong = 0;
  for (size_t i = 0; i < n; i++) {
    unsigned x = static_cast<unsigned>(host_in[i]);
    for (unsigned factor : {3u, 5u, 7u}) {
      for (unsigned round = 0; round < 16; round++) x = x * factor + round;
    }
    wrong += static_cast<unsigned>(got[i]) != x;
  }
  e2e::expect(wrong == 0, "legacy default stream orders blocking streams: %zu wrong", wrong);

  for (int s = 0; s < kStreams; s++) {
    CHECK_CUDA(cudaStreamDestroy(streams[s]));
    CHECK_CUDA(cudaEventDestroy(done[s]));
  }
  CHECK_CUDA(cudaStreamDestroy(blocking));
  CHECK_CUDA(cudaEventDestroy(begin));
  CHECK_CUDA(cudaEventDestroy(end));
  CHECK_CUDA(cudaFreeHost(host_in));
  CHECK_CUDA(cudaFreeHost(host_out));
  return e2e::finish();
}
