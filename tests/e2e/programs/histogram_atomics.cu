// SPDX-License-Identifier: Apache-2.0
// Histogram with shared and with global atomics, then every atomic operation under contention, with
// results that do not depend on the order. Run by run_e2e.py. usage: histogram_atomics [BYTES]
#include <vector>

#include "e2e.h"

constexpr int kBins = 256;

__global__ void histogram_shared(const unsigned char* data, size_t n, unsigned* bins) {
  __shared__ unsigned local[kBins];
  for (int i = threadIdx.x; i < kBins; i += blockDim.x) local[i] = 0;
  __syncthreads();
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < n;
       i += gridDim.x * blockDim.x) {
    atomicAdd(&local[data[i]], 1u);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < kBins; i += blockDim.x) {
    if (local[i]) atomicAdd(&bins[i], local[i]);
  }
}

__global__ void histogram_global(const unsigned char* data, size_t n, unsigned* bins) {
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < n;
       i += gridDim.x * blockDim.x) {
    atomicAdd(&bins[data[i]], 1u);
  }
}

struct Cells {
  int add;
  unsigned long long add64;
  float add_float;
  double add_double;
  int sub, least, greatest;
  unsigned bit_or, bit_and, bit_xor, increment, decrement;
  unsigned cas_count, exchange_sum;
  unsigned exchange, lock, guarded;
};

__global__ void all_atomics(Cells* cells) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  atomicAdd(&cells->add, static_cast<int>(i));
  atomicAdd(&cells->add64, (1ull << 33) + i);
  atomicAdd(&cells->add_float, 1.0f);  // exact below 2^24
  atomicAdd(&cells->add_double, 0.5);
  atomicSub(&cells->sub, 3);
  atomicMin(&cells->least, 1000 - static_cast<int>(i));
  atomicMax(&cells->greatest, static_cast<int>(i));
  atomicOr(&cells->bit_or, 1u << (i % 31));
  atomicAnd(&cells->bit_and, ~(1u << (i % 13)));
  atomicXor(&cells->bit_xor, i);
  atomicInc(&cells->increment, 99);
  atomicDec(&cells->decrement, 49);
  for (unsigned seen = cells->cas_count, assumed = ~seen; seen != assumed;) {
    assumed = seen;
    seen = atomicCAS(&cells->cas_count, assumed, assumed + 2);
  }
  // Every value is stored once and returned once, except for the last one, which remains.
  atomicAdd(&cells->exchange_sum, atomicExch(&cells->exchange, i));
  if (threadIdx.x == 0) {  // a spin lock between blocks
    while (atomicCAS(&cells->lock, 0u, 1u) != 0) {
    }
    __threadfence();
    *const_cast<volatile unsigned*>(&cells->guarded) += 1;
    __threadfence();
    atomicExch(&cells->lock, 0u);
  }
}

int main(int argc, char** argv) {
  const size_t n = e2e::argument(argc, argv, 1, 400009);
  std::vector<unsigned char> data(n);
  std::vector<unsigned> reference(kBins), got(kBins);
  e2e::Random random(3);
  for (unsigned char& x : data) {
    x = static_cast<unsigned char>(random.below(16) * random.below(17));
    reference[x]++;
  }
  unsigned char* device_data;
  unsigned* bins;
  CHECK_CUDA(cudaMalloc(&device_data, n));
  CHECK_CUDA(cudaMalloc(&bins, kBins * sizeof(unsigned)));
  CHECK_CUDA(cudaMemcpy(device_data, data.data(), n, cudaMemcpyHostToDevice));
  for (bool shared : {true, false}) {
    CHECK_CUDA(cudaMemset(bins, 0, kBins * sizeof(unsigned)));
    if (shared) {
      histogram_shared<<<16, 256>>>(device_data, n, bins);
    } else {
      histogram_global<<<16, 256>>>(device_data, n, bins);
    }
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaMemcpy(got.data(), bins, kBins * sizeof(unsigned), cudaMemcpyDeviceToHost));
    e2e::expect(got == reference, "histogram by %s atomics, hash %016llx",
                shared ? "shared" : "global",
                static_cast<unsigned long long>(e2e::hash(got.data(), kBins * sizeof(unsigned))));
  }

  constexpr unsigned kBlocks = 12, kThreads = 192, kAll = kBlocks * kThreads;
  Cells cells{}, *device_cells;
  cells.least = 1 << 30;
  cells.bit_and = ~0u;
  CHECK_CUDA(cudaMalloc(&device_cells, sizeof cells));
  CHECK_CUDA(cudaMemcpy(device_cells, &cells, sizeof cells, cudaMemcpyHostToDevice));
  all_atomics<<<kBlocks, kThreads>>>(device_cells);
  CHECK_CUDA(cudaGetLastError());
  CHECK_CUDA(cudaMemcpy(&cells, device_cells, sizeof cells, cudaMemcpyDeviceToHost));
  unsigned bit_xor = 0, sum = 0, bit_and = ~0u, down = 0;
  for (unsigned i = 0; i < kAll; i++) {
    bit_xor ^= i;
    sum += i;
    bit_and &= ~(1u << (i % 13));
    down = down == 0 || down > 49 ? 49 : down - 1;
  }
  e2e::expect(cells.add == static_cast<int>(sum), "add %d", cells.add);
  e2e::expect(cells.add64 == (1ull << 33) * kAll + sum, "add 64 bit %llu", cells.add64);
  e2e::expect(cells.add_float == kAll, "add float %.1f", cells.add_float);
  e2e::expect(cells.add_double == kAll * 0.5, "add double %.1f", cells.add_double);
  e2e::expect(cells.sub == -3 * static_cast<int>(kAll), "sub %d", cells.sub);
  e2e::expect(cells.least == 1001 - static_cast<int>(kAll), "min %d", cells.least);
  e2e::expect(cells.greatest == static_cast<int>(kAll) - 1, "max %d", cells.greatest);
  e2e::expect(cells.bit_or == 0x7fffffffu, "or %08x", cells.bit_or);
  e2e::expect(cells.bit_and == bit_and, "and %08x", cells.bit_and);
  e2e::expect(cells.bit_xor == bit_xor, "xor %08x", cells.bit_xor);
  e2e::expect(cells.increment == kAll % 100, "inc %u", cells.increment);
  e2e::expect(cells.decrement == down, "dec %u", cells.decrement);
  e2e::expect(cells.cas_count == 2 * kAll, "compare and swap %u", cells.cas_count);
  e2e::expect(cells.exchange_sum + cells.exchange == sum, "exchange keeps every value");
  e2e::expect(cells.guarded == kBlocks && cells.lock == 0, "spin lock guards %u increments",
              cells.guarded);
  return e2e::finish();
}
