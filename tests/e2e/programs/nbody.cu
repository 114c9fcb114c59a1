// SPDX-License-Identifier: Apache-2.0
// All-pairs n-body with shared-memory tiles: the program of the demo and the bench. Run by
// run_e2e.py, demo.py and smoke.py. The first step is checked against a CPU reference in double.
// The checksum is printed with few digits, because the bits of the hardware's reciprocal square
// root are not specified; the hash of all bits is printed in a "# " line. usage: nbody [BODIES
// [STEPS]]
#include <chrono>
#include <cmath>
#include <vector>

#include "e2e.h"
#include "nbody_step.h"

constexpr float kTimeStep = 1e-3f;
// How many bodies are checked against the CPU. The reference takes quadratic time, and a sample
// suffices to find systematic errors.
constexpr int kCheckedBodies = 64;

__global__ void step(const float4* position, float4* velocity, float4* moved, int n, float dt) {
  nbody::step(position, velocity, moved, n, dt);
}

// The largest distance between the device's first step and the same step in double.
static double first_step_error(const std::vector<float4>& start, const std::vector<float4>& moved) {
  double worst = 0;
  const size_t n = start.size(), stride = n / kCheckedBodies + 1;
  for (size_t i = 0; i < n; i += stride) {
    double a[3] = {0, 0, 0};
    for (size_t j = 0; j < n; j++) {
      const double d[3] = {double(start[j].x) - start[i].x, double(start[j].y) - start[i].y,
                           double(start[j].z) - start[i].z};
      const double r2 = d[0] * d[0] + d[1] * d[1] + d[2] * d[2] + nbody::kSoftening;
      for (int k = 0; k < 3; k++) a[k] += d[k] * start[j].w / (r2 * std::sqrt(r2));
    }
    const double dt2 = double(kTimeStep) * kTimeStep;
    worst = std::fmax(worst, std::fabs(start[i].x + a[0] * dt2 - moved[i].x));
    worst = std::fmax(worst, std::fabs(start[i].y + a[1] * dt2 - moved[i].y));
    worst = std::fmax(worst, std::fabs(start[i].z + a[2] * dt2 - moved[i].z));
  }
  return worst;
}

int main(int argc, char** argv) {
  const int n = static_cast<int>(e2e::argument(argc, argv, 1, 1000));
  const int steps = static_cast<int>(e2e::argument(argc, argv, 2, 8));
  std::vector<float4> start(n), now(n);
  e2e::Random random(1);
  for (float4& body : start) {
    const float x = random.unit(), y = random.unit(), z = random.unit();
    body = make_float4(x, y, z, 1.0f / static_cast<float>(n));
  }
  const size_t bytes = n * sizeof(float4);
  float4 *position, *velocity, *moved;
  CHECK_CUDA(cudaMalloc(&position, bytes));
  CHECK_CUDA(cudaMalloc(&velocity, bytes));
  CHECK_CUDA(cudaMalloc(&moved, bytes));
  CHECK_CUDA(cudaMemset(velocity, 0, bytes));
  CHECK_CUDA(cudaMemcpy(position, start.data(), bytes, cudaMemcpyHostToDevice));
  const unsigned grid = e2e::blocks_for(n, nbody::kBlock);

  step<<<grid, nbody::kBlock>>>(position, velocity, moved, n, kTimeStep);
  CHECK_CUDA(cudaGetLastError());
  CHECK_CUDA(cudaMemcpy(now.data(), moved, bytes, cudaMemcpyDeviceToHost));
  e2e::expect(first_step_error(start, now) < 1e-6, "first step agrees with the CPU");
  std::swap(position, moved);

  const auto before = std::chrono::steady_clock::now();
  for (int i = 1; i < steps; i++) {
    step<<<grid, nbody::kBlock>>>(position, velocity, moved, n, kTimeStep);
    std::swap(position, moved);
  }
  CHECK_CUDA(cudaDeviceSynchronize());
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - before;
  CHECK_CUDA(cudaMemcpy(now.data(), position, bytes, cudaMemcpyDeviceToHost));
  double checksum = 0;
  for (const float4& body : now) checksum += double(body.x) + body.y + body.z;
  printf("nbody bodies=%d steps=%d checksum=%.3f\n", n, steps, checksum);
  printf("# nbody ms=%.2f bits=%016llx\n", elapsed.count() * 1e3,
         static_cast<unsigned long long>(e2e::hash(now.data(), bytes)));
  return e2e::finish();
}
