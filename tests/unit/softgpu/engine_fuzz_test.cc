// SPDX-License-Identifier: Apache-2.0
// The entries of tests/fuzz/ptx_fuzz.cc and kernel_fuzz.cc over texts that are cut short
// everywhere, and seeded mutations of them. Under the sanitizers this finds what a fuzzer's first
// minutes would.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

extern "C" int ptx_fuzz_one(const uint8_t* data, size_t size);
extern "C" int kernel_fuzz_one(const uint8_t* data, size_t size);

namespace {

const std::vector<std::string>& corpus() {
  static const std::string head = ".version 8.0\n.target sm_80\n.address_size 64\n";
  static const std::vector<std::string> made = {
      head +
          ".visible .entry k(.param .u64 p) {\n.reg .b32 %r<9>; .reg .b64 %d<9>; .reg .pred "
          "%p<4>;\n"
          "ld.param.u64 %d1, [p]; mov.u32 %r1, %tid.x; mul.wide.u32 %d2, %r1, 4; add.s64 %d3, %d1, "
          "%d2;\n"
          "L: ld.global.u32 %r2, [%d3]; add.s32 %r2, %r2, 1; st.global.u32 [%d3], %r2; setp.lt.u32 "
          "%p1, %r2, %r1;\n"
          "@%p1 bra L; bar.sync 0; shfl.sync.bfly.b32 %r3|%p2, %r2, 1, 31, -1; @%p2 "
          "atom.global.add.u32 %r4, [%d1], %r3;\n"
          "ret; }\n",
      head +
          ".extern .shared .align 16 .b8 sh[];\n.global .align 8 .u64 t[3] = {f, generic(t)+8, "
          "7};\n.const .f32 c[2] = {1.5, 0f40000000};\n"
          ".func (.param .b32 r) f(.param .b32 a) { .reg .b32 %x, %y; ld.param.b32 %x, [a]; { "
          ".param .b32 q; .param .b32 s; st.param.b32 [q], %x;\n"
          "setp.eq.u32 %p, %x, 0; @%p bra E; call.uni (s), f, (q); ld.param.b32 %y, [s]; } E: "
          "st.param.b32 [r], %x; ret; }\n",
      head +
          ".func (.param .b32 r) f(.param .b32 a) { .reg .b32 %x; .reg .pred %p; ld.param.b32 %x, "
          "[a]; setp.eq.u32 %p, %x, 0; @%p bra E;\n"
          "sub.u32 %x, %x, 1; { .param .b32 q; .param .b32 s; st.param.b32 [q+0], %x; call.uni "
          "(s), f, (q); ld.param.b32 %x, [s+0]; } add.u32 %x, %x, 2;\n"
          "E: st.param.b32 [r+0], %x; ret; }\n"
          ".visible .entry k(.param .u64 p) { .reg .b32 %r<4>; .reg .b64 %d<6>; .local .align 8 "
          ".b8 l[64]; .shared .align 8 .b8 s[128];\n"
          "{ .param .b32 q; .param .b32 v; mov.u32 %r1, %laneid; st.param.b32 [q], %r1; pr: "
          ".callprototype (.param .b32 _) _ (.param .b32 _);\n"
          "mov.u64 %d1, f; call (v), %d1, (q), pr; ld.param.b32 %r2, [v]; } mov.u64 %d2, l; "
          "st.local.v2.u32 [%d2+8], {%r1, %r2}; cvta.local.u64 %d3, %d2;\n"
          "ld.u64 %d4, [%d3+8]; mov.u32 %r3, s; st.shared.u64 [%r3+16], %d4; bar.red.popc.u32 %r2, "
          "0, 1; T: .branchtargets A, B; and.b32 %r1, %r1, 1; brx.idx %r1, T; A: trap; B: exit; "
          "}\n",
      head +
          ".visible .entry h() { .reg .f32 %f<4>; .reg .f64 %g<3>; .reg .b16 %s<3>; .reg .b32 "
          "%r<4>; mov.f32 %f1, 0f3F800000; fma.rz.ftz.sat.f32 %f2, %f1, %f1, 0f40000000;\n"
          "ex2.approx.f32 %f3, %f2; cvt.f64.f32 %g1, %f3; div.rn.f64 %g2, %g1, 0d0000000000000000; "
          "cvt.rn.f16.f32 %s1, %f1; cvt.rzi.s32.f64 %r1, %g2; vote.sync.ballot.b32 %r2, 1, -1;\n"
          "match.any.sync.b32 %r3, %r1, -1; div.s32 %r1, %r1, 0; prmt.b32 %r1, %r1, %r2, 0x3210; "
          "lop3.b32 %r1, %r1, %r2, %r3, 0x96; membar.gl; ret; }\n",
  };
  return made;
}

void feed(const std::string& text) {
  const auto* data = reinterpret_cast<const uint8_t*>(text.data());
  EXPECT_EQ(ptx_fuzz_one(data, text.size()), 0);
  EXPECT_EQ(kernel_fuzz_one(data, text.size()), 0);
}

TEST(Fuzz, CorpusAndEveryPrefix) {
  for (const std::string& text : corpus()) {
    for (size_t n = 0; n <= text.size(); ++n) feed(text.substr(0, n));
  }
}

TEST(Fuzz, SeededMutations) {
  std::mt19937 random(7);
  const std::vector<std::string> words = {
      "%r1",        "%d1",    "%p1",        "-1",      "0xffffffffffffffff",
      "{",          "}",      "[",          "]",       ";",
      "[p]",        "bra L;", ".v4",        ".u64",    ".b32",
      "ret;",       "@%p1",   "4294967295", ".shared", ".reg .b32 %z<99999999>;",
      "bar.sync 0;"};
  for (int round = 0; round < 4000; ++round) {
    std::string text = corpus()[random() % corpus().size()];
    for (unsigned change = random() % 4 + 1; change > 0; --change) {
      const size_t at = 45 + random() % (text.size() - 45);
      switch (random() % 4) {
        case 0: text[at] = static_cast<char>(random() % 96 + 32); break;
        case 1: text.erase(at, random() % 8); break;
        case 2: text.insert(at, words[random() % words.size()]); break;
        default:
          text.insert(at, text.substr(45 + random() % (text.size() - 45), random() % 30));
          break;
      }
    }
    feed(text);
  }
}

}  // namespace
