// SPDX-License-Identifier: Apache-2.0
// All-pairs n-body through the driver API. The demo runs it on a machine without nvcc. Its output
// is that of the CUDA program nbody, up to rounding. Run by run_e2e.py and demo.py. usage:
// drv_nbody [BODIES [STEPS]]
#include <chrono>
#include <cmath>
#include <utility>

#include "driver.h"

namespace {

struct Float4 {
  float x, y, z, w;
};
constexpr unsigned kBlock = 256;
constexpr float kTimeStep = 1e-3f;
constexpr size_t kCheckedBodies = 64;

// The largest distance between the device's first step and the same step in double, over a sample.
double first_step_error(const std::vector<Float4>& start, const std::vector<Float4>& moved) {
  double worst = 0;
  for (size_t i = 0; i < start.size(); i += start.size() / kCheckedBodies + 1) {
    const double me[3] = {start[i].x, start[i].y, start[i].z};
    const double to[3] = {moved[i].x, moved[i].y, moved[i].z};
    double a[3] = {0, 0, 0};
    for (const Float4& other : start) {
      const double d[3] = {other.x - me[0], other.y - me[1], other.z - me[2]};
      const double r2 = d[0] * d[0] + d[1] * d[1] + d[2] * d[2] + 1e-3f;
      for (int k = 0; k < 3; k++) a[k] += d[k] * other.w / (r2 * std::sqrt(r2));
    }
    for (int k = 0; k < 3; k++) {
      worst = std::fmax(worst, std::fabs(me[k] + a[k] * kTimeStep * kTimeStep - to[k]));
    }
  }
  return worst;
}

}  // namespace

int main(int argc, char** argv) {
  const auto n = static_cast<uint32_t>(e2e::argument(argc, argv, 1, 1000));
  const auto steps = static_cast<int>(e2e::argument(argc, argv, 2, 8));
  e2e::Session session;
  std::vector<Float4> start(n);
  e2e::Random random(1);
  for (Float4& body : start) {
    const float x = random.unit(), y = random.unit(), z = random.unit();
    body = {x, y, z, 1.0f / static_cast<float>(n)};
  }
  e2e::Buffer<Float4> first(start), velocity(n), second(n);
  CHECK_CU(cuMemsetD32_v2(velocity.address, 0, velocity.bytes() / 4));
  const CUfunction kernel = session.function("nbody_step");
  CUdeviceptr position = first.address, moved = second.address;
  const auto step = [&] {
    e2e::launch(kernel, e2e::blocks_for(n, kBlock), kBlock, kBlock * sizeof(Float4), nullptr,
                position, velocity.address, moved, n, kTimeStep);
    std::swap(position, moved);
  };
  step();
  e2e::expect(first_step_error(start, second.get()) < 1e-6, "first step agrees with the CPU");
  const auto before = std::chrono::steady_clock::now();
  for (int i = 1; i < steps; i++) step();
  CHECK_CU(cuCtxSynchronize());
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - before;
  std::vector<Float4> now(n);
  CHECK_CU(cuMemcpyDtoH_v2(now.data(), position, n * sizeof(Float4)));
  double checksum = 0;
  for (const Float4& body : now) checksum += static_cast<double>(body.x) + body.y + body.z;
  printf("nbody bodies=%u steps=%d checksum=%.3f\n", n, steps, checksum);
  printf("# nbody ms=%.2f bits=%016llx\n", elapsed.count() * 1e3,
         static_cast<unsigned long long>(e2e::hash(now.data(), n * sizeof(Float4))));
  return e2e::finish();
}
