// SPDX-License-Identifier: Apache-2.0
// Code that no program has loaded before: PTX texts that differ by a constant. All kernels work on
// 32-bit words with one thread for each.
#pragma once

#include <cstdint>
#include <string>

namespace fresh {

// `step(words, count, key)`: words[i] = words[i] * 5 + i + key + constant. If `bias` is true, it
// also adds the module's variable `bias`, an unsigned integer of 4 bytes that starts as 0. The
// model is e2e::mix_on_host() with key + constant + bias.
inline std::string step_ptx(uint32_t constant, bool bias) {
  std::string text = R"(.version 7.0
.target sm_70
.address_size 64
)";
  if (bias) text += ".visible .global .align 4 .u32 bias = 0;\n";
  text += R"(.visible .entry step(.param .u64 words, .param .u32 count, .param .u32 key) {
  .reg .pred %p1;
  .reg .b32 %r<9>;
  .reg .b64 %rd<5>;
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mad.lo.u32 %r1, %r1, %r2, %r3;
  ld.param.u32 %r2, [count];
  setp.ge.u32 %p1, %r1, %r2;
  @%p1 ret;
  ld.param.u64 %rd1, [words];
  cvta.to.global.u64 %rd1, %rd1;
  mul.wide.u32 %rd2, %r1, 4;
  add.s64 %rd1, %rd1, %rd2;
  ld.param.u32 %r3, [key];
  ld.global.u32 %r4, [%rd1];
  mad.lo.u32 %r4, %r4, 5, %r1;
  add.u32 %r4, %r4, %r3;
)";
  text += "  add.u32 %r4, %r4, " + std::to_string(constant) + ";\n";
  if (bias) text += "  ld.global.u32 %r5, [bias];\n  add.u32 %r4, %r4, %r5;\n";
  text += "  st.global.u32 [%rd1], %r4;\n  ret;\n}\n";
  return text;
}

// `reverse(words, count)`, for one block: words[i] = words[count - 1 - i] + constant, through
// dynamic shared memory for all words.
inline std::string reverse_ptx(uint32_t constant) {
  return R"(.version 7.0
.target sm_70
.address_size 64
.extern .shared .align 4 .b8 pool[];
.visible .entry reverse(.param .u64 words, .param .u32 count) {
  .reg .pred %p1;
  .reg .b32 %r<9>;
  .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [words];
  cvta.to.global.u64 %rd1, %rd1;
  ld.param.u32 %r1, [count];
  mov.u32 %r2, %ntid.x;
  mov.u32 %r8, pool;
  mov.u32 %r3, %tid.x;
take:
  setp.ge.u32 %p1, %r3, %r1;
  @%p1 bra taken;
  mul.wide.u32 %rd2, %r3, 4;
  add.s64 %rd2, %rd1, %rd2;
  ld.global.u32 %r4, [%rd2];
  shl.b32 %r5, %r3, 2;
  add.u32 %r5, %r5, %r8;
  st.shared.u32 [%r5], %r4;
  add.u32 %r3, %r3, %r2;
  bra take;
taken:
  bar.sync 0;
  mov.u32 %r3, %tid.x;
give:
  setp.ge.u32 %p1, %r3, %r1;
  @%p1 ret;
  sub.u32 %r5, %r1, %r3;
  sub.u32 %r5, %r5, 1;
  shl.b32 %r5, %r5, 2;
  add.u32 %r5, %r5, %r8;
  ld.shared.u32 %r4, [%r5];
  add.u32 %r4, %r4, )" +
         std::to_string(constant) + R"(;
  mul.wide.u32 %rd2, %r3, 4;
  add.s64 %rd2, %rd1, %rd2;
  st.global.u32 [%rd2], %r4;
  add.u32 %r3, %r3, %r2;
  bra give;
}
)";
}

}  // namespace fresh
