// SPDX-License-Identifier: Apache-2.0
// The compiled tier's parts: how values are found to lie over the lanes, what is left to the
// interpreter, code as it is kept on disk; and that kernels are compiled at all. What compiled
// kernels compute is compared by the other tests of the engine, which ctest runs with
// SOFTGPU_PERF=compile_all.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "engine_fixture.h"
#include "softgpu/interp/block.h"
#include "softgpu/interp/compiled.h"
#include "softgpu/interp/instruction_set.h"
#include "softgpu/ir/program.h"
#include "softgpu/tier/code_store.h"
#include "softgpu/tier/compiler.h"
#include "softgpu/tier/llvm_api.h"
#include "softgpu/tier/ssa.h"

namespace openmps::softgpu::test {
namespace {

using tier::Form;

bool can_compile() {
  return tier::load_llvm() != nullptr && active_instruction_set() != InstructionSet::kBase;
}

std::string kernel_of(const std::string& body) {
  return ".version 8.0\n.target sm_80\n.address_size 64\n"
         ".visible .entry k(.param .u64 in, .param .u64 out)\n{\n"
         ".reg .pred %p<4>; .reg .b32 %r<10>; .reg .f32 %f<10>; .reg .b64 %rd<10>;\n"
         ".shared .align 16 .b8 tile[4096];\n"
         "ld.param.u64 %rd0, [in]; ld.param.u64 %rd1, [out];\n" +
         body + "\nret;\n}\n";
}

// A kernel's code, with the program that it is part of.
struct Kernel {
  explicit Kernel(const std::string& body) {
    EXPECT_TRUE(device.load(kernel_of(body))) << device.error.log;
    const auto* compiled = static_cast<const CompiledProgram*>(device.program.get());
    code = compiled->functions[static_cast<size_t>(compiled->kernel_functions[0])].get();
  }
  Device device;
  const Code* code = nullptr;
};

constexpr tier::LaunchShape kLine{tier::LaunchShape::Kind::kLine, 0};
constexpr tier::LaunchShape kRowsOf16{tier::LaunchShape::Kind::kRows, 16};

// The form of the address of the kernel's store.
Form store_address(const Kernel& kernel, const tier::LaunchShape& shape, tier::Lanes* lanes) {
  const tier::Graph graph(*kernel.code);
  const tier::Ssa ssa = tier::analyse(graph, shape);
  for (size_t i = 0; i < graph.facts.size(); ++i) {
    if (graph.facts[i].role != tier::Role::kStore) continue;
    const Form form = ssa.form(ssa.uses[i][0]);
    if (form.kind == Form::Kind::kLanes) *lanes = ssa.patterns[static_cast<size_t>(form.id)];
    return form;
  }
  ADD_FAILURE() << "no store";
  return {};
}

TEST(TierForms, ThreadsOfALineAreARowOfAddresses) {
  const Kernel kernel(
      "mov.u32 %r0, %tid.x; mul.wide.u32 %rd2, %r0, 4; add.s64 %rd3, %rd1, %rd2;\n"
      "st.global.u32 [%rd3], %r0;");
  tier::Lanes lanes{};
  const Form form = store_address(kernel, kLine, &lanes);
  ASSERT_EQ(form.kind, Form::Kind::kLanes);
  for (uint64_t i = 0; i < 32; ++i) EXPECT_EQ(lanes[i], 4 * i);
}

TEST(TierForms, BitsBelowTheScalarAreThePatterns) {
  // The lane's number in its warp, and the warp's number, by the bits of %tid.x.
  const Kernel kernel(
      "mov.u32 %r0, %tid.x; and.b32 %r1, %r0, 7; shr.u32 %r2, %r0, 5; shl.b32 %r3, %r1, 2;\n"
      "mad.lo.s32 %r4, %r2, 128, %r3; mov.u32 %r5, tile; add.s32 %r6, %r5, %r4;\n"
      "st.shared.u32 [%r6], %r0;");
  tier::Lanes lanes{};
  const Form form = store_address(kernel, kLine, &lanes);
  ASSERT_EQ(form.kind, Form::Kind::kLanes);
  for (uint64_t i = 0; i < 32; ++i) EXPECT_EQ(lanes[i], i % 8 * 4);
}

TEST(TierForms, ThreadsOfShortRowsAreBothCoordinates) {
  const Kernel kernel(
      "mov.u32 %r0, %tid.x; mov.u32 %r1, %tid.y; shl.b32 %r2, %r1, 6; shl.b32 %r3, %r0, 2;\n"
      "add.s32 %r4, %r2, %r3; mov.u32 %r5, tile; add.s32 %r6, %r5, %r4;\n"
      "st.shared.u32 [%r6], %r0;");
  tier::Lanes lanes{};
  const Form form = store_address(kernel, kRowsOf16, &lanes);
  ASSERT_EQ(form.kind, Form::Kind::kLanes);
  for (uint64_t i = 0; i < 32; ++i) EXPECT_EQ(lanes[i], i / 16 * 64 + i % 16 * 4);
  EXPECT_NE(store_address(kernel, {}, &lanes).kind, Form::Kind::kLanes);
}

TEST(TierForms, LoopsMoveTheScalarOfTheirBase) {
  const Kernel kernel(
      "mov.u32 %r0, %tid.x; mul.lo.s32 %r1, %r0, %r0; mul.wide.u32 %rd2, %r1, 4;\n"
      "add.s64 %rd3, %rd1, %rd2; mov.u32 %r2, 0;\n"
      "LOOP: st.global.u32 [%rd3], %r0; add.s64 %rd3, %rd3, 4096; add.s32 %r2, %r2, 1;\n"
      "setp.lt.u32 %p0, %r2, 10; @%p0 bra LOOP;");
  tier::Lanes lanes{};
  const Form form = store_address(kernel, kLine, &lanes);
  EXPECT_EQ(form.kind, Form::Kind::kBase);
  EXPECT_TRUE(form.has_scalar);
}

TEST(TierForms, LanesThatPartMakeValuesThatDiffer) {
  const Kernel kernel(
      "mov.u32 %r0, %tid.x; mov.u32 %r1, 0; setp.gt.u32 %p0, %r0, 5; @%p0 bra BEHIND;\n"
      "mov.u32 %r1, 64;\n"
      "BEHIND: cvt.u64.u32 %rd2, %r1; add.s64 %rd3, %rd1, %rd2; st.global.u32 [%rd3], %r0;");
  const tier::Graph graph(*kernel.code);
  const tier::Ssa ssa = tier::analyse(graph, kLine);
  ASSERT_EQ(ssa.regions.size(), 1u);
  tier::Lanes lanes{};
  EXPECT_EQ(store_address(kernel, kLine, &lanes).kind, Form::Kind::kBase);
}

TEST(TierRegions, BarriersAreTheInterpreters) {
  const Kernel kernel(
      "mov.u32 %r0, %tid.x; setp.gt.u32 %p0, %r0, 5; @%p0 bra BEHIND;\n"
      "bar.sync 1, 32;\n"
      "BEHIND: st.global.u32 [%rd1], %r0;");
  const tier::Graph graph(*kernel.code);
  EXPECT_TRUE(tier::analyse(graph, kLine).regions.empty());
}

tier::CompiledImage some_image() {
  tier::CompiledImage image;
  image.code = {std::string(1000, '\x90'), 16};
  image.entries = {0, 7};
  image.state_bytes = 4096;
  return image;
}

class TierStore : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "tier_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    place_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(place_); }
  std::vector<std::filesystem::path> files() const {
    std::vector<std::filesystem::path> found;
    for (const auto& entry : std::filesystem::directory_iterator(place_ + "/softgpu-code")) {
      found.push_back(entry.path());
    }
    return found;
  }
  std::string place_;
};

TEST_F(TierStore, KeepsWhatIsWritten) {
  const tier::CodeStore store(place_);
  store.write({1, 2}, some_image());
  tier::CompiledImage image;
  ASSERT_TRUE(store.read({1, 2}, &image));
  EXPECT_EQ(image.code.bytes, some_image().code.bytes);
  EXPECT_EQ(image.code.entry, 16u);
  EXPECT_EQ(image.entries, some_image().entries);
  EXPECT_EQ(image.state_bytes, 4096u);
  EXPECT_FALSE(store.read({2, 1}, &image));
}

TEST_F(TierStore, IgnoresDamage) {
  const tier::CodeStore store(place_);
  store.write({1, 2}, some_image());
  ASSERT_EQ(files().size(), 1u);
  const std::filesystem::path path = files()[0];
  const auto size = std::filesystem::file_size(path);
  tier::CompiledImage image;
  for (const uintmax_t at : {uintmax_t{0}, uintmax_t{20}, size / 2, size - 1}) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(at));
    const auto before = static_cast<char>(file.get());
    const auto write = [&](char byte) {
      file.seekp(static_cast<std::streamoff>(at));
      file.put(byte);
      file.flush();
    };
    write(static_cast<char>(before ^ 4));
    EXPECT_FALSE(store.read({1, 2}, &image)) << "byte " << at;
    write(before);
  }
  EXPECT_TRUE(store.read({1, 2}, &image));
  std::filesystem::resize_file(path, size / 2);
  EXPECT_FALSE(store.read({1, 2}, &image));
}

TEST_F(TierStore, StaysWithinItsBound) {
  const tier::CodeStore store(place_, 5000);
  for (uint64_t k = 0; k < 20; ++k) store.write({k, k}, some_image());
  EXPECT_LE(files().size(), 4u);
  EXPECT_GE(files().size(), 1u);
}

TEST_F(TierStore, IsNotForOthers) {
  const std::string folder = place_ + "/softgpu-code";
  ASSERT_EQ(mkdir(folder.c_str(), 0777), 0);
  ASSERT_EQ(chmod(folder.c_str(), 0777), 0);
  const tier::CodeStore store(place_);
  store.write({1, 2}, some_image());
  EXPECT_TRUE(files().empty());
}

TEST(TierObjects, WhatIsNoObjectFileIsRefused) {
  tier::ObjectCode code;
  EXPECT_FALSE(tier::flatten_object("", "run", &code));
  EXPECT_FALSE(tier::flatten_object(std::string(500, 'x'), "run", &code));
  std::string header = "\177ELF\2\1\1";
  header.resize(64, '\0');
  EXPECT_FALSE(tier::flatten_object(header, "run", &code));
}

TEST(TierKeys, DependOnCodeAndShape) {
  const Kernel one("mov.u32 %r0, %tid.x; st.global.u32 [%rd1], %r0;");
  const Kernel two("mov.u32 %r0, %tid.y; st.global.u32 [%rd1], %r0;");
  const Kernel again("mov.u32 %r0, %tid.x; st.global.u32 [%rd1], %r0;");
  const std::string name = tier::key_of(*one.code, kLine).name();
  EXPECT_EQ(name, tier::key_of(*again.code, kLine).name());
  EXPECT_NE(name, tier::key_of(*two.code, kLine).name());
  EXPECT_NE(name, tier::key_of(*one.code, kRowsOf16).name());
}

// A tier that gave up on everything would pass all comparisons: this kernel is to be compiled, and
// its state says that machine code was left at the barrier.
TEST(Tier, CompilesAndRuns) {
  if (!can_compile()) GTEST_SKIP() << "no LLVM, or no AVX2";
  Kernel kernel(
      "mov.u32 %r0, %tid.x; shl.b32 %r1, %r0, 2; mov.u32 %r2, tile; add.s32 %r3, %r2, %r1;\n"
      "mul.lo.s32 %r4, %r0, 3; st.shared.u32 [%r3], %r4; bar.sync 0;\n"
      "xor.b32 %r5, %r1, 124; add.s32 %r6, %r2, %r5; ld.shared.u32 %r7, [%r6];\n"
      "mul.wide.u32 %rd2, %r0, 4; add.s64 %rd3, %rd1, %rd2; st.global.u32 [%rd3], %r7;");
  tier::CompiledImage image;
  std::string why;
  ASSERT_TRUE(tier::compile_kernel(*kernel.code, kLine, &image, &why)) << why;
  EXPECT_GE(image.entries.size(), 2u);  // the start, and behind the barrier
  const auto installed = tier::install_kernel(*kernel.code, image);
  ASSERT_NE(installed, nullptr);
  EXPECT_EQ(installed->code->ops.size(), kernel.code->ops.size());
  EXPECT_EQ(installed->code->ops[0].handler, enter_compiled);
  EXPECT_NE(kernel.code->ops[0].handler, enter_compiled);
}

// Lanes that stay apart beyond the end of their turn go on in the interpreter, each where it is.
TEST(Tier, LanesThatStayApartAreHandedOver) {
  Kernel kernel(
      "mov.u32 %r0, %tid.x; mul.lo.s32 %r1, %r0, 5000; mov.u32 %r2, 0; mov.u32 %r3, 7;\n"
      "setp.eq.u32 %p1, %r1, 0; @%p1 bra BEHIND;\n"
      "LOOP: add.s32 %r2, %r2, 1; and.b32 %r4, %r2, %r0; setp.eq.u32 %p2, %r4, 0;\n"
      "@%p2 bra NEXT; add.s32 %r3, %r3, %r2;\n"
      "NEXT: setp.lt.u32 %p0, %r2, %r1; @%p0 bra LOOP;\n"
      "BEHIND: add.s32 %r3, %r3, 1; mul.wide.u32 %rd2, %r0, 4; add.s64 %rd3, %rd1, %rd2;\n"
      "st.global.u32 [%rd3], %r3;");
  std::vector<uint32_t> out(32);
  const Outcome outcome = kernel.device.run(
      "k", {1}, {32}, Parameters().add(uint64_t{0}).add(kernel.device.buffer(out)), 0, 0, 1000);
  ASSERT_EQ(outcome.state, BlockState::kFinished) << outcome.fault.text;
  for (uint32_t lane = 0; lane < 32; ++lane) {
    uint32_t expected = 7;
    for (uint32_t i = 1; i <= lane * 5000; ++i) expected += i & lane ? i : 0;
    EXPECT_EQ(out[lane], expected + 1) << "lane " << lane;
  }
}

TEST(Tier, RunsWhatItCompiled) {
  if (!can_compile()) GTEST_SKIP() << "no LLVM, or no AVX2";
  const bool is_asked = perf_asks("compile_all");
  if (!is_asked) setenv("SOFTGPU_PERF", "compile_all", 1);
  Kernel kernel(
      "mov.u32 %r0, %tid.x; mul.wide.u32 %rd2, %r0, 4; add.s64 %rd3, %rd1, %rd2;\n"
      "mul.lo.s32 %r1, %r0, 5; st.global.u32 [%rd3], %r1;");
  if (!is_asked) unsetenv("SOFTGPU_PERF");
  ASSERT_NE(kernel.code->tier, nullptr);
  std::vector<uint32_t> out(64);
  const Outcome outcome = kernel.device.run(
      "k", {1}, {64}, Parameters().add(uint64_t{0}).add(kernel.device.buffer(out)));
  ASSERT_EQ(outcome.state, BlockState::kFinished) << outcome.fault.text;
  for (uint32_t i = 0; i < 64; ++i) EXPECT_EQ(out[i], 5 * i);
  auto block = std::make_unique<Block>();
  block->shape.block[0] = 64;
  const Code* chosen = kernel.code->tier->choose(*block);
  ASSERT_NE(chosen, nullptr);
  EXPECT_NE(chosen->compiled, nullptr);
}

}  // namespace
}  // namespace openmps::softgpu::test
