// SPDX-License-Identifier: Apache-2.0
// Matrix product through shared-memory tiles, with sides that are not multiples of the tile. The
// elements are small integers, so every order of summation gives the same float, and the result is
// exact on every device. Run by run_e2e.py. usage: tiled_matmul [ROWS]
#include <vector>

#include "e2e.h"

constexpr int kTile = 16;

__global__ void multiply(const float* a, const float* b, float* c, int rows, int inner,
                         int columns) {
  __shared__ float tile_a[kTile][kTile];
  __shared__ float tile_b[kTile][kTile + 1];
  const int row = blockIdx.y * kTile + threadIdx.y;
  const int column = blockIdx.x * kTile + threadIdx.x;
  float sum = 0;
  for (int start = 0; start < inner; start += kTile) {
    const int ka = start + threadIdx.x, kb = start + threadIdx.y;
    tile_a[threadIdx.y][threadIdx.x] = row < rows && ka < inner ? a[row * inner + ka] : 0;
    tile_b[threadIdx.y][threadIdx.x] =
        kb < inner && column < columns ? b[kb * columns + column] : 0;
    __syncthreads();
    for (int k = 0; k < kTile; k++) sum += tile_a[threadIdx.y][k] * tile_b[k][threadIdx.x];
    __syncthreads();
  }
  if (row < rows && column < columns) c[row * columns + column] = sum;
}

int main(int argc, char** argv) {
  const int rows = static_cast<int>(e2e::argument(argc, argv, 1, 200));
  const int inner = rows * 2 / 3 + 5, columns = rows - rows / 5 + 1;
  std::vector<float> a(rows * inner), b(inner * columns), c(rows * columns), reference(c.size());
  e2e::Random random(42);
  for (float& x : a) x = static_cast<float>(random.below(17)) - 8;
  for (float& x : b) x = static_cast<float>(random.below(17)) - 8;
  for (int i = 0; i < rows; i++) {
    for (int k = 0; k < inner; k++) {
      for (int j = 0; j < columns; j++) {
        reference[i * columns + j] += a[i * inner + k] * b[k * columns + j];
      }
    }
  }

  float *da, *db, *dc;
  CHECK_CUDA(cudaMalloc(&da, a.size() * sizeof(float)));
  CHECK_CUDA(cudaMalloc(&db, b.size() * sizeof(float)));
  CHECK_CUDA(cudaMalloc(&dc, c.size() * sizeof(float)));
  CHECK_CUDA(cudaMemcpy(da, a.data(), a.size() * sizeof(float), cudaMemcpyDefault));
  CHECK_CUDA(cudaMemcpy(db, b.data(), b.size() * sizeof(float), cudaMemcpyDefault));
  const dim3 block(kTile, kTile),
      grid(e2e::blocks_for(columns, kTile), e2e::blocks_for(rows, kTile));
  multiply<<<grid, block>>>(da, db, dc, rows, inner, columns);
  CHECK_CUDA(cudaGetLastError());
  CHECK_CUDA(cudaMemcpy(c.data(), dc, c.size() * sizeof(float), cudaMemcpyDefault));
  e2e::expect(c == reference, "product %dx%dx%d, hash %016llx", rows, inner, columns,
              static_cast<unsigned long long>(e2e::hash(c.data(), c.size() * sizeof(float))));
  return e2e::finish();
}
