// SPDX-License-Identifier: Apache-2.0
// Pi by Monte Carlo with cuRAND's device API (header only) and three generators. The integer
// sequences are computed again on the host by the same header, so they must agree to the bit. Run
// by run_e2e.py. usage: monte_carlo_curand [POINTS_PER_THREAD]
#define QUALIFIERS static __forceinline__ __host__ __device__
#include <curand_kernel.h>

#include <cmath>
#include <vector>

#include "e2e.h"

constexpr int kThreads = 256;
constexpr unsigned long long kSeed = 20261121;

// Runs on host and device. `mix` combines all 32-bit outputs, so that one wrong bit is noticed.
template <typename State>
__host__ __device__ void sample(int thread, int points, unsigned* inside, unsigned* mix) {
  State state;
  curand_init(kSeed, thread, 0, &state);
  unsigned hits = 0, fold = 0;
  for (int i = 0; i < points; i++) {
    const unsigned x = curand(&state), y = curand(&state);
    const unsigned long long dx = x >> 1, dy = y >> 1;
    hits += dx * dx + dy * dy < (1ull << 62);
    fold = (fold << 5 | fold >> 27) ^ x ^ (y * 3u);
  }
  *inside = hits;
  *mix = fold;
}

template <typename State>
__global__ void sample_kernel(int points, unsigned* inside, unsigned* mix) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  sample<State>(i, points, inside + i, mix + i);
}

__global__ void normals(float* sums, float* squares, int pairs) {
  curandStatePhilox4_32_10_t state;
  curand_init(kSeed, threadIdx.x, 0, &state);
  float sum = 0, square = 0;
  for (int i = 0; i < pairs; i++) {
    const float2 z = curand_normal2(&state);
    sum += z.x + z.y;
    square += z.x * z.x + z.y * z.y;
  }
  sums[threadIdx.x] = sum;
  squares[threadIdx.x] = square;
}

template <typename State>
static void run(const char* name, int points) {
  unsigned *inside, *mix;
  CHECK_CUDA(cudaMalloc(&inside, kThreads * sizeof(unsigned)));
  CHECK_CUDA(cudaMalloc(&mix, kThreads * sizeof(unsigned)));
  sample_kernel<State><<<kThreads / 64, 64>>>(points, inside, mix);
  CHECK_CUDA(cudaGetLastError());
  std::vector<unsigned> got_inside(kThreads), got_mix(kThreads);
  CHECK_CUDA(cudaMemcpy(got_inside.data(), inside, kThreads * sizeof(unsigned), cudaMemcpyDefault));
  CHECK_CUDA(cudaMemcpy(got_mix.data(), mix, kThreads * sizeof(unsigned), cudaMemcpyDefault));
  int wrong = 0;
  unsigned long long total = 0;
  for (int i = 0; i < kThreads; i++) {
    unsigned hits, fold;
    sample<State>(i, points, &hits, &fold);
    wrong += hits != got_inside[i] || fold != got_mix[i];
    total += got_inside[i];
  }
  const double pi = 4.0 * static_cast<double>(total) / (double(kThreads) * points);
  e2e::expect(wrong == 0 && std::fabs(pi - M_PI) < 0.1, "%s: %d threads wrong, pi about %.6f", name,
              wrong, pi);
  CHECK_CUDA(cudaFree(inside));
  CHECK_CUDA(cudaFree(mix));
}

int main(int argc, char** argv) {
  const int points = static_cast<int>(e2e::argument(argc, argv, 1, 200));
  run<curandStateXORWOW_t>("XORWOW", points);
  run<curandStatePhilox4_32_10_t>("Philox4x32-10", points);
  run<curandStateMRG32k3a_t>("MRG32k3a", points);

  float *sums, *squares;
  const int pairs = points / 2 + 1;
  CHECK_CUDA(cudaMalloc(&sums, kThreads * sizeof(float)));
  CHECK_CUDA(cudaMalloc(&squares, kThreads * sizeof(float)));
  normals<<<1, kThreads>>>(sums, squares, pairs);
  CHECK_CUDA(cudaGetLastError());
  std::vector<float> got_sums(kThreads), got_squares(kThreads);
  CHECK_CUDA(cudaMemcpy(got_sums.data(), sums, kThreads * sizeof(float), cudaMemcpyDefault));
  CHECK_CUDA(cudaMemcpy(got_squares.data(), squares, kThreads * sizeof(float), cudaMemcpyDefault));
  double sum = 0, square = 0;
  for (int i = 0; i < kThreads; i++) sum += got_sums[i], square += got_squares[i];
  const double count = 2.0 * kThreads * pairs;
  const double mean = sum / count, deviation = std::sqrt(square / count - mean * mean);
  e2e::expect(std::fabs(mean) < 0.03 && std::fabs(deviation - 1) < 0.03,
              "normal numbers have mean 0 and deviation 1");
  return e2e::finish();
}
