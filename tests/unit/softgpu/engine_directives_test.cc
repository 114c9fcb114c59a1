// SPDX-License-Identifier: Apache-2.0
// What a module says about itself: targets, directives that bound registers and threads, variables
// with attributes, special registers that describe the launch, programs of several objects.
#include <gtest/gtest.h>

#include "engine_fixture.h"

namespace openmps::softgpu::test {
namespace {

std::string module(const std::string& text, const std::string& target = "sm_80") {
  return ".version 8.0\n.target " + target + "\n.address_size 64\n" + text;
}

// Keeps `values` numbers alive at once.
std::string hungry(const std::string& directives, int values) {
  std::string text =
      ".visible .entry k(.param .u64 p) " + directives + " {\n.reg .b64 %a; .reg .f32 %f<300>;\n";
  text += "ld.param.u64 %a, [p];\n";
  for (int i = 0; i < values; ++i) {
    text +=
        "ld.volatile.global.f32 %f" + std::to_string(i) + ", [%a+" + std::to_string(4 * i) + "];\n";
  }
  for (int i = 0; i < values; ++i) {
    text += "st.volatile.global.f32 [%a+" + std::to_string(4 * i) + "], %f" +
            std::to_string(values - 1 - i) + ";\n";
  }
  return text + "ret;\n}\n";
}

KernelInfo described(const std::string& text) {
  Device device;
  EXPECT_TRUE(device.load(text)) << device.error.log;
  return device.program ? device.program->kernels()[0] : KernelInfo();
}

TEST(Directives, TheTargetIsTheModules) {
  for (const uint32_t target : {50u, 75u, 80u, 90u}) {
    EXPECT_EQ(
        described(module(".visible .entry k() { ret; }", "sm_" + std::to_string(target))).target,
        target);
  }
}

// The blocks that directives allow fit on a multiprocessor of 64 K registers.
TEST(Directives, RegistersAreBoundAsPtxasBoundsThem) {
  const struct {
    const char* directives;
    uint32_t registers, threads;
  } rows[] = {
      {"", 64, 1024},
      {".maxntid 256", 202, 256},
      {".maxntid 128, 2, 1", 202, 256},
      {".maxntid 1024 .minnctapersm 2", 32, 1024},
      {".maxntid 256 .minnctapersm 4", 64, 256},
      {".minnctapersm 4", 64, 1024},
      {".maxnreg 32", 32, 1024},
      {".reqntid 64", 202, 1024},
      {".maxntid 2048", 32, 1024},
  };
  for (const auto& row : rows) {
    const KernelInfo info = described(module(hungry(row.directives, 200)));
    EXPECT_EQ(info.registers, row.registers) << row.directives;
    EXPECT_EQ(info.max_threads, row.threads) << row.directives;
  }
}

std::vector<uint32_t> read_specials(const std::vector<std::string>& names, const char* shared,
                                    uint32_t dynamic) {
  std::string text = ".visible .entry k(.param .u64 p) {\n.reg .b64 %a; .reg .b32 %r;\n";
  text += std::string(shared) + "ld.param.u64 %a, [p];\n";
  for (size_t i = 0; i < names.size(); ++i) {
    text += "mov.u32 %r, " + names[i] + "; st.global.u32 [%a+" + std::to_string(4 * i) + "], %r;\n";
  }
  Device device;
  EXPECT_TRUE(device.load(module(text + "ret;\n}\n", "sm_90"))) << device.error.log;
  std::vector<uint32_t> out(names.size());
  EXPECT_EQ(device.run("k", {}, {32}, Parameters().add(device.buffer(out)), dynamic).state,
            BlockState::kFinished);
  return out;
}

TEST(Directives, SharedMemoryThatTheSystemReserves) {
  const std::vector<uint32_t> got = read_specials(
      {"%reserved_smem_offset_begin", "%reserved_smem_offset_end", "%reserved_smem_offset_cap",
       "%reserved_smem_offset_0", "%reserved_smem_offset_1", "%total_smem_size", "%aggr_smem_size",
       "%dynamic_smem_size"},
      ".shared .align 4 .b8 s[100];\nmov.u32 %r, 1; st.shared.u32 [s+96], %r;\n", 512);
  EXPECT_EQ(got[1] - got[0], 288u);
  EXPECT_EQ(got[2] - got[0], 1024u);
  EXPECT_EQ(got[3], got[0]);
  EXPECT_EQ(got[4], got[0]);
  EXPECT_EQ(got[5], 640u);
  EXPECT_EQ(got[6], 1648u);
  EXPECT_EQ(got[7], 512u);
}

TEST(Directives, ReservedMemoryIsApartAndZero) {
  Device device;
  ASSERT_TRUE(device.load(module(
      ".extern .shared .align 16 .b8 dynamic[];\n"
      ".visible .entry k(.param .u64 p) {\n.reg .b64 %a; .reg .b32 %r, %s;\n"
      ".shared .align 4 .b8 s[100];\nld.param.u64 %a, [p];\n"
      "mov.u32 %r, 7; st.shared.u32 [s+96], %r; st.shared.u32 [dynamic+60], %r;\n"
      "mov.u32 %s, %reserved_smem_offset_1; ld.shared.u32 %r, [%s]; st.global.u32 [%a], %r;\n"
      "mov.u32 %r, 9; st.shared.u32 [%s], %r; st.shared.u32 [%s+284], %r;\n"
      "ld.shared.u32 %r, [s+96]; st.global.u32 [%a+4], %r;\n"
      "ld.shared.u32 %r, [dynamic+60]; st.global.u32 [%a+8], %r; ret; }\n")))
      << device.error.log;
  for (int turn = 0; turn < 2; ++turn) {
    std::vector<uint32_t> out(3, 1);
    ASSERT_EQ(device.run("k", {}, {32}, Parameters().add(device.buffer(out)), 64).state,
              BlockState::kFinished);
    EXPECT_EQ(out, (std::vector<uint32_t>{0, 7, 7}));
  }
}

// The fixture's timer goes on by 1 ns each time it is read.
TEST(Directives, ClocksCountTheGlobalTimersTime) {
  Device device;
  ASSERT_TRUE(device.load(
      module(".visible .entry k(.param .u64 p) {\n.reg .b64 %a, %x, %y;\nld.param.u64 %a, [p];\n"
             "mov.u64 %x, %globaltimer; st.global.u64 [%a], %x;\n"
             "mov.u64 %y, %clock64; st.global.u64 [%a+8], %y; ret; }\n")));
  device.services.set_timer(5'000'000'000);
  std::vector<uint64_t> out(2);
  ASSERT_EQ(device.run("k", {}, {1}, Parameters().add(device.buffer(out))).state,
            BlockState::kFinished);
  EXPECT_EQ(out[0], 5'000'000'001u);
  EXPECT_EQ(out[1], (out[0] + 1) * (kClockRate / 1000) / 1000);
}

TEST(Directives, ManagedVariablesAreSaidToBe) {
  Device device;
  ASSERT_TRUE(
      device.load(module(".visible .global .attribute(.managed) .align 4 .u32 m = 5;\n"
                         ".visible .global .align 4 .u32 plain;\n")));
  ASSERT_EQ(device.program->globals().size(), 2u);
  EXPECT_TRUE(device.program->globals()[0].is_managed);
  EXPECT_FALSE(device.program->globals()[1].is_managed);
}

}  // namespace
}  // namespace openmps::softgpu::test
