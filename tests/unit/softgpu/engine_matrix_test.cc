// SPDX-License-Identifier: Apache-2.0
// Matrices between memory and registers: wmma.load and wmma.store in every layout with a product of
// small integers in between, ldmatrix, stmatrix, movmatrix; what a module may not ask for. The
// arithmetic itself is compared with an H200's in tests/softgpu/conformance.
#include <gtest/gtest.h>

#include "engine_fixture.h"

namespace openmps::softgpu::test {
namespace {

std::string module(const std::string& declarations, const std::string& body) {
  return ".version 8.0\n.target sm_90\n.address_size 64\n"
         ".visible .entry k(.param .u64 pa, .param .u64 pb, .param .u64 pd) {\n"
         "  .reg .b64 %a, %b, %d, %at; .reg .b32 %A<8>, %B<8>, %r, %s, %lane; .reg .f32 %D<8>;\n" +
         declarations +
         "  ld.param.u64 %a, [pa]; ld.param.u64 %b, [pb]; ld.param.u64 %d, [pd];\n"
         "  mov.u32 %lane, %tid.x;\n" +
         body + "  ret;\n}\n";
}

uint16_t half(int value) {  // -15 to 15
  if (value == 0) return 0;
  const unsigned magnitude = static_cast<unsigned>(value < 0 ? -value : value);
  const unsigned exponent = 31u - static_cast<unsigned>(__builtin_clz(magnitude));
  const unsigned mantissa = (magnitude << (10 - exponent)) & 0x3ffu;
  return static_cast<uint16_t>((value < 0 ? 0x8000u : 0u) | (exponent + 15) << 10 | mantissa);
}

const std::string kEight = "{%A0, %A1, %A2, %A3, %A4, %A5, %A6, %A7}";
const std::string kOtherEight = "{%B0, %B1, %B2, %B3, %B4, %B5, %B6, %B7}";
const std::string kSums = "{%D0, %D1, %D2, %D3, %D4, %D5, %D6, %D7}";

struct Shape {
  const char* name;
  int m, n;
};

class WarpMatrices : public testing::TestWithParam<Shape> {};
INSTANTIATE_TEST_SUITE_P(Shapes, WarpMatrices,
                         testing::Values(Shape{"m16n16k16", 16, 16}, Shape{"m32n8k16", 32, 8},
                                         Shape{"m8n32k16", 8, 32}),
                         [](const auto& info) { return info.param.name; });

// D = A * B + A * B, with a stride of 40 elements in memory.
TEST_P(WarpMatrices, ProductsInEveryLayout) {
  constexpr int kDepth = 16, kStride = 40;
  const Shape shape = GetParam();
  for (const bool a_columns : {false, true}) {
    for (const bool b_columns : {false, true}) {
      for (const bool d_columns : {false, true}) {
        const std::string a_layout = a_columns ? "col" : "row",
                          b_layout = b_columns ? "col" : "row",
                          d_layout = d_columns ? "col" : "row", name = shape.name;
        const std::string multiply = "wmma.mma.sync.aligned." + a_layout + "." + b_layout + "." +
                                     name + ".f32.f32 " + kSums + ", " + kEight + ", " +
                                     kOtherEight + ", " + kSums + ";\n";
        std::string zero;
        for (int i = 0; i < 8; ++i) zero += "mov.f32 %D" + std::to_string(i) + ", 0f00000000;\n";
        Device device;
        ASSERT_TRUE(device.load(
            module("", zero + "wmma.load.a.sync.aligned." + a_layout + "." + name + ".global.f16 " +
                           kEight + ", [%a], 40;\nwmma.load.b.sync.aligned." + b_layout + "." +
                           name + ".f16 " + kOtherEight + ", [%b], 40;\n" + multiply + multiply +
                           "wmma.store.d.sync.aligned." + d_layout + "." + name +
                           ".global.f32 [%d], " + kSums + ", 40;\n")))
            << device.error.log;
        ASSERT_EQ(device.unsupported(), "");
        std::vector<uint16_t> a(32 * kStride), b(32 * kStride);
        std::vector<float> d(32 * kStride, -1);
        const auto value_a = [](int i, int k) { return (3 * i + 5 * k) % 15 - 7; };
        const auto value_b = [](int k, int j) { return (7 * k + 2 * j) % 13 - 6; };
        const auto at = [](bool columns, int row, int column) {
          return static_cast<size_t>(columns ? column * kStride + row : row * kStride + column);
        };
        for (int i = 0; i < shape.m; ++i) {
          for (int k = 0; k < kDepth; ++k) a[at(a_columns, i, k)] = half(value_a(i, k));
        }
        for (int k = 0; k < kDepth; ++k) {
          for (int j = 0; j < shape.n; ++j) b[at(b_columns, k, j)] = half(value_b(k, j));
        }
        ASSERT_EQ(
            device
                .run("k", {}, {32},
                     Parameters().add(device.buffer(a)).add(device.buffer(b)).add(device.buffer(d)))
                .state,
            BlockState::kFinished);
        for (int i = 0; i < shape.m; ++i) {
          for (int j = 0; j < shape.n; ++j) {
            int sum = 0;
            for (int k = 0; k < kDepth; ++k) sum += 2 * value_a(i, k) * value_b(k, j);
            ASSERT_EQ(d[at(d_columns, i, j)], static_cast<float>(sum)) << i << ", " << j;
          }
        }
        EXPECT_EQ(d[kStride - 1], -1);  // between the rows
      }
    }
  }
}

// A matrix of which the last rows are not there, and one between two elements.
TEST(WarpMatrices, WhatCanNotBeReached) {
  std::string zeros;
  for (int i = 0; i < 8; ++i) zeros += "mov.f32 %D" + std::to_string(i) + ", 0f00000000;\n";
  for (const bool is_load : {true, false}) {
    Device device;
    const std::string access =
        is_load ? "wmma.load.c.sync.aligned.row.m16n16k16.global.f32 " + kSums + ", [%a], 16;\n"
                : "wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%a], " + kSums + ", 16;\n";
    ASSERT_TRUE(device.load(module("", zeros + access))) << device.error.log;
    const auto fault = [&](auto address) {
      return device.run("k", {}, {32}, Parameters().add(address).add(nullptr).add(nullptr)).fault;
    };
    std::vector<float> rows(16 * 16);
    const auto begin = reinterpret_cast<uint64_t>(device.buffer(rows));
    const Fault beyond = fault(begin + 2 * 16 * sizeof(float));
    EXPECT_EQ(beyond.code, CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_EQ(beyond.address, begin + rows.size() * sizeof(float));
    EXPECT_EQ(fault(begin + 2).code, CUDA_ERROR_MISALIGNED_ADDRESS);
  }
}

// Each lane's 16 bytes are a row of a tile; what register r of a lane holds then.
TEST(Tiles, LoadAndStore) {
  for (const bool transposed : {false, true}) {
    const std::string trans = transposed ? ".trans" : "";
    Device device;
    ASSERT_TRUE(device.load(
        module(".shared .align 16 .b8 tiles[512];\n",
               "mul.wide.u32 %at, %lane, 16; add.s64 %b, %a, %at; add.s64 %d, %d, %at;\n"
               "mov.u32 %s, tiles; mad.lo.u32 %s, %lane, 16, %s;\n"
               "ld.global.v4.b32 {%A0, %A1, %A2, %A3}, [%b]; st.shared.v4.b32 [%s], {%A0, %A1, "
               "%A2, %A3};\n"
               "bar.warp.sync -1; ldmatrix.sync.aligned.m8n8.x4" +
                   trans +
                   ".shared.b16 {%B0, %B1, %B2, %B3}, [%s];\n"
                   "st.global.v4.b32 [%d], {%B0, %B1, %B2, %B3}; bar.warp.sync -1;\n"
                   "stmatrix.sync.aligned.m8n8.x4" +
                   trans +
                   ".shared.b16 [%s], {%B0, %B1, %B2, %B3};\n"
                   "bar.warp.sync -1; ld.shared.v4.b32 {%A0, %A1, %A2, %A3}, [%s];\n"
                   "st.global.v4.b32 [%d+512], {%A0, %A1, %A2, %A3};\n")))
        << device.error.log;
    ASSERT_EQ(device.unsupported(), "");
    std::vector<uint16_t> rows(256), unused(8), out(512);
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<uint16_t>(1000 + i);
    ASSERT_EQ(device
                  .run("k", {}, {32},
                       Parameters()
                           .add(device.buffer(rows))
                           .add(device.buffer(unused))
                           .add(device.buffer(out)))
                  .state,
              BlockState::kFinished);
    for (size_t lane = 0; lane < 32; ++lane) {
      for (size_t tile = 0; tile < 4; ++tile) {
        for (size_t e = 0; e < 2; ++e) {
          const size_t major = lane / 4, minor = lane % 4 * 2 + e;
          const size_t row = transposed ? minor : major, column = transposed ? major : minor;
          EXPECT_EQ(out[lane * 8 + tile * 2 + e], rows[tile * 64 + row * 8 + column])
              << lane << " " << tile;
        }
      }
    }
    // Storing with the layout of the load gives the original.
    EXPECT_EQ(std::vector<uint16_t>(out.begin() + 256, out.end()), rows);
  }
}

TEST(Tiles, Transpose) {
  Device device;
  ASSERT_TRUE(device.load(module("",
                                 "mul.wide.u32 %at, %lane, 4; add.s64 %a, %a, %at;\n"
                                 "add.s64 %d, %d, %at; ld.global.b32 %r, [%a];\n"
                                 "movmatrix.sync.aligned.m8n8.trans.b16 %s, %r;\n"
                                 "st.global.b32 [%d], %s;\n")));
  std::vector<uint16_t> in(64), unused(8), out(64);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<uint16_t>(i);
  ASSERT_EQ(device
                .run("k", {}, {32},
                     Parameters()
                         .add(device.buffer(in))
                         .add(device.buffer(unused))
                         .add(device.buffer(out)))
                .state,
            BlockState::kFinished);
  for (size_t i = 0; i < 64; ++i) EXPECT_EQ(out[i], in[i % 8 * 8 + i / 8]) << i;
}

// nvcc writes the rounding of f64 behind the types, the PTX manual has it before them.
TEST(WarpMatricesOfDoubles, RoundingInEitherPlace) {
  for (const std::string opcode :
       {"m8n8k4.rn.f64.f64.f64.f64", "m8n8k4.f64.f64.f64.f64.rn", "m8n8k4.f64.f64.f64.f64"}) {
    Device device;
    ASSERT_TRUE(device.load(
        module(".reg .f64 %x, %y, %z<2>;\n",
               "wmma.load.a.sync.aligned.row.m8n8k4.global.f64 {%x}, [%a], 4;\n"
               "wmma.load.b.sync.aligned.col.m8n8k4.global.f64 {%y}, [%b], 4;\n"
               "mov.f64 %z0, 0d0000000000000000; mov.f64 %z1, 0d0000000000000000;\n"
               "wmma.mma.sync.aligned.row.col." +
                   opcode +
                   " {%z0, %z1}, {%x}, {%y}, {%z0, %z1};\n"
                   "wmma.store.d.sync.aligned.row.m8n8k4.global.f64 [%d], {%z0, %z1}, 8;\n")))
        << device.error.log;
    ASSERT_EQ(device.unsupported(), "") << opcode;
    std::vector<double> a(32), b(32), d(64);
    for (size_t i = 0; i < 32; ++i) {
      a[i] = static_cast<double>(i) - 11, b[i] = 3 * static_cast<double>(i % 7) - 2;
    }
    ASSERT_EQ(
        device
            .run("k", {}, {32},
                 Parameters().add(device.buffer(a)).add(device.buffer(b)).add(device.buffer(d)))
            .state,
        BlockState::kFinished);
    for (size_t i = 0; i < 64; ++i) {
      double sum = 0;
      for (size_t k = 0; k < 4; ++k) sum += a[i / 8 * 4 + k] * b[i % 8 * 4 + k];
      EXPECT_EQ(d[i], sum) << i;
    }
  }
}

// The largest sum that there is for its exponent: all bits of all numbers are set.
TEST(Products, SumsOfTheLargestNumbers) {
  Device device;
  ASSERT_TRUE(device.load(module(
      "",
      "mov.b32 %r, 0x3bff3bff; mov.b32 %s, 0x3effffff;\n"
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%D0, %D1, %D2, %D3}, {%r, %r, %r, %r}, "
      "{%r, %r}, {%s, %s, %s, %s};\n"
      "mul.wide.u32 %at, %lane, 16; add.s64 %d, %d, %at;\n"
      "st.global.v4.f32 [%d], {%D0, %D1, %D2, %D3};\n")))
      << device.error.log;
  std::vector<float> unused(8), out(128);
  ASSERT_EQ(device
                .run("k", {}, {32},
                     Parameters()
                         .add(device.buffer(unused))
                         .add(device.buffer(unused))
                         .add(device.buffer(out)))
                .state,
            BlockState::kFinished);
  const double factor = 2047.0 / 2048, addend = 0x1p-1 - 0x1p-25;
  const double sum = 16 * factor * factor + addend;
  auto cut = static_cast<float>(sum);
  if (cut > sum) cut = __builtin_nextafterf(cut, 0);
  EXPECT_EQ(out, std::vector<float>(128, cut));
}

// A kernel that asks for a product that there is not loads, and says so when it is to run.
TEST(Products, ShapesThatThereAreNot) {
  for (const std::string code :
       {"mma.sync.aligned.m16n8k256.row.col.f32.f16.f16.f32 {%D0}, {%A0}, {%B0}, {%D0};",
        "mma.sync.aligned.m16n8k16.col.col.f32.f16.f16.f32 {%D0, %D1, %D2, %D3}, {%A0, %A1, %A2, "
        "%A3}, {%B0, %B1}, {%D0, %D1, %D2, %D3};",
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%D0}, {%A0, %A1, %A2, %A3}, {%B0, "
        "%B1}, "
        "{%D0, %D1, %D2, %D3};",
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32.rn {%D0, %D1, %D2, %D3}, {%A0, %A1}, "
        "{%B0}, {%D0, %D1, %D2, %D3};",
        "wmma.load.a.sync.aligned.row.m8n8k4.global.f16 {%A0}, [%a];"}) {
    Device device;
    ASSERT_TRUE(device.load(module("", code))) << code << device.error.log;
    EXPECT_NE(device.unsupported(), "") << code;
  }
}

}  // namespace
}  // namespace openmps::softgpu::test
