// SPDX-License-Identifier: Apache-2.0
// The cases of approximate instructions. PTX does not define the bits of their results, so zeros,
// infinities and NaNs are compared as they are, and for other results only whether they are within
// PTX's error bound, by an identity that they must satisfy.
#include "rows.h"

namespace conformance {
namespace {

constexpr Inputs F = Inputs::kF32, D = Inputs::kF64, H = Inputs::kF16, B = Inputs::kBF16;

// Replaces the result in %r: a normal number by 1 if %p3 (within the bound) and else by 2, a
// subnormal number by its sign. For testp zeros are normal.
#define JUDGE                                                                                  \
  " testp.normal.f32 %p1, %r; setp.neu.and.f32 %p1, %r, 0f00000000, %p1; testp.subnormal.f32 " \
  "%p2, %r; "                                                                                  \
  "selp.b32 %r1, 1, 2, %p3; and.b32 %r2, %r, 0x80000000; selp.b32 %r, %r2, %r, %p2; "          \
  "selp.b32 %r, %r1, %r, %p1;"
// Is the magnitude of `value` at most `bound`?
#define WITHIN(value, bound) "abs.f32 %r4, " value "; setp.le.f32 %p3, %r4, " bound ";"
// JUDGE for f16 or bf16, in %h and as f32 in %r. Small numbers may have become zeros.
#define JUDGE_HALF                                                                                 \
  " abs.f32 %r4, %r; setp.lt.f32 %p1, %r4, 0f38800000; selp.b32 %r, 0, %r, %p1; "                  \
  "testp.normal.f32 %p1, %r; setp.neu.and.f32 %p1, %r, 0f00000000, %p1; selp.b32 %r1, 1, 2, %p3; " \
  "selp.b32 %r, %r1, %r, %p1;"
// 2 ^ %r0 and tanh %r0 as f32, in %r3.
#define POWER "ex2.approx.f32 %r3, %r0; "
#define TANGENT                                                                                \
  "min.f32 %r3, %r0, 0f41000000; max.f32 %r3, %r3, 0fC1000000; mul.f32 %r3, %r3, 0f4038AA3B; " \
  "ex2.approx.f32 %r3, %r3; add.f32 %r5, %r3, 0fBF800000; add.f32 %r6, %r3, 0f3F800000; "      \
  "div.rn.f32 %r3, %r5, %r6; "
// %p3: %r is near %r3, by a relative or an absolute bound.
#define NEAR_BY_PART(bound)                                          \
  "sub.f32 %r5, %r, %r3; abs.f32 %r6, %r3; mul.f32 %r6, %r6, " bound \
  "; abs.f32 %r5, %r5; "                                             \
  "setp.le.f32 %p3, %r5, %r6;"
#define NEAR(bound) "sub.f32 %r5, %r, %r3; " WITHIN("%r5", bound)

// clang-format off
const Row kRows[] = {
    {F, "%r", "rcp.approx{,.ftz}.f32 %r, %a; fma.rn.f32 %r3, %r, %a, 0fBF800000; " WITHIN("%r3", "0f35000000") JUDGE},
    {F, "%r", "rsqrt.approx{,.ftz}.f32 %r, %a; mul.f32 %r3, %r, %a; fma.rn.f32 %r3, %r3, %r, 0fBF800000; " WITHIN("%r3", "0f35800000") JUDGE},
    {F, "%r", "sqrt.approx{,.ftz}.f32 %r, %a; neg.f32 %r3, %a; fma.rn.f32 %r3, %r, %r, %r3; mul.f32 %r5, %a, 0f35800000; abs.f32 %r3, %r3; setp.le.f32 %p3, %r3, %r5; setp.lt.or.f32 %p3, %a, 0f0D800000, %p3; " JUDGE},
    // Only divisors between 2^-100 and 2^100: beyond these, both forms may give zero.
    {F, "%r", "div.{approx,full}{,.ftz}.f32 %r, %a, %b; div.rn.f32 %r3, %a, %b; " NEAR_BY_PART("0f35000000") JUDGE " abs.f32 %r4, %b; setp.lt.f32 %p0, %r4, 0f71800000; setp.gt.and.f32 %p0, %r4, 0f0D800000, %p0; selp.b32 %r, %r, 3, %p0;"},
    // Checked by lg2 and ex2 as inverses of each other, and by a chord of the logarithm.
    {F, "%r", "ex2.approx{,.ftz}.f32 %r, %a; lg2.approx.f32 %r3, %r; sub.f32 %r3, %r3, %a; " WITHIN("%r3", "0f39000000") JUDGE},
    {F, "%r", "lg2.approx{,.ftz}.f32 %r, %a; shr.u32 %r3, %a, 23; sub.u32 %r3, %r3, 127; cvt.rn.f32.s32 %r3, %r3; and.b32 %r5, %a, 0x7fffff; cvt.rn.f32.u32 %r5, %r5; fma.rn.f32 %r3, %r5, 0f34000000, %r3; sub.f32 %r3, %r, %r3; " WITHIN("%r3", "0f3DB851EC") " testp.subnormal.f32 %p2, %a; or.pred %p3, %p3, %p2; " JUDGE},
    // Checked by sin^2 + cos^2 = 1 for arguments for which PTX has bounds for both; for others, only
    // infinities and NaNs are compared.
    {F, "%r", "cos.approx{,.ftz}.f32 %r, %a; sin.approx.f32 %r3, %a; cos.approx.f32 %r5, %a; mul.f32 %r3, %r3, %r3; fma.rn.f32 %r3, %r5, %r5, %r3; add.f32 %r3, %r3, 0fBF800000; " WITHIN("%r3", "0f36800000") JUDGE " abs.f32 %r4, %a; setp.lt.f32 %p0, %r4, 0f40000000; testp.finite.f32 %p1, %a; not.pred %p2, %p0; and.pred %p1, %p1, %p2; selp.b32 %r, 3, %r, %p1;"},
    // Likewise for sin; of small arguments only zeros are compared, since others may become zeros.
    {F, "%r", "sin.approx{,.ftz}.f32 %r, %a; sin.approx.f32 %r3, %a; cos.approx.f32 %r5, %a; mul.f32 %r3, %r3, %r3; fma.rn.f32 %r3, %r5, %r5, %r3; add.f32 %r3, %r3, 0fBF800000; " WITHIN("%r3", "0f36800000") JUDGE " abs.f32 %r4, %a; setp.lt.f32 %p0, %r4, 0f40000000; setp.gt.and.f32 %p0, %r4, 0f37800000, %p0; setp.equ.or.f32 %p0, %r4, 0f00000000, %p0; testp.finite.f32 %p1, %a; not.pred %p2, %p0; and.pred %p1, %p1, %p2; selp.b32 %r, 3, %r, %p1;"},
    {F, "%r", "mov.b32 %r0, %a; tanh.approx.f32 %r, %a; " TANGENT NEAR("0f3A800000") JUDGE},
    {H, "%r", "ex2.approx.f16 %h, %ha; cvt.f32.f16 %r, %h; cvt.f32.f16 %r0, %ha; " POWER NEAR_BY_PART("0f3B000000") JUDGE_HALF},
    {H, "%r", "ex2.approx.f16x2 %r, %a; mov.b32 {%h0, %h1}, %r; mov.b32 {%h2, %h3}, %a; cvt.f32.f16 %r, %h1; cvt.f32.f16 %r0, %h3; " POWER NEAR_BY_PART("0f3B000000") JUDGE_HALF},
    {B, "%r", "ex2.approx.ftz.bf16 %h, %ha; cvt.f32.bf16 %r, %h; cvt.f32.bf16 %r0, %ha; " POWER NEAR_BY_PART("0f3C800000") JUDGE_HALF},
    {B, "%r", "ex2.approx.ftz.bf16x2 %r, %a; mov.b32 {%h0, %h1}, %r; mov.b32 {%h2, %h3}, %a; cvt.f32.bf16 %r, %h1; cvt.f32.bf16 %r0, %h3; " POWER NEAR_BY_PART("0f3C800000") JUDGE_HALF},
    {H, "%r", "tanh.approx.f16 %h, %ha; cvt.f32.f16 %r, %h; cvt.f32.f16 %r0, %ha; " TANGENT NEAR("0f3B000000") JUDGE_HALF},
    {H, "%r", "tanh.approx.f16x2 %r, %a; mov.b32 {%h0, %h1}, %r; mov.b32 {%h2, %h3}, %a; cvt.f32.f16 %r, %h1; cvt.f32.f16 %r0, %h3; " TANGENT NEAR("0f3B000000") JUDGE_HALF},
    {B, "%r", "tanh.approx.bf16 %h, %ha; cvt.f32.bf16 %r, %h; cvt.f32.bf16 %r0, %ha; " TANGENT NEAR("0f3C000000") JUDGE_HALF},
    {B, "%r", "tanh.approx.bf16x2 %r, %a; mov.b32 {%h0, %h1}, %r; mov.b32 {%h2, %h3}, %a; cvt.f32.bf16 %r, %h1; cvt.f32.bf16 %r0, %h3; " TANGENT NEAR("0f3C000000") JUDGE_HALF},
    // f64: the result becomes 1 if it is within the bound, else 2.
    {D, "%q", "rcp.approx.ftz.f64 %q, %wa; fma.rn.f64 %q0, %q, %wa, 0dBFF0000000000000; abs.f64 %q0, %q0; setp.le.f64 %p3, %q0, 0d3EE0000000000000; selp.b64 %q1, 1, 2, %p3; testp.normal.f64 %p1, %q; setp.neu.and.f64 %p1, %q, 0d0000000000000000, %p1; selp.b64 %q, %q1, %q, %p1;"},
    {D, "%q", "rsqrt.approx{,.ftz}.f64 %q, %wa; mul.f64 %q0, %q, %wa; fma.rn.f64 %q0, %q0, %q, 0dBFF0000000000000; abs.f64 %q0, %q0; setp.le.f64 %p3, %q0, 0d3EE0000000000000; selp.b64 %q1, 1, 2, %p3; testp.normal.f64 %p1, %q; setp.neu.and.f64 %p1, %q, 0d0000000000000000, %p1; selp.b64 %q, %q1, %q, %p1;"},
};
// clang-format on

}  // namespace

void add_approximate_cases(std::vector<Case>* all) {
  Case like;
  like.memory = true;  // for its registers
  add_rows(kRows, like, all);
}

}  // namespace conformance
