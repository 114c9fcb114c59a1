// SPDX-License-Identifier: Apache-2.0
// Reductions by warp shuffles (down, xor, indexed, widths below 32), votes and matches, then across
// blocks by atomics. Integers only, so the results are exact. Run by run_e2e.py.
// usage: reduction_shuffle [ELEMENTS]
#include <algorithm>
#include <climits>
#include <vector>

#include "e2e.h"

constexpr unsigned kFull = 0xffffffffu;

struct Totals {
  long long sum;
  int least, greatest;
  unsigned bits;
};

__global__ void reduce(const int* data, size_t n, Totals* totals) {
  __shared__ long long partial[32];
  long long sum = 0;
  int least = INT_MAX, greatest = INT_MIN;
  unsigned bits = 0;
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < n;
       i += gridDim.x * blockDim.x) {
    sum += data[i];
    least = min(least, data[i]);
    greatest = max(greatest, data[i]);
    bits ^= data[i];
  }
  for (int offset = 16; offset > 0; offset /= 2) {
    sum += __shfl_down_sync(kFull, sum, offset);
    least = min(least, __shfl_xor_sync(kFull, least, offset));
    greatest = max(greatest, __shfl_xor_sync(kFull, greatest, offset));
  }
#if __CUDA_ARCH__ >= 800
  bits = __reduce_xor_sync(kFull, bits);
#else
  for (int offset = 16; offset > 0; offset /= 2) bits ^= __shfl_xor_sync(kFull, bits, offset);
#endif
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (lane == 0) {
    partial[warp] = sum;
    atomicMin(&totals->least, least);
    atomicMax(&totals->greatest, greatest);
    atomicXor(&totals->bits, bits);
  }
  __syncthreads();
  if (warp == 0) {
    sum = lane < blockDim.x / 32 ? partial[lane] : 0;
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_down_sync(kFull, sum, offset);
    if (lane == 0) {
      atomicAdd(reinterpret_cast<unsigned long long*>(&totals->sum),
                static_cast<unsigned long long>(sum));
    }
  }
}

// For one warp. Every lane writes the result of each operation.
constexpr int kOperations = 12;
__global__ void warp_operations(const int* input, int* output) {
  const int lane = threadIdx.x, value = input[lane];
  int* row = output + lane * kOperations;
  row[0] = __shfl_down_sync(kFull, value, 3, 8);
  row[1] = __shfl_up_sync(kFull, value, 5, 16);
  row[2] = __shfl_xor_sync(kFull, value, 9);
  row[3] = __shfl_sync(kFull, value, (lane * 7 + 3) % 64, 16);
  row[4] = static_cast<int>(__ballot_sync(kFull, value % 3 == 0));
  row[5] = __any_sync(kFull, value == input[31]);
  row[6] = __all_sync(kFull, value == input[31]);
  row[7] = static_cast<int>(__match_any_sync(kFull, value % 4));
  int same = -1;
  row[8] = static_cast<int>(__match_all_sync(kFull, value >= 0, &same));
  row[9] = same;
  row[10] = row[11] = 0;
  if (lane % 2) {  // only half of the warp takes part
    const unsigned odd = 0xaaaaaaaau;
    row[10] = __shfl_xor_sync(odd, value, 2);
    row[11] = __popc(__ballot_sync(odd, value > 50));
  }
}

static std::vector<int> warp_reference(const std::vector<int>& v) {
  std::vector<int> rows(32 * kOperations);
  unsigned thirds = 0, classes[4] = {0, 0, 0, 0};
  int odd_large = 0, any = 0, all = 1;
  for (int lane = 0; lane < 32; lane++) {
    if (v[lane] % 3 == 0) thirds |= 1u << lane;
    classes[v[lane] % 4] |= 1u << lane;
    odd_large += lane % 2 && v[lane] > 50;
    any |= v[lane] == v[31];
    all &= v[lane] == v[31];
  }
  for (int lane = 0; lane < 32; lane++) {
    int* row = rows.data() + lane * kOperations;
    row[0] = lane % 8 + 3 < 8 ? v[lane + 3] : v[lane];
    row[1] = lane % 16 >= 5 ? v[lane - 5] : v[lane];
    row[2] = v[lane ^ 9];
    row[3] = v[lane / 16 * 16 + (lane * 7 + 3) % 64 % 16];
    row[4] = static_cast<int>(thirds);
    row[5] = any;
    row[6] = all;
    row[7] = static_cast<int>(classes[v[lane] % 4]);
    row[8] = static_cast<int>(kFull);
    row[9] = 1;
    if (lane % 2) {
      row[10] = v[lane ^ 2];
      row[11] = odd_large;
    }
  }
  return rows;
}

int main(int argc, char** argv) {
  const size_t n = e2e::argument(argc, argv, 1, 300007);
  std::vector<int> data(n);
  e2e::Random random(7);
  Totals expected{0, INT_MAX, INT_MIN, 0}, totals = expected;
  for (int& x : data) {
    x = static_cast<int>(random.next());
    expected.sum += x;
    expected.least = std::min(expected.least, x);
    expected.greatest = std::max(expected.greatest, x);
    expected.bits ^= static_cast<unsigned>(x);
  }
  int* device_data;
  Totals* device_totals;
  CHECK_CUDA(cudaMalloc(&device_data, n * sizeof(int)));
  CHECK_CUDA(cudaMalloc(&device_totals, sizeof(Totals)));
  CHECK_CUDA(cudaMemcpy(device_data, data.data(), n * sizeof(int), cudaMemcpyHostToDevice));
  for (unsigned block : {64u, 256u, 1024u}) {
    Totals fresh{0, INT_MAX, INT_MIN, 0};
    CHECK_CUDA(cudaMemcpy(device_totals, &fresh, sizeof fresh, cudaMemcpyHostToDevice));
    reduce<<<20, block>>>(device_data, n, device_totals);
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaMemcpy(&totals, device_totals, sizeof totals, cudaMemcpyDeviceToHost));
    e2e::expect(totals.sum == expected.sum && totals.least == expected.least &&
                    totals.greatest == expected.greatest && totals.bits == expected.bits,
                "block %u: sum %lld min %d max %d xor %08x", block, totals.sum, totals.least,
                totals.greatest, totals.bits);
  }

  std::vector<int> lanes(32), got(32 * kOperations);
  for (int& x : lanes) x = static_cast<int>(random.below(100));
  int *device_lanes, *device_rows;
  CHECK_CUDA(cudaMalloc(&device_lanes, 32 * sizeof(int)));
  CHECK_CUDA(cudaMalloc(&device_rows, got.size() * sizeof(int)));
  CHECK_CUDA(cudaMemcpy(device_lanes, lanes.data(), 32 * sizeof(int), cudaMemcpyHostToDevice));
  warp_operations<<<1, 32>>>(device_lanes, device_rows);
  CHECK_CUDA(cudaMemcpy(got.data(), device_rows, got.size() * sizeof(int), cudaMemcpyDeviceToHost));
  const std::vector<int> reference = warp_reference(lanes);
  for (int op = 0; op < kOperations; op++) {
    int wrong = 0;
    for (int lane = 0; lane < 32; lane++) {
      wrong += got[lane * kOperations + op] != reference[lane * kOperations + op];
    }
    e2e::expect(wrong == 0, "warp operation %d: %d lanes wrong", op, wrong);
  }
  return e2e::finish();
}
