// SPDX-License-Identifier: Apache-2.0
// PTX that Debian's clang makes of ptx/opencl.cl, unoptimised and optimised.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "engine_fixture.h"

namespace openmps::softgpu::test {
namespace {

TEST(Clang, KernelRunsAtEveryLevel) {
  for (const char* level : {"0", "2"}) {
    std::ifstream file(std::string(OPENMPS_TEST_PTX_DIR) + "/opencl_" + level + ".ptx");
    std::stringstream text;
    text << file.rdbuf();
    Device device;
    ASSERT_TRUE(device.load(text.str())) << device.error.log;
    ASSERT_NE(device.kernel("mixed"), UINT32_MAX);
    ASSERT_EQ(device.unsupported(), "");
    std::vector<float> a(128);
    std::vector<int> b(128);
    for (int i = 0; i < 128; ++i) a[size_t(i)] = float(i) * 0.25f;
    const Outcome outcome = device.run(
        "mixed", {1}, {128}, Parameters().add(device.buffer(a)).add(device.buffer(b)).add(100));
    ASSERT_EQ(outcome.state, BlockState::kFinished) << outcome.fault.text;
    for (int t = 0; t < 128; ++t) {
      const float expected = float(127 - t) * 0.25f * 2 + 1.5f;
      EXPECT_EQ(a[size_t(t)], expected);
      int sum = 0;
      for (int i = 0; i < t % 7; ++i) sum += i * i;
      EXPECT_EQ(b[size_t(t)], t < 100 ? sum + t * (t & 7) : int(expected * 3)) << t;
    }
  }
}

}  // namespace
}  // namespace openmps::softgpu::test
