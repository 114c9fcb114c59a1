// SPDX-License-Identifier: Apache-2.0
// The kernels of ptx/kernels.cu, compiled by nvcc for three architectures, against the host.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <fstream>
#include <numeric>
#include <random>
#include <sstream>

#include "engine_fixture.h"

namespace openmps::softgpu::test {
namespace {

class Kernels : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    std::ifstream file(std::string(OPENMPS_TEST_PTX_DIR) + "/kernels_" +
                       std::to_string(GetParam()) + ".ptx");
    std::stringstream text;
    text << file.rdbuf();
    ASSERT_TRUE(device.load(text.str())) << device.error.log;
    EXPECT_EQ(device.unsupported(), "");
  }
  void run(const char* kernel, Dim grid, Dim block, const Parameters& parameters) {
    const Outcome outcome = device.run(kernel, grid, block, parameters);
    ASSERT_EQ(outcome.state, BlockState::kFinished) << outcome.fault.text;
  }
  std::vector<float> random_floats(size_t n, float low, float high) {
    std::vector<float> values(n);
    std::uniform_real_distribution<float> draw(low, high);
    for (float& v : values) v = draw(random);
    return values;
  }
  Device device;
  std::mt19937 random{42};
};

INSTANTIATE_TEST_SUITE_P(Architectures, Kernels, testing::Values(75, 80, 90));

TEST_P(Kernels, VectorAdd) {
  const int n = 1000;
  auto a = random_floats(n, -5, 5), b = random_floats(n, -5, 5);
  std::vector<float> c(n);
  run("vector_add", {8}, {128},
      Parameters().add(device.buffer(a)).add(device.buffer(b)).add(device.buffer(c)).add(n));
  for (size_t i = 0; i < n; ++i) EXPECT_EQ(c[i], a[i] + b[i]);
}

TEST_P(Kernels, Matmul) {
  const int n = 64;
  auto a = random_floats(n * n, -1, 1), b = random_floats(n * n, -1, 1);
  std::vector<float> c(n * n);
  run("matmul", {n / 16, n / 16}, {16, 16},
      Parameters().add(device.buffer(a)).add(device.buffer(b)).add(device.buffer(c)).add(n));
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < n; ++j) {
      double sum = 0;
      for (int k = 0; k < n; ++k) sum += double(a[i * n + k]) * b[k * n + j];
      ASSERT_NEAR(c[i * n + j], sum, 1e-4);
    }
  }
}

TEST_P(Kernels, Reduce) {
  const int n = 5000;
  std::vector<float> in(n), out(1);
  std::iota(in.begin(), in.end(), 0.f);
  run("reduce", {4}, {256}, Parameters().add(device.buffer(in)).add(device.buffer(out)).add(n));
  EXPECT_EQ(out[0], 5000.f * 4999 / 2);
}

TEST_P(Kernels, Histogram) {
  const int n = 10000;
  std::vector<unsigned char> in(n);
  std::vector<unsigned> out(256), expected(256);
  for (auto& v : in) ++expected[v = static_cast<unsigned char>(random())];
  run("histogram", {3}, {128}, Parameters().add(device.buffer(in)).add(device.buffer(out)).add(n));
  EXPECT_EQ(out, expected);
}

TEST_P(Kernels, Scan) {
  std::vector<int> in(1024), out(1024), expected(1024);
  for (int& v : in) v = static_cast<int>(random() % 100);
  std::partial_sum(in.begin(), in.end(), expected.begin());
  run("scan", {1}, {1024}, Parameters().add(device.buffer(in)).add(device.buffer(out)));
  EXPECT_EQ(out, expected);
}

TEST_P(Kernels, CollatzLengths) {
  std::vector<uint32_t> in(512), out(512);
  for (uint32_t i = 0; i < in.size(); ++i) in[i] = i + 1;
  run("collatz", {4}, {128},
      Parameters().add(device.buffer(in)).add(device.buffer(out)).add(int(in.size())));
  for (uint32_t i = 0; i < in.size(); ++i) {
    uint32_t length = 0;
    for (uint32_t v = in[i]; v != 1; v = v & 1 ? 3 * v + 1 : v / 2) ++length;
    EXPECT_EQ(out[i], length) << in[i];
  }
}

TEST_P(Kernels, Convolution) {
  // The last block's threads are not all needed.
  const int pictures = 2, total = pictures * 1600;
  std::vector<float> x(pictures * 6 * 196), w(2400), bias(16), y(total), expected(total);
  for (float& v : x) v = float(random() % 11) / 8;
  for (float& v : w) v = float(random() % 13) / 8 - 0.75f;
  for (float& v : bias) v = float(random() % 5) / 8;
  run("convolution", {uint32_t(total + 255) / 256}, {256},
      Parameters()
          .add(device.buffer(x))
          .add(device.buffer(w))
          .add(device.buffer(bias))
          .add(device.buffer(y))
          .add(total));
  for (int i = 0; i < total; ++i) {
    const int q = i % 10, p = i / 10 % 10, k = i / 100 % 16, b = i / 1600;
    float s = bias[size_t(k)];
    for (int c = 0; c < 150; ++c) {
      const int plane = c / 25, r = c / 5 % 5, t = c % 5;
      s = std::fma(x[size_t(((b * 6 + plane) * 14 + p + r) * 14 + q + t)], w[size_t(k * 150 + c)],
                   s);
    }
    EXPECT_EQ(y[size_t(i)], s > 0 ? s : 0) << i;
  }
}

void expect_close(double value, double expected, double relative, double absolute, const char* what,
                  double x) {
  if (std::isnan(expected)) {
    EXPECT_TRUE(std::isnan(value)) << what << "(" << x << ")";
  } else {
    EXPECT_NEAR(value, expected, relative * std::fabs(expected) + absolute)
        << what << "(" << x << ")";
  }
}

TEST_P(Kernels, FloatMath) {
  const int n = 500;
  auto in = random_floats(n, -20, 20);
  in[0] = 0.5f, in[1] = -0.5f, in[2] = 1e-3f, in[3] = 19.75f;
  std::vector<float> out(n * 32);
  run("float_math", {4}, {128}, Parameters().add(device.buffer(in)).add(device.buffer(out)).add(n));
  for (int i = 0; i < n; ++i) {
    const double x = in[i], m = std::fabs(x);
    const float* o = &out[i * 32];
    const double expected[32] = {std::sin(x),
                                 std::cos(x),
                                 std::exp(x),
                                 std::log(m),
                                 std::sqrt(m),
                                 std::tanh(x),
                                 std::pow(m, double(1.7f)),
                                 std::erf(x),
                                 std::atan2(x, 2),
                                 std::fmod(x, 3),
                                 std::rint(x),
                                 std::floor(x),
                                 std::ceil(x),
                                 std::trunc(x),
                                 std::cbrt(x),
                                 x / double(3.7f),
                                 1 / x,
                                 1 / std::sqrt(m),
                                 std::sin(x),
                                 std::cos(x),
                                 std::exp2(x),
                                 std::log2(m),
                                 std::exp(x),
                                 std::fmin(x, 1),
                                 std::fmax(x, -1),
                                 std::copysign(2, x),
                                 std::lgamma(m + 1),
                                 std::fmin(1, std::fmax(0, x)),
                                 std::asin(x / 100),
                                 x * x + x,
                                 std::hypot(x, 1),
                                 std::expm1(x)};
    for (int k = 0; k < 32; ++k) {
      // __sinf, __cosf and lgammaf near its zeros are absolute; the rest a few units in the last
      // place.
      const double absolute = k == 18 || k == 19 ? 4e-6
                              : k == 26          ? 1e-6
                              : k == 0 || k == 1 ? 1.2e-7
                              : k == 29          ? 1e-6
                                                 : 1e-9;
      expect_close(o[k], expected[k], k == 22 ? 4e-6 : 1e-6, absolute,
                   ("column " + std::to_string(k)).c_str(), x);
    }
  }
}

TEST_P(Kernels, DoubleMath) {
  const int n = 300;
  std::vector<double> in(n), out(n * 16);
  std::uniform_real_distribution<double> draw(-30, 30);
  for (double& v : in) v = draw(random);
  run("double_math", {3}, {100},
      Parameters().add(device.buffer(in)).add(device.buffer(out)).add(n));
  for (int i = 0; i < n; ++i) {
    const double x = in[i], m = std::fabs(x), *o = &out[i * 16];
    const double expected[16] = {
        std::sin(x),       std::cos(x),  std::exp(x),      std::log(m),
        std::sqrt(m),      std::tanh(x), std::pow(m, 1.7), std::erf(x),
        x / 3.7,           1 / x,        std::rint(x),     std::floor(x),
        std::fmod(x, 3.0), std::cbrt(x), 1 / std::sqrt(m), std::fma(x, x, x)};
    for (int k = 0; k < 16; ++k) {
      expect_close(o[k], expected[k], 1e-14, 1e-15, ("column " + std::to_string(k)).c_str(), x);
    }
  }
}

unsigned byte_perm(unsigned a, unsigned b, unsigned s) {
  const uint64_t bytes = a | uint64_t{b} << 32;
  unsigned r = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned byte = bytes >> (8 * (s >> (4 * i) & 7)) & 0xff;
    r |= byte << (8 * i);
  }
  return r;
}

TEST_P(Kernels, IntegerIntrinsics) {
  const int n = 400;
  std::vector<unsigned> in(3 * n), out(32 * n);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<unsigned>(random()) >> (i % 5 * 6);
  in[0] = in[1] = in[2] = 0;
  in[3] = 0x80000000u, in[4] = ~0u;
  run("integer_intrinsics", {4}, {128},
      Parameters().add(device.buffer(in)).add(device.buffer(out)).add(n));
  for (int i = 0; i < n; ++i) {
    const unsigned a = in[3 * i], b = in[3 * i + 1], c = in[3 * i + 2], *o = &out[32 * i];
    const auto sa = static_cast<int>(a), sb = static_cast<int>(b);
    const uint64_t w = uint64_t{a} << 32 | b;
    auto s24 = [](unsigned x) { return static_cast<int>(x << 8) >> 8; };
    unsigned reversed = 0, differences = 0;
    for (int k = 0; k < 32; ++k) reversed |= (a >> k & 1) << (31 - k);
    unsigned udot = c;
    for (int k = 0; k < 4; ++k) {
      const int x = a >> (8 * k) & 0xff, y = b >> (8 * k) & 0xff;
      differences |= static_cast<unsigned>(std::abs(x - y)) << (8 * k);
      udot += static_cast<unsigned>(x * y);
    }
    EXPECT_EQ(o[0], unsigned(std::popcount(a)));
    EXPECT_EQ(o[1], unsigned(std::countl_zero(a)));
    EXPECT_EQ(o[2], unsigned(__builtin_ffs(sa)));
    EXPECT_EQ(o[3], reversed);
    EXPECT_EQ(o[4], byte_perm(a, b, c));
    EXPECT_EQ(o[5], unsigned(uint64_t{a} * b >> 32));
    EXPECT_EQ(o[6], unsigned(int64_t{sa} * sb >> 32));
    EXPECT_EQ(o[7], unsigned(((uint64_t{b} << 32 | a) << (c & 31)) >> 32));
    EXPECT_EQ(o[8], unsigned((uint64_t{b} << 32 | a) >> std::min(c, 32u)));
    EXPECT_EQ(o[9], udot);
    EXPECT_EQ(o[10], (a > b ? a - b : b - a) + c);
    EXPECT_EQ(o[11], unsigned(int64_t{s24(a)} * s24(b)));
    EXPECT_EQ(o[12], a / (b | 1));
    EXPECT_EQ(o[13], a % (b | 1));
    if (!(a == 0x80000000u && b == ~0u)) {
      EXPECT_EQ(o[14], unsigned(sa / static_cast<int>(b | 1)));
      EXPECT_EQ(o[15], unsigned(sa % static_cast<int>(b | 1)));
    }
    EXPECT_EQ(o[16], unsigned(w / (c | 1)));
    EXPECT_EQ(o[17], unsigned(w % (c | 1)));
    EXPECT_EQ(o[18], unsigned(std::popcount(w)));
    EXPECT_EQ(o[19], unsigned(std::countl_zero(w)));
    EXPECT_EQ(o[20], unsigned(static_cast<unsigned __int128>(w) * (w ^ c) >> 64));
    EXPECT_EQ(o[21], differences);
    EXPECT_EQ(o[22], ((a + b) & 0xffff) | ((a & 0xffff0000u) + (b & 0xffff0000u)));
    EXPECT_EQ(o[23], unsigned(uint16_t(std::max<int16_t>(int16_t(a), int16_t(b)))) |
                         unsigned(uint16_t(std::max<int16_t>(int16_t(a >> 16), int16_t(b >> 16))))
                             << 16);
    EXPECT_EQ(o[24], unsigned(w >> (c & 63)));
    EXPECT_EQ(o[25], unsigned(static_cast<int64_t>(w) >> (c & 63)));
    EXPECT_EQ(o[26], a << (c & 31));
    EXPECT_EQ(o[27], unsigned(std::min(sa, sb)));
    EXPECT_EQ(o[28], std::max(a, b));
    EXPECT_EQ(o[29], unsigned((uint64_t{a} + b) >> 1));
    EXPECT_EQ(o[30], unsigned(int(std::min(2147483520.0, double(float(a) * 0.001f)))));
    const float up = std::bit_cast<float>(o[31]);
    EXPECT_GE(double(up), double(a));
    EXPECT_LE(double(std::nextafter(up, 0.f)), double(a));
  }
}

TEST_P(Kernels, HalfMath) {
  const int n = 256;
  auto in = random_floats(2 * n, -4, 4);
  std::vector<float> out(16 * n);
  run("half_math", {2}, {128}, Parameters().add(device.buffer(in)).add(device.buffer(out)).add(n));
  // The compiler's half precision rounds as the device does; bfloat16 by the integer way.
#if defined(__clang__)  // has it by this name on every target
  using Half = __fp16;
#else
  using Half = _Float16;
#endif
  auto h = [](double x) { return double(static_cast<Half>(x)); };
  auto b16 = [](float x) {
    uint32_t bits = std::bit_cast<uint32_t>(x);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
    return std::bit_cast<float>(bits);
  };
  for (int i = 0; i < n; ++i) {
    const double a = h(in[2 * i]), b = h(in[2 * i + 1]);
    const float c = b16(in[2 * i]), d = b16(in[2 * i + 1]), *o = &out[16 * i];
    EXPECT_EQ(o[0], a);
    EXPECT_EQ(o[1], h(a + b));
    EXPECT_EQ(o[2], h(a * b));
    EXPECT_EQ(o[3], h(a * b + a));
    EXPECT_EQ(o[4], h(a + b));
    EXPECT_EQ(o[5], h(a * b));
    EXPECT_EQ(o[6], h(a * b + b));
    EXPECT_EQ(o[7], a < b);
    EXPECT_EQ(o[8], std::max(a, b));
    EXPECT_EQ(o[9], c);
    EXPECT_EQ(o[10], b16(c + d));
    EXPECT_EQ(o[11], b16(c * d));
    EXPECT_EQ(o[12], -a);
    EXPECT_EQ(o[13], h(a - b));
    EXPECT_EQ(o[14], a == b);
    EXPECT_EQ(o[15], h(std::sqrt(std::fabs(a))));
  }
}

TEST_P(Kernels, Atomics) {
  std::vector<unsigned> u = {0, 100000, ~0u, 0, 0, 0, 0, 1000, 0, 0, 0};
  std::vector<int> s = {1000, -1000};
  std::vector<unsigned long long> w(3);
  std::vector<float> f(1);
  std::vector<double> d(1);
  run("atomics", {2}, {64},
      Parameters()
          .add(device.buffer(u))
          .add(device.buffer(s))
          .add(device.buffer(w))
          .add(device.buffer(f))
          .add(device.buffer(d)));
  const unsigned sum = 128 * 127 / 2;
  unsigned all = 0;
  for (unsigned i = 0; i < 128; ++i) all ^= i;
  EXPECT_EQ(u, (std::vector<unsigned>{sum, 100000 - sum, 0, ~0u, all, 128 % 11,
                                      (11 - 128 % 11) % 11, 5, 127, 77, 5}));
  EXPECT_EQ(s, (std::vector<int>{-100, 27}));
  EXPECT_EQ(w, (std::vector<unsigned long long>{uint64_t{sum} << 32, uint64_t{127} << 33, 9}));
  EXPECT_EQ(f[0], 64.f);
  EXPECT_EQ(d[0], 32.0);
}

TEST_P(Kernels, WarpCollectives) {
  std::vector<unsigned> out(64 * 16);
  run("warp_collectives", {1}, {64}, Parameters().add(device.buffer(out)));
  for (unsigned t = 0; t < 64; ++t) {
    const unsigned lane = t % 32, base = t - lane, *o = &out[t * 16];
    auto v = [&](unsigned l) { return ((base + l) * 2654435761u) >> 7; };
    unsigned ballot = 0, match = 0, add = 0, most = 0, all = 0;
    int least = INT32_MAX;
    for (unsigned l = 0; l < 32; ++l) {
      ballot |= (v(l) & 1) << l;
      match |= unsigned((base + l) / 5 == t / 5) << l;
      add += base + l;
      most = std::max(most, v(l));
      all ^= v(l);
      least = std::min(least, int(v(l) - 4000));
    }
    EXPECT_EQ(o[0], ballot);
    EXPECT_EQ(o[1], base == 0 ? 1u : 0u);
    EXPECT_EQ(o[2], base == 0 ? 1u : 0u);
    EXPECT_EQ(o[3], v((lane & ~7u) | ((t + 3) & 7)));
    EXPECT_EQ(o[4], v(lane % 16 >= 3 ? lane - 3 : lane));
    EXPECT_EQ(o[5], v(lane % 8 + 5 < 8 ? lane + 5 : lane));
    EXPECT_EQ(o[6], v(lane ^ 9));
    EXPECT_EQ(o[7], match);
    EXPECT_EQ(o[8], ~0u);
    EXPECT_EQ(o[9], 1u);
    EXPECT_EQ(o[10], ~0u);
    if (GetParam() >= 80) {
      EXPECT_EQ(o[11], add);
      EXPECT_EQ(o[12], most);
      EXPECT_EQ(o[13], all);
      EXPECT_EQ(int(o[14]), least);
    }
    EXPECT_EQ(o[15], 1u + 2u + 4u * 32);
  }
}

TEST_P(Kernels, Calls) {
  std::vector<int> out(70);
  run("calls", {1}, {70}, Parameters().add(device.buffer(out)).add(5));
  const int weights[4] = {3, 1, 4, 1};
  for (int i = 0; i < 70; ++i) {
    int area = i * i + 5;
    if (i % 3 == 0) {
      area = 0;
      for (int k = 0; k < i % 7; ++k) area += k ^ 5;
    }
    EXPECT_EQ(out[size_t(i)], area + (i & 1 ? i - 1 : 2 * i) + weights[i & 3] + 30) << i;
  }
  char expected[200];
  std::snprintf(expected, sizeof expected, "thread 0: %5.2f text %x\nthread 1: %5.2f text %x\n",
                0.0, out[0], 1.5, out[1]);
  EXPECT_EQ(device.services.printed, expected);
  EXPECT_EQ(device.services.freed, 70);
}

TEST_P(Kernels, Aggregates) {
  struct Big {
    int values[12];
  } big;
  for (int i = 0; i < 12; ++i) big.values[i] = i * i + 1;
  std::vector<int> out(64);
  run("aggregates", {1}, {64}, Parameters().add(device.buffer(out)).add(big));
  for (int i = 0; i < 64; ++i) {
    int local[16];
    for (int k = 0; k < 16; ++k) local[(k * 5 + i) % 16] = k;
    EXPECT_EQ(out[size_t(i)],
              big.values[(3 + i % 12) % 12] * 100 + local[i % 16] + big.values[i % 12])
        << i;
  }
}

}  // namespace
}  // namespace openmps::softgpu::test
