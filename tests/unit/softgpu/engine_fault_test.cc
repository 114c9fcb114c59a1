// SPDX-License-Identifier: Apache-2.0
// What must stop a kernel, what must not, and how the stop is told: faults, budgets, stop flags,
// kernels that can't run.
#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <thread>

#include "engine_fixture.h"

namespace openmps::softgpu::test {
namespace {

constexpr const char* kHeader = ".version 8.6\n.target sm_80\n.address_size 64\n";

std::string kernel(const std::string& body, const std::string& before = "") {
  return std::string(kHeader) + before +
         ".visible .entry k(.param .u64 p, .param .u64 q)\n{\n"
         ".reg .pred %p<4>; .reg .b32 %r<10>; .reg .b64 %d<10>; .reg .b16 %h<4>;\n"
         "ld.param.u64 %d0, [p];\nld.param.u64 %d1, [q];\nmov.u32 %r0, %tid.x;\n" +
         body + "\nret;\n}\n";
}

class Faults : public testing::Test {
 protected:
  Outcome run(const std::string& body, uint64_t p = 0, uint64_t q = 0, uint32_t threads = 32,
              const std::string& before = "", uint64_t turns = 1 << 20) {
    EXPECT_TRUE(device.load(kernel(body, before))) << device.error.log;
    EXPECT_EQ(device.unsupported(), "");
    return device.run("k", {1}, {threads}, Parameters().add(p).add(q), 0, 0, 10000, turns);
  }
  static uint64_t address(const void* p) { return reinterpret_cast<uint64_t>(p); }
  Device device;
  std::vector<uint64_t> data = std::vector<uint64_t>(64);
};

TEST_F(Faults, ReadBeyondTheEnd) {
  device.buffer(data);
  const Outcome outcome =
      run("mul.wide.u32 %d2, %r0, 32;\nadd.u64 %d3, %d0, %d2;\nld.global.u64 %d4, [%d3];",
          address(data.data()));
  ASSERT_EQ(outcome.state, BlockState::kFaulted);
  EXPECT_EQ(outcome.fault.code, CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(outcome.fault.address, address(data.data()) + 512);
  EXPECT_NE(outcome.fault.text.find("kernel k, block (0,0,0), thread (16,0,0), PTX line 12"),
            std::string::npos)
      << outcome.fault.text;
}

// The limit is for what is not known beforehand: recursion, not a large frame.
TEST_F(Faults, RecursionBeyondTheStack) {
  const std::string functions = R"(
.func large () { .local .align 8 .b8 frame[8000]; .reg .b64 %d; mov.u64 %d, 1;
  st.local.u64 [frame+4000], %d; ret; }
.func odd (.param .b32 n);
.func even (.param .b32 n) {
  .local .align 8 .b8 frame[256]; .reg .pred %p; .reg .b32 %r;
  ld.param.b32 %r, [n]; setp.eq.u32 %p, %r, 0; @%p ret;
  sub.u32 %r, %r, 1; .param .b32 below; st.param.b32 [below], %r; call odd, (below); ret; }
.func odd (.param .b32 n) {
  .local .align 8 .b8 frame[256]; .reg .b32 %r; .param .b32 below;
  ld.param.b32 %r, [n]; st.param.b32 [below], %r; call even, (below); ret; }
)";
  const std::string body =
      "call large;\ncvt.u32.u64 %r1, %d0;\n.param .b32 levels;\nst.param.b32 [levels], %r1;\n"
      "call even, (levels);";
  device.services.stack = 4096;
  EXPECT_EQ(run(body, 4, 0, 1, functions).state, BlockState::kFinished);
  const Outcome outcome = run(body, 40, 0, 1, functions);
  ASSERT_EQ(outcome.state, BlockState::kFaulted);
  EXPECT_EQ(outcome.fault.code, CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_NE(outcome.fault.text.find("stack"), std::string::npos) << outcome.fault.text;
  device.services.stack = 64 << 10;
  EXPECT_EQ(run(body, 40, 0, 1, functions).state, BlockState::kFinished);
}

TEST_F(Faults, NullAndHugeAddresses) {
  for (uint64_t p : {uint64_t{0}, ~uint64_t{0} - 7, uint64_t{1} << 63, uint64_t{5} << 60}) {
    const Outcome outcome = run("st.u64 [%d0], 1;", p);
    ASSERT_EQ(outcome.state, BlockState::kFaulted) << std::hex << p;
    EXPECT_EQ(outcome.fault.code, CUDA_ERROR_ILLEGAL_ADDRESS);
  }
}

TEST_F(Faults, WriteToReadOnlyMemory) {
  device.memory.add(data.data(), 512, false);
  EXPECT_EQ(run("ld.global.u64 %d2, [%d0];", address(data.data())).state, BlockState::kFinished);
  EXPECT_EQ(run("st.global.u64 [%d0], 1;", address(data.data())).fault.code,
            CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(run("red.global.add.u64 [%d0], 1;", address(data.data())).fault.code,
            CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_F(Faults, Misalignment) {
  device.buffer(data);
  for (const char* body :
       {"ld.global.u32 %r1, [%d0+2];", "st.global.u64 [%d0+4], 5;",
        "ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%d0+8];",
        "mul.wide.u32 %d2, %r0, 7;\nadd.u64 %d3, %d0, %d2;\nst.global.u16 [%d3], 5;",
        "atom.global.add.u32 %r1, [%d0+1], 5;", "ld.relaxed.gpu.u64 %d2, [%d0+4];"}) {
    const Outcome outcome = run(body, address(data.data()));
    EXPECT_EQ(outcome.fault.code, CUDA_ERROR_MISALIGNED_ADDRESS)
        << body << " " << outcome.fault.text;
  }
}

TEST_F(Faults, SharedAndLocalWindows) {
  const char* shared = ".shared .align 8 .b8 s[64];\n";
  EXPECT_EQ(run("st.shared.u32 [s+60], 1;\nld.shared.u32 %r1, [s];", 0, 0, 32, shared).state,
            BlockState::kFinished);
  EXPECT_EQ(run("st.shared.u32 [s+64], 1;", 0, 0, 32, shared).fault.code,
            CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(
      run("mov.u32 %r1, s;\nsub.u32 %r1, %r1, 4;\nld.shared.u32 %r2, [%r1];", 0, 0, 32, shared)
          .fault.code,
      CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(run("ld.shared.u32 %r1, [s+2];", 0, 0, 32, shared).fault.code,
            CUDA_ERROR_MISALIGNED_ADDRESS);
  EXPECT_EQ(run(".local .b32 l;\nmov.u64 %d2, l;\nst.local.u32 [%d2+4000000], 1;").fault.code,
            CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(
      run(".local .b32 l;\nmov.u64 %d2, l;\ncvta.local.u64 %d3, %d2;\natom.add.u32 %r1, [%d3], 1;")
          .fault.code,
      CUDA_ERROR_INVALID_ADDRESS_SPACE);
}

TEST_F(Faults, GenericAddressesReachSharedLocalAndParameters) {
  device.buffer(data);
  const Outcome outcome =
      run(".local .align 8 .b64 l;\nmov.u64 %d2, s;\ncvta.shared.u64 %d2, %d2;\nmov.u64 %d3, "
          "l;\ncvta.local.u64 %d3, %d3;\n"
          "mov.b64 %d4, p;\ncvta.param.u64 %d4, %d4;\nst.u64 [%d2], 11;\nst.u64 [%d3], 22;\nld.u64 "
          "%d5, [%d2];\n"
          "ld.u64 %d6, [%d3];\nld.u64 %d7, [%d4];\nst.global.u64 [%d0], %d5;\nst.global.u64 "
          "[%d0+8], %d6;\n"
          "st.global.u64 [%d0+16], %d7;\nisspacep.shared %p0, %d2;\nselp.b64 %d8, 1, 0, "
          "%p0;\nst.global.u64 [%d0+24], %d8;\n"
          "isspacep.global %p0, %d2;\nselp.b64 %d8, 1, 0, %p0;\nst.global.u64 [%d0+32], %d8;",
          address(data.data()), 0, 1, ".shared .align 8 .b64 s;\n");
  ASSERT_EQ(outcome.state, BlockState::kFinished) << outcome.fault.text;
  EXPECT_EQ(data[0], 11u);
  EXPECT_EQ(data[1], 22u);
  EXPECT_EQ(data[2], address(data.data()));
  EXPECT_EQ(data[3], 1u);
  EXPECT_EQ(data[4], 0u);
}

TEST_F(Faults, TrapAndBadBarrierAndBadCall) {
  EXPECT_EQ(run("trap;").fault.code, CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(run("bar.sync 16;").fault.code, CUDA_ERROR_ILLEGAL_INSTRUCTION);
  EXPECT_EQ(run("bar.sync 1, 33;").fault.code, CUDA_ERROR_ILLEGAL_INSTRUCTION);
  EXPECT_EQ(run("proto: .callprototype _ ();\ncall %d0, (), proto;", 1234).fault.code,
            CUDA_ERROR_ILLEGAL_INSTRUCTION);
}

TEST_F(Faults, EndlessRecursionIsAStackOverflow) {
  const char* function =
      ".func f() { .local .b8 l[1024]; .reg .b64 %x; mov.u64 %x, l; call f; ret; }\n";
  EXPECT_EQ(run("call f;", 0, 0, 32, function).fault.code, CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(run("call g;", 0, 0, 32, ".func g() { call g; ret; }\n").fault.code,
            CUDA_ERROR_LAUNCH_FAILED);
}

TEST_F(Faults, AnEndlessLoopComesBack) {
  const Outcome outcome = run("L: bra L;", 0, 0, 64, "", 3);
  EXPECT_EQ(outcome.state, BlockState::kRunnable);
}

TEST_F(Faults, TheStopFlagEndsATurn) {
  ASSERT_TRUE(device.load(kernel("L: bra L;"))) << device.error.log;
  const Launch launch =
      device.make_launch("k", {1}, {32}, Parameters().add(uint64_t{0}).add(uint64_t{0}), 0);
  const uint32_t index[3] = {0, 0, 0};
  auto block = start_block(launch, index, 0);
  std::atomic<bool> stop{false};
  std::thread raiser([&] { stop = true; });
  EXPECT_EQ(block->run(UINT64_MAX, &stop, 0), BlockState::kRunnable);
  raiser.join();
}

TEST_F(Faults, FaultedBlocksStayFaulted) {
  ASSERT_TRUE(device.load(kernel("trap;")));
  const Launch launch =
      device.make_launch("k", {1}, {32}, Parameters().add(uint64_t{0}).add(uint64_t{0}), 0);
  const uint32_t index[3] = {0, 0, 0};
  auto block = start_block(launch, index, 0);
  EXPECT_EQ(block->run(1000, nullptr, 0), BlockState::kFaulted);
  EXPECT_EQ(block->run(1000, nullptr, 0), BlockState::kFaulted);
  EXPECT_EQ(block->fault().code, CUDA_ERROR_LAUNCH_FAILED);
}

TEST_F(Faults, UnsupportedInstructionsFaultWhenTheyAreReached) {
  const std::string text =
      std::string(kHeader) +
      ".extern .func elsewhere();\n"
      ".func helper(.param .b32 n) {\n.reg .pred %p; .reg .b32 %r;\nld.param.b32 %r, [n];\n"
      "setp.ne.u32 %p, %r, 0;\n@%p multimem.st.global.v4.f32 [weird], {%a, %b, %c, %d};\nret; }\n"
      ".visible .entry k(.param .b32 which) {\n"
      ".reg .b32 %r, %t; .reg .pred %p, %q; .param .b32 n;\n"
      "ld.param.b32 %r, [which];\nmov.u32 %t, %tid.x;\nsetp.eq.u32 %p, %r, 1;\n"
      "setp.eq.and.u32 %p, %t, 33, %p;\n"
      "@%p add.weird.s32 %r, %r, 1;\n"
      "sub.u32 %t, %r, 2;\nsetp.gt.u32 %q, %t, 1;\nselp.b32 %t, 0, %t, %q;\n"
      "st.param.b32 [n], %t;\ncall helper, (n);\n"
      "setp.ne.u32 %p, %r, 4;\n@%p bra done;\nbar.red.popc.u32 %r, 0, %p;\ncall elsewhere;\n"
      "done: ret; }\n";
  ASSERT_TRUE(device.load(text)) << device.error.log;
  const auto told = [this](uint32_t which) {
    const Outcome outcome = device.run("k", {1}, {64}, Parameters().add(which));
    EXPECT_EQ(outcome.state == BlockState::kFaulted,
              outcome.fault.code == CUDA_ERROR_ILLEGAL_INSTRUCTION);
    return outcome.fault.text;
  };
  EXPECT_EQ(told(0), "");
  EXPECT_EQ(told(2), "");
  EXPECT_EQ(told(1),
            "kernel k, block (0,0,0), thread (33,0,0), PTX line 17: unsupported instruction "
            "'add.weird.s32'");
  const std::string in_function = told(3), of_nowhere = told(4);
  EXPECT_NE(in_function.find("function helper, PTX line 9: unsupported instruction "
                             "'multimem.st.global.v4.f32'"),
            std::string::npos)
      << in_function;
  EXPECT_NE(of_nowhere.find("PTX line 26: unsupported instruction 'call': call of the external "
                            "function 'elsewhere'"),
            std::string::npos)
      << of_nowhere;
}

TEST_F(Faults, AFaultNamesTheFileOfTheImage) {
  CompileOptions options;
  options.origin = "/usr/lib/libsome.so.1";
  const std::string text = kernel("trap;");
  device.program = compile(text.data(), text.size(), options, &device.error);
  ASSERT_NE(device.program, nullptr) << device.error.log;
  device.linked = link(device.program, {});
  const Outcome outcome =
      device.run("k", {1}, {32}, Parameters().add(uint64_t{0}).add(uint64_t{0}));
  EXPECT_NE(outcome.fault.text.find(": trap, of /usr/lib/libsome.so.1"), std::string::npos)
      << outcome.fault.text;
}

TEST_F(Faults, PrintfConversions) {
  device.buffer(data);
  const char* format = "%d|%5u|%-4x|%#o|%ld|%llu|%c|%s|%p|%%|%.3f|%e|%g|%*d|%q\n";
  std::vector<char> text(format, format + std::strlen(format) + 1);
  std::vector<char> word = {'a', 'b', 0};
  device.buffer(text);
  device.buffer(word);
  std::vector<uint64_t> arguments;
  auto narrow = [&](uint32_t a, uint32_t b) { arguments.push_back(a | uint64_t{b} << 32); };
  auto number = [&](double v) { arguments.push_back(std::bit_cast<uint64_t>(v)); };
  narrow(uint32_t(-5), 42);
  narrow(255, 8);
  arguments.push_back(uint64_t(-7));
  arguments.push_back(~uint64_t{0});
  narrow('x', 0);
  arguments.push_back(address(word.data()));
  arguments.push_back(0xabc);
  number(2.5), number(1e10), number(-0.125);
  narrow(6, 77);
  device.buffer(arguments);
  const Outcome outcome =
      run(".param .b64 a; .param .b64 b; .param .b32 r;\nst.param.b64 [a], %d0;\nst.param.b64 [b], "
          "%d1;\n"
          "call (r), vprintf, (a, b);\nld.param.b32 %r1, [r];",
          address(text.data()), address(arguments.data()), 1,
          ".extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);\n");
  ASSERT_EQ(outcome.state, BlockState::kFinished) << outcome.fault.text;
  EXPECT_EQ(device.services.printed,
            "-5|   42|ff  |010|-7|18446744073709551615|x|ab|0xabc|%|2.500|1.000000e+10|-0.125|    "
            "77|%q\n");
}

TEST_F(Faults, MbarrierPhasesAndAsyncCopies) {
  device.buffer(data);
  for (size_t i = 0; i < data.size(); ++i) data[i] = i * 3;
  std::vector<uint64_t> out(32);
  device.buffer(out);
  const Outcome outcome = run(
      "mov.u32 %r1, m;\nsetp.eq.u32 %p0, %r0, 0;\n@%p0 mbarrier.init.shared.b64 [%r1], "
      "64;\nbar.sync 0;\n"
      "shl.b32 %r2, %r0, 3;\nmov.u32 %r3, s;\nadd.u32 %r3, %r3, %r2;\nmul.wide.u32 %d2, %r0, "
      "8;\nadd.u64 %d3, %d0, %d2;\n"
      "cp.async.ca.shared.global [%r3], [%d3], 8;\ncp.async.mbarrier.arrive.noinc.shared.b64 "
      "[%r1];\n"
      "mbarrier.arrive.shared.b64 %d4, [%r1];\n"
      "W: mbarrier.test_wait.shared.b64 %p1, [%r1], %d4;\n@!%p1 bra W;\n"
      "xor.b32 %r4, %r2, 8;\nmov.u32 %r3, s;\nadd.u32 %r3, %r3, %r4;\nld.shared.u64 %d5, [%r3];\n"
      "add.u64 %d6, %d1, %d2;\nst.global.u64 [%d6], %d5;",
      address(data.data()), address(out.data()), 32,
      ".shared .align 8 .b64 m;\n.shared .align 16 .b8 s[256];\n");
  ASSERT_EQ(outcome.state, BlockState::kFinished) << outcome.fault.text;
  for (size_t i = 0; i < 32; ++i) EXPECT_EQ(out[i], (i ^ 1) * 3);
}

TEST_F(Faults, IndexedBranches) {
  std::vector<uint64_t> out(32);
  device.buffer(out);
  const Outcome outcome =
      run("and.b32 %r1, %r0, 3;\nT: .branchtargets A, B, C, A;\nbrx.idx %r1, T;\n"
          "A: mov.u64 %d2, 100;\nbra E;\nB: mov.u64 %d2, 200;\nbra E;\nC: mov.u64 %d2, 300;\n"
          "E: mul.wide.u32 %d3, %r0, 8;\nadd.u64 %d3, %d0, %d3;\nst.global.u64 [%d3], %d2;",
          address(out.data()));
  ASSERT_EQ(outcome.state, BlockState::kFinished) << outcome.fault.text;
  for (size_t i = 0; i < 32; ++i) {
    EXPECT_EQ(out[i], (std::vector<uint64_t>{100, 200, 300, 100})[i % 4]);
  }
}

// Blocks are used again: what threads that ended left behind at a barrier does not count for those
// of the next block there, whichever of its warps comes first.
TEST_F(Faults, ArrivalsOfAnEarlierBlockDoNotCount) {
  std::vector<uint32_t> seen(64);
  device.buffer(seen);
  uint64_t value = 1;
  for (const char* writers : {"lt", "ge"}) {
    for (const char* left_behind : {"bar.arrive 1, 64;", "bar.sync 1, 64;\nst.u64 [%d0], 1;"}) {
      EXPECT_NE(run(left_behind, 0, 0, 32, "", 4).state, BlockState::kFaulted);
      const Outcome outcome =
          run("mul.wide.u32 %d2, %r0, 4;\nadd.u64 %d2, %d0, %d2;\ncvt.u32.u64 %r2, %d1;\n"
              "setp." +
                  std::string(writers) +
                  ".u32 %p0, %r0, 32;\n@!%p0 bra wait;\n"
                  "st.shared.u32 [s], %r2;\nwait: bar.sync 1, 64;\n"
                  "ld.shared.u32 %r1, [s];\nst.global.u32 [%d2], %r1;",
              address(seen.data()), ++value, 64, ".shared .align 4 .b32 s;\n");
      ASSERT_EQ(outcome.state, BlockState::kFinished) << outcome.fault.text;
      EXPECT_EQ(seen, std::vector<uint32_t>(64, static_cast<uint32_t>(value))) << left_behind;
    }
  }
}

}  // namespace
}  // namespace openmps::softgpu::test
