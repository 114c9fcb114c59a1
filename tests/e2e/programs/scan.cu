// SPDX-License-Identifier: Apache-2.0
// Exclusive prefix sum over many blocks: warp scans by shuffles, block scans through shared memory,
// block sums scanned recursively. Exact (unsigned integers). Run by run_e2e.py. usage: scan
// [ELEMENTS]
#include <vector>

#include "e2e.h"

constexpr unsigned kBlock = 512;

__device__ unsigned warp_inclusive(unsigned value) {
  for (unsigned offset = 1; offset < 32; offset *= 2) {
    const unsigned left = __shfl_up_sync(0xffffffffu, value, offset);
    if (threadIdx.x % 32 >= offset) value += left;
  }
  return value;
}

__global__ void scan_blocks(const unsigned* in, unsigned* out, unsigned* sums, size_t n) {
  __shared__ unsigned warp_sums[kBlock / 32];
  const size_t i = blockIdx.x * size_t(kBlock) + threadIdx.x;
  const unsigned mine = i < n ? in[i] : 0;
  unsigned inclusive = warp_inclusive(mine);
  if (threadIdx.x % 32 == 31) warp_sums[threadIdx.x / 32] = inclusive;
  __syncthreads();
  if (threadIdx.x < 32) {
    const unsigned sum = threadIdx.x < kBlock / 32 ? warp_sums[threadIdx.x] : 0;
    const unsigned scanned = warp_inclusive(sum);
    if (threadIdx.x < kBlock / 32) warp_sums[threadIdx.x] = scanned - sum;
  }
  __syncthreads();
  inclusive += warp_sums[threadIdx.x / 32];
  if (i < n) out[i] = inclusive - mine;
  if (threadIdx.x == kBlock - 1) sums[blockIdx.x] = inclusive;
}

__global__ void add_offsets(unsigned* out, const unsigned* offsets, size_t n) {
  const size_t i = blockIdx.x * size_t(kBlock) + threadIdx.x;
  if (i < n) out[i] += offsets[blockIdx.x];
}

static void scan(const unsigned* in, unsigned* out, size_t n) {
  const unsigned blocks = e2e::blocks_for(n, kBlock);
  unsigned *sums, *offsets;
  CHECK_CUDA(cudaMalloc(&sums, blocks * sizeof(unsigned)));
  CHECK_CUDA(cudaMalloc(&offsets, blocks * sizeof(unsigned)));
  scan_blocks<<<blocks, kBlock>>>(in, out, sums, n);
  CHECK_CUDA(cudaGetLastError());
  if (blocks > 1) {
    scan(sums, offsets, blocks);
    add_offsets<<<blocks, kBlock>>>(out, offsets, n);
    CHECK_CUDA(cudaGetLastError());
  }
  CHECK_CUDA(cudaFree(sums));
  CHECK_CUDA(cudaFree(offsets));
}

int main(int argc, char** argv) {
  const size_t most = e2e::argument(argc, argv, 1, 600001);
  for (size_t n : {size_t(1), size_t(511), size_t(512), size_t(513), most}) {
    std::vector<unsigned> data(n), got(n);
    e2e::Random random(n);
    for (unsigned& x : data) x = random.below(1000);
    unsigned *in, *out;
    CHECK_CUDA(cudaMalloc(&in, n * sizeof(unsigned)));
    CHECK_CUDA(cudaMalloc(&out, n * sizeof(unsigned)));
    CHECK_CUDA(cudaMemcpy(in, data.data(), n * sizeof(unsigned), cudaMemcpyHostToDevice));
    scan(in, out, n);
    CHECK_CUDA(cudaMemcpy(got.data(), out, n * sizeof(unsigned), cudaMemcpyDeviceToHost));
    unsigned running = 0;
    size_t wrong = 0;
    for (size_t i = 0; i < n; running += data[i++]) wrong += got[i] != running;
    e2e::expect(wrong == 0, "n=%zu: %zu wrong, total %u", n, wrong, got[n - 1] + data[n - 1]);
    CHECK_CUDA(cudaFree(in));
    CHECK_CUDA(cudaFree(out));
  }
  return e2e::finish();
}
