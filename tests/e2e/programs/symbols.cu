// SPDX-License-Identifier: Apache-2.0
// __device__ and __constant__ variables: initial values, copies to and from symbols (offsets too),
// their addresses and sizes, pointers between globals. Run by run_e2e.py. usage: symbols
#include <vector>

#include "e2e.h"

struct Settings {
  int scale;
  float offset;
  long long wide;
};

__constant__ int table[64] = {3, 1, 4, 1, 5, 9, 2, 6};
__constant__ Settings settings = {7, 0.5f, 1ll << 40};
__device__ int counter = 100;
__device__ double grid[8][4];
__device__ short packed[5] = {-1, 2, -3, 4, -5};
__device__ int target[4] = {10, 20, 30, 40};
__device__ int* pointer_to_target = &target[2];
static __device__ unsigned char internal_bytes[3] = {250, 251, 252};

struct Seen {
  int table_sum, scale, counter_before, packed_sum, through_pointer, internal_sum;
  float offset;
  long long wide;
};

__global__ void look(Seen* seen) {
  seen->table_sum = 0;
  for (int i = 0; i < 64; i++) seen->table_sum += table[i] * (i + 1);
  seen->scale = settings.scale;
  seen->offset = settings.offset;
  seen->wide = settings.wide;
  seen->counter_before = atomicAdd(&counter, 11);
  seen->packed_sum = 0;
  for (short p : packed) seen->packed_sum = seen->packed_sum * 10 + p;
  seen->through_pointer = *pointer_to_target;
  seen->internal_sum = internal_bytes[0] + internal_bytes[1] + internal_bytes[2];
  for (int i = 0; i < 8; i++) {
    for (int j = 0; j < 4; j++) grid[i][j] += i * 10 + j;
  }
}

static Seen run(Seen* device_seen) {
  Seen seen;
  look<<<1, 1>>>(device_seen);
  CHECK_CUDA(cudaGetLastError());
  CHECK_CUDA(cudaMemcpy(&seen, device_seen, sizeof seen, cudaMemcpyDeviceToHost));
  return seen;
}

int main() {
  Seen* device_seen;
  CHECK_CUDA(cudaMalloc(&device_seen, sizeof(Seen)));
  Seen seen = run(device_seen);
  e2e::expect(seen.table_sum == 3 + 2 + 12 + 4 + 25 + 54 + 14 + 48, "constant table %d",
              seen.table_sum);
  e2e::expect(seen.scale == 7 && seen.offset == 0.5f && seen.wide == 1ll << 40, "constant struct");
  e2e::expect(seen.counter_before == 100, "device variable starts at %d", seen.counter_before);
  e2e::expect(seen.packed_sum == -1 * 10000 + 2 * 1000 - 3 * 100 + 4 * 10 - 5, "packed %d",
              seen.packed_sum);
  e2e::expect(seen.through_pointer == 30, "initialised pointer %d", seen.through_pointer);
  e2e::expect(seen.internal_sum == 753, "internal bytes %d", seen.internal_sum);

  const int ones[4] = {100, 200, 300, 400};
  const Settings changed = {9, 2.25f, -5};
  CHECK_CUDA(cudaMemcpyToSymbol(table, ones, sizeof ones, 8 * sizeof(int)));
  CHECK_CUDA(cudaMemcpyToSymbol(settings, &changed, sizeof changed));
  int* address;
  size_t bytes;
  CHECK_CUDA(cudaGetSymbolAddress(reinterpret_cast<void**>(&address), target));
  CHECK_CUDA(cudaGetSymbolSize(&bytes, target));
  e2e::expect(bytes == sizeof target, "symbol size %zu", bytes);
  const int replaced = -77;
  CHECK_CUDA(cudaMemcpy(address + 2, &replaced, sizeof replaced, cudaMemcpyHostToDevice));
  CHECK_CUDA(cudaMemcpyToSymbolAsync(packed, "\1\0", 2, 4 * sizeof(short)));
  CHECK_CUDA(cudaDeviceSynchronize());
  seen = run(device_seen);
  e2e::expect(seen.table_sum == 162 + 900 + 2000 + 3300 + 4800, "changed constant table %d",
              seen.table_sum);
  e2e::expect(seen.scale == 9 && seen.offset == 2.25f && seen.wide == -5,
              "changed constant struct");
  e2e::expect(seen.counter_before == 111, "device variable kept %d", seen.counter_before);
  e2e::expect(seen.packed_sum == -1 * 10000 + 2 * 1000 - 3 * 100 + 4 * 10 + 1, "changed packed %d",
              seen.packed_sum);
  e2e::expect(seen.through_pointer == -77, "changed target %d", seen.through_pointer);

  double row[4];
  CHECK_CUDA(cudaMemcpyFromSymbol(row, grid, sizeof row, 5 * sizeof row));
  e2e::expect(row[0] == 100 && row[3] == 106, "grid row %.0f..%.0f", row[0], row[3]);
  CHECK_CUDA(cudaGetSymbolSize(&bytes, grid));
  e2e::expect(bytes == 8 * 4 * sizeof(double), "grid size %zu", bytes);
  int counter_now = 0;
  CHECK_CUDA(cudaMemcpyFromSymbol(&counter_now, counter, sizeof counter_now));
  e2e::expect(counter_now == 122, "counter ends at %d", counter_now);
  e2e::expect_error("copy past the end of a symbol",
                    cudaMemcpyToSymbol(target, ones, sizeof ones, sizeof(int)),
                    cudaErrorInvalidValue);
  e2e::expect_error("address of what is no symbol",
                    cudaGetSymbolAddress(reinterpret_cast<void**>(&address), &seen),
                    cudaErrorInvalidSymbol);
  cudaGetLastError();
  return e2e::finish();
}
