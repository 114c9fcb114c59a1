// SPDX-License-Identifier: Apache-2.0
// One row per instruction form: a few lines of PTX, inputs, the value that the PTX ISA (or, where
// it leaves a choice, the hardware) gives. Inputs are in %a0.. (b32), %w0.. (b64) by row; the
// result is %r (b32) or %q (b64). Each row runs with a full warp, with one lane and under a guard,
// and no other lane may change.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "engine_fixture.h"

namespace openmps::softgpu::test {
namespace {

uint64_t f(float x) { return std::bit_cast<uint32_t>(x); }
uint64_t d(double x) { return std::bit_cast<uint64_t>(x); }
constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNan = std::numeric_limits<float>::quiet_NaN();

struct Row {
  const char* code;  // uses %w0 %w1 %w2, writes %q; low halves in %a0 %a1 %a2, %r
  std::vector<uint64_t> inputs;
  uint64_t expected;
  bool wide = false;  // the result is %q, not %r
};

const std::vector<Row>& rows() {
  // clang-format off
  static const std::vector<Row> made = {
      {"add.s32 %r, %a0, %a1;", {5, ~0u}, 4},
      {"add.sat.s32 %r, %a0, %a1;", {0x7fffffff, 1}, 0x7fffffff},
      {"sub.sat.s32 %r, %a0, %a1;", {0x80000000, 1}, 0x80000000},
      {"add.s64 %q, %w0, %w1;", {0xffffffffffffffff, 2}, 1, true},
      {"add.cc.u32 %r, %a0, %a1; addc.u32 %r, %a2, 0;", {~0u, 1, 7}, 8},
      {"sub.cc.u32 %r, %a0, %a1; subc.u32 %r, %a2, 0;", {0, 1, 7}, 6},
      {"mad.lo.cc.u32 %r, %a0, %a1, %a2; madc.hi.u32 %r, %a0, %a1, 0;", {0x10000, 0xffff, 0x10000}, 1},
      {"add.cc.u64 %q, %w0, %w1; addc.u64 %q, %w2, 1;", {~0ull, 1, 7}, 9, true},
      {"mul.hi.u32 %r, %a0, %a1;", {~0u, ~0u}, 0xfffffffe},
      {"mul.hi.s32 %r, %a0, %a1;", {~0u, 5}, ~0u},
      {"mul.wide.s32 %q, %a0, %a1;", {~0u, 5}, uint64_t(-5), true},
      {"mul.wide.u32 %q, %a0, %a1;", {~0u, 5}, 0x4fffffffbull, true},
      {"mul.hi.u64 %q, %w0, %w1;", {~0ull, ~0ull}, ~1ull, true},
      {"mad.wide.s32 %q, %a0, %a1, %w2;", {~1u, 3, 10}, 4, true},
      {"mad.hi.sat.s32 %r, %a0, %a1, %a2;", {0x7fffffff, 0x7fffffff, 0x7fffffff}, 0x7fffffff},
      {"mul24.lo.u32 %r, %a0, %a1;", {0xff000003, 7}, 21},
      {"mul24.hi.s32 %r, %a0, %a1;", {0x800000, 0x800000}, 0x40000000},
      {"mad24.lo.s32 %r, %a0, %a1, %a2;", {3, 0xffffff, 10}, 7},
      {"sad.s32 %r, %a0, %a1, %a2;", {~0u, 1, 10}, 12},
      {"div.s32 %r, %a0, %a1;", {uint32_t(-7), 2}, uint32_t(-3)},
      {"div.s32 %r, %a0, %a1;", {0x80000000, ~0u}, 0x80000000},
      {"div.u32 %r, %a0, %a1;", {7, 0}, ~0u},
      {"rem.s32 %r, %a0, %a1;", {uint32_t(-7), 2}, ~0u},
      {"rem.u32 %r, %a0, %a1;", {7, 0}, ~0u},
      {"div.u64 %q, %w0, %w1;", {1ull << 40, 3}, (1ull << 40) / 3, true},
      {"rem.s64 %q, %w0, %w1;", {uint64_t(-100), 7}, uint64_t(-2), true},
      {"abs.s32 %r, %a0;", {0x80000000}, 0x80000000},
      {"min.s32 %r, %a0, %a1;", {~0u, 1}, ~0u},
      {"max.u32 %r, %a0, %a1;", {~0u, 1}, ~0u},
      {"min.s64 %q, %w0, %w1;", {~0ull, 1}, ~0ull, true},
      {"max.s16x2 %r, %a0, %a1;", {0xffff0005, 0x0003fff0}, 0x00030005},
      {"popc.b32 %r, %a0;", {0xf0f00001}, 9},
      {"popc.b64 %r, %w0;", {0xff000000000000ffull}, 16},
      {"clz.b32 %r, %a0;", {0}, 32},
      {"clz.b64 %r, %w0;", {1}, 63},
      {"bfind.u32 %r, %a0;", {0x00800000}, 23},
      {"bfind.s32 %r, %a0;", {~0u}, ~0u},
      {"bfind.shiftamt.u32 %r, %a0;", {0x00800000}, 8},
      {"bfind.u64 %r, %w0;", {1ull << 45}, 45},
      {"brev.b32 %r, %a0;", {1}, 0x80000000},
      {"brev.b64 %q, %w0;", {1}, 1ull << 63, true},
      {"bfe.u32 %r, %a0, 4, 8;", {0xabcd1234}, 0x23},
      {"bfe.s32 %r, %a0, 4, 8;", {0x00000f80}, uint32_t(-8)},
      {"bfe.s32 %r, %a0, 28, 16;", {0x80000000}, uint32_t(-8)},
      {"bfe.u32 %r, %a0, 4, 0;", {~0u}, 0},
      {"bfe.u32 %r, %a0, %a1, 40;", {0x80000000, 0x11f}, 1},  // eight bits of the position count
      {"bfe.s64 %q, %w0, 60, 8;", {1ull << 63}, uint64_t(-8), true},
      {"bfi.b32 %r, %a0, %a1, 8, 4;", {0xf, 0}, 0xf00},
      {"bfi.b32 %r, %a0, %a1, 28, 16;", {0xff, 1}, 0xf0000001},
      {"bfi.b64 %q, %w0, %w1, 60, 8;", {0xff, 0}, 0xfull << 60, true},
      {"bmsk.clamp.b32 %r, %a0, %a1;", {4, 6}, 0x3f0},
      {"bmsk.wrap.b32 %r, %a0, %a1;", {36, 6}, 0x3f0},
      {"szext.clamp.s32 %r, %a0, 4;", {0x8}, uint32_t(-8)},
      {"fns.b32 %r, %a0, 0, 3;", {0b1011010}, 4},
      {"not.b32 %r, %a0;", {0xff}, 0xffffff00},
      {"cnot.b32 %r, %a0;", {0}, 1},
      {"lop3.b32 %r, %a0, %a1, %a2, 0xe8;", {0xcc, 0xaa, 0xf0}, 0xe8},  // majority
      {"lop3.b32 %r, %a0, %a1, %a2, 0x96;", {0x12, 0x34, 0x56}, 0x12 ^ 0x34 ^ 0x56},
      {"shl.b32 %r, %a0, 32;", {1}, 0},
      {"shl.b32 %r, %a0, %a1;", {3, 31}, 0x80000000},
      {"shr.u32 %r, %a0, 40;", {~0u}, 0},
      {"shr.s32 %r, %a0, 40;", {0x80000000}, ~0u},
      {"shr.s64 %q, %w0, 63;", {1ull << 63}, ~0ull, true},
      {"shl.b64 %q, %w0, 64;", {1}, 0, true},
      {"shf.l.wrap.b32 %r, %a0, %a1, 36;", {0x12345678, 0x9abcdef0}, 0xabcdef01},
      {"shf.l.clamp.b32 %r, %a0, %a1, 40;", {0x12345678, 0x9abcdef0}, 0x12345678},
      {"shf.r.clamp.b32 %r, %a0, %a1, 40;", {0x12345678, 0x9abcdef0}, 0x9abcdef0},
      {"shf.r.wrap.b32 %r, %a0, %a1, 4;", {0x12345678, 0x9abcdef0}, 0x01234567},
      {"prmt.b32 %r, %a0, %a1, 0x7531;", {0x33221100, 0x77665544}, 0x77553311},
      {"prmt.b32 %r, %a0, %a1, 0x8;", {0x80, 0}, 0x808080ff},
      {"prmt.b32.f4e %r, %a0, %a1, 1;", {0x33221100, 0x77665544}, 0x44332211},
      {"prmt.b32.b4e %r, %a0, %a1, 1;", {0x33221100, 0x77665544}, 0x66770011},
      {"prmt.b32.rc8 %r, %a0, %a1, 2;", {0x33221100, 0}, 0x22222222},
      {"prmt.b32.ecl %r, %a0, %a1, 1;", {0x33221100, 0}, 0x33221111},
      {"prmt.b32.ecr %r, %a0, %a1, 2;", {0x33221100, 0}, 0x22221100},
      {"prmt.b32.rc16 %r, %a0, %a1, 1;", {0x33221100, 0}, 0x33223322},
      {"dp4a.s32.s32 %r, %a0, %a1, %a2;", {0xff020304, 0x01010101, 5}, 13},
      {"dp4a.u32.u32 %r, %a0, %a1, %a2;", {0xff020304, 0x01010101, 5}, 269},
      {"dp2a.lo.s32.s32 %r, %a0, %a1, %a2;", {0x00020003, 0x0403ff02, 1}, 5},
      {"dp2a.hi.u32.u32 %r, %a0, %a1, %a2;", {0x00020003, 0x04030000, 1}, 18},
      {"vabsdiff4.u32.u32.u32 %r, %a0, %a1, %a2;", {0x01ff0510, 0x03000510, 0}, 0x02ff0000},
      {"vabsdiff4.u32.u32.u32.add %r, %a0, %a1, %a2;", {0x01ff0510, 0x03000510, 4}, 0x105},
      // Floating point.
      {"add.f32 %r, %a0, %a1;", {f(1.5f), f(2.25f)}, f(3.75f)},
      {"add.rz.f32 %r, %a0, %a1;", {f(1.f), f(-0x1p-30f)}, f(0x1.fffffep-1f)},
      {"add.rp.f32 %r, %a0, %a1;", {f(1.f), f(0x1p-30f)}, f(0x1.000002p0f)},
      {"add.rm.f32 %r, %a0, %a1;", {f(-1.f), f(-0x1p-30f)}, f(-0x1.000002p0f)},
      {"add.f32 %r, %a0, %a1;", {f(1.f), f(0x1p-30f)}, f(1.f)},  // the mode is back to nearest
      {"add.ftz.f32 %r, %a0, %a1;", {f(0x1p-140f), f(0x1p-140f)}, 0},
      {"add.f32 %r, %a0, %a1;", {f(0x1p-140f), f(0x1p-140f)}, f(0x1p-139f)},
      {"mul.sat.f32 %r, %a0, %a1;", {f(3.f), f(2.f)}, f(1.f)},
      {"add.sat.f32 %r, %a0, %a1;", {f(kNan), f(2.f)}, 0},
      {"mul.rn.f32 %r, %a0, %a1;", {f(0x1.000002p0f), f(0x1.000002p0f)}, f(0x1.000004p0f)},
      {"fma.rn.f32 %r, %a0, %a1, %a2;", {f(0x1.000002p0f), f(0x1.000002p0f), f(-0x1.000004p0f)}, f(0x1p-46f)},
      {"fma.rz.f32 %r, %a0, %a1, %a2;", {f(1.f), f(1.f), f(-0x1p-30f)}, f(0x1.fffffep-1f)},
      {"fma.rn.f64 %q, %w0, %w1, %w2;", {d(3), d(4), d(5)}, d(17), true},
      {"div.rn.f32 %r, %a0, %a1;", {f(1.f), f(3.f)}, f(1.f / 3.f)},
      {"div.full.f32 %r, %a0, %a1;", {f(1.f), f(4.f)}, f(.25f)},
      {"rcp.rn.f32 %r, %a0;", {f(3.f)}, f(1.f / 3.f)},
      {"rcp.rm.f32 %r, %a0;", {f(3.f)}, f(std::nextafter(1.f / 3.f, 0.f))},
      {"rcp.approx.f32 %r, %a0;", {f(-0.f)}, f(-kInf)},
      {"rcp.approx.ftz.f64 %q, %w0;", {d(4)}, d(.25), true},
      {"sqrt.rn.f32 %r, %a0;", {f(2.f)}, f(std::sqrt(2.f))},
      {"sqrt.rz.f32 %r, %a0;", {f(2.f)}, f(std::sqrt(2.f) > 1.41421356237309505 ? std::nextafter(std::sqrt(2.f), 0.f) : std::sqrt(2.f))},
      {"rsqrt.approx.f32 %r, %a0;", {f(0.f)}, f(kInf)},
      {"rsqrt.approx.f32 %r, %a0;", {f(kInf)}, 0},
      {"rsqrt.approx.f32 %r, %a0;", {f(4.f)}, f(.5f)},
      {"rsqrt.approx.ftz.f32 %r, %a0;", {f(0x1p-140f)}, f(kInf)},
      {"min.f32 %r, %a0, %a1;", {f(kNan), f(2.f)}, f(2.f)},
      {"min.f32 %r, %a0, %a1;", {f(0.f), f(-0.f)}, f(-0.f)},
      {"max.f32 %r, %a0, %a1;", {f(-0.f), f(0.f)}, f(0.f)},
      {"max.NaN.f32 %r, %a0, %a1;", {f(1.f), f(kNan)}, 0x7fffffff},
      {"min.xorsign.abs.f32 %r, %a0, %a1;", {f(-3.f), f(2.f)}, f(-2.f)},
      {"max.ftz.xorsign.abs.f32 %r, %a0, %a1;", {f(-3.f), f(-4.f)}, f(4.f)},
      {"max.xorsign.abs.f32 %r, %a0, %a1;", {f(-3.f), f(kNan)}, f(-3.f)},
      {"max.NaN.xorsign.abs.f32 %r, %a0, %a1;", {f(-3.f), f(kNan)}, 0x7fffffff},
      {"cvt.u16.u32 %h, %a0; cvt.u16.u32 %h2, %a1; min.xorsign.abs.f16 %h, %h, %h2; cvt.u32.u16 %r, %h;", {0xc200, 0x4000}, 0xc000},
      {"cvt.u16.u32 %h, %a0; cvt.u16.u32 %h2, %a1; max.xorsign.abs.f16 %h, %h, %h2; cvt.u32.u16 %r, %h;", {0xc200, 0xc000}, 0x4200},
      {"cvt.u16.u32 %h, %a0; cvt.u16.u32 %h2, %a1; max.NaN.xorsign.abs.f16 %h, %h, %h2; cvt.u32.u16 %r, %h;", {0xc200, 0x7e00}, 0x7fff},
      {"cvt.u16.u32 %h, %a0; cvt.u16.u32 %h2, %a1; max.xorsign.abs.bf16 %h, %h, %h2; cvt.u32.u16 %r, %h;", {0xc040, 0x4000}, 0xc040},
      {"max.xorsign.abs.f16x2 %r, %a0, %a1;", {0xc2004200, 0x40004400}, 0xc2004400},
      {"min.xorsign.abs.bf16x2 %r, %a0, %a1;", {0xc040c040, 0xc0004000}, 0x4000c000},
      {"min.NaN.xorsign.abs.f16x2 %r, %a0, %a1;", {0x7e00c200, 0xc0004000}, 0x7fffc000},
      {"min.relu.s32 %r, %a0, %a1;", {5, ~0u}, 0},
      {"add.f16x2 %r, %a0, %a1;", {0x00010400, 0x00008001}, 0x000103ff},
      {"add.ftz.f16x2 %r, %a0, %a1;", {0x00010400, 0x00008001}, 0x00000400},
      {"fma.rn.ftz.f16x2 %r, %a0, %a1, %a2;", {0x84003c00, 0x38008001, 0x3c00}, 0x80003c00},
      {"cvt.u16.u32 %h, %a0; abs.ftz.f16 %h, %h; cvt.u32.u16 %r, %h;", {0x8001}, 0},
      {"cvt.u16.u32 %h, %a0; neg.ftz.f16 %h, %h; cvt.u32.u16 %r, %h;", {0x0001}, 0x8000},
      {"max.ftz.xorsign.abs.f16x2 %r, %a0, %a1;", {0x80013c00, 0x0001bc00}, 0x8000bc00},
      {"max.relu.s16x2 %r, %a0, %a1;", {0x0003fffe, 0x0001ffff}, 0x00030000},
      {"cvt.u16.u32 %h, %a0; fma.rn.relu.f16 %h, %h, %h, %h; cvt.u32.u16 %r, %h;", {0xb800}, 0},
      {"cvt.u16.u32 %h, %a0; fma.rn.relu.bf16 %h, %h, %h, %h; cvt.u32.u16 %r, %h;", {0x4000}, 0x40c0},
      {"fma.rn.relu.f16x2 %r, %a0, %a1, %a2;", {0x40004000, 0xc0003c00, 0x3c003c00}, 0x00004200},
      {"fma.rn.relu.bf16x2 %r, %a0, %a1, %a2;", {0x40007fc0, 0xc0003f80, 0x3f803f80}, 0x00007fff},
      {"abs.f32 %r, %a0;", {f(-2.f)}, f(2.f)},
      {"neg.f64 %q, %w0;", {d(1)}, d(-1), true},
      {"copysign.f32 %r, %a0, %a1;", {f(-1.f), f(5.f)}, f(-5.f)},
      {"ex2.approx.f32 %r, %a0;", {f(10.f)}, f(1024.f)},
      {"ex2.approx.f32 %r, %a0;", {f(-140.f)}, f(0x1p-140f)},
      {"ex2.approx.ftz.f32 %r, %a0;", {f(-140.f)}, 0},
      {"ex2.approx.f32 %r, %a0;", {f(200.f)}, f(kInf)},
      {"lg2.approx.f32 %r, %a0;", {f(1024.f)}, f(10.f)},
      // As ptxas reads them, too.
      {"lg2.approx.f32.ftz %r, %a0;", {f(0x1p-140f)}, f(-kInf)},
      {"fma.f32.rn %r, %a0, %a1, %a2;", {f(2.f), f(3.f), f(4.f)}, f(10.f)},
      {"cvt.f32.s32.rn %r, %a0;", {7}, f(7.f)},
      {"lg2.approx.f32 %r, %a0;", {f(0x1p-140f)}, f(-140.f)},
      {"lg2.approx.f32 %r, %a0;", {f(0.f)}, f(-kInf)},
      {"sin.approx.f32 %r, %a0;", {f(0.f)}, f(0.f)},
      {"cos.approx.f32 %r, %a0;", {f(0.f)}, f(1.f)},
      {"tanh.approx.f32 %r, %a0;", {f(100.f)}, f(1.f)},
      {"testp.subnormal.f32 %p, %a0; selp.u32 %r, 1, 0, %p;", {f(0x1p-140f)}, 1},
      {"testp.infinite.f32 %p, %a0; selp.u32 %r, 1, 0, %p;", {f(kInf)}, 1},
      // Comparison.
      {"setp.lt.s32 %p, %a0, %a1; selp.u32 %r, 1, 2, %p;", {~0u, 1}, 1},
      {"setp.lo.u32 %p, %a0, %a1; selp.u32 %r, 1, 2, %p;", {~0u, 1}, 2},
      {"setp.ltu.f32 %p, %a0, %a1; selp.u32 %r, 1, 2, %p;", {f(kNan), f(1.f)}, 1},
      {"setp.ne.f32 %p, %a0, %a1; selp.u32 %r, 1, 2, %p;", {f(kNan), f(1.f)}, 2},
      {"setp.neu.f32 %p, %a0, %a1; selp.u32 %r, 1, 2, %p;", {f(kNan), f(1.f)}, 1},
      {"setp.num.f32 %p, %a0, %a1; selp.u32 %r, 1, 2, %p;", {f(3.f), f(1.f)}, 1},
      {"setp.eq.ftz.f32 %p, %a0, %a1; selp.u32 %r, 1, 2, %p;", {f(0x1p-140f), f(0.f)}, 1},
      {"setp.lt.s32 %o, %a0, %a1; setp.eq.and.s32 %p|%o, %a0, %a2, %o; selp.u32 %r, 1, 2, %p; selp.u32 %t, 10, 20, %o; add.u32 %r, %r, %t;",
       {5, 9, 6}, 12},
      {"set.lt.u32.f32 %r, %a0, %a1;", {f(1.f), f(2.f)}, ~0u},
      {"set.lt.f32.s32 %r, %a0, %a1;", {1, 2}, f(1.f)},
      {"slct.b32.s32 %r, %a0, %a1, %a2;", {1, 2, ~0u}, 2},
      {"slct.f32.f32 %r, %a0, %a1, %a2;", {f(1.f), f(2.f), f(-0.f)}, f(1.f)},
      {"setp.eq.u32 %p, %a0, 5; @!%p mov.u32 %a1, 77; mov.u32 %r, %a1;", {4, 3}, 77},
      {"setp.eq.u32 %p, %a0, 5; @%p mov.u32 %a1, 77; mov.u32 %r, %a1;", {4, 3}, 3},
      // Conversion.
      {"cvt.s64.s32 %q, %a0;", {~0u}, ~0ull, true},
      {"cvt.u64.u32 %q, %a0;", {~0u}, 0xffffffff, true},
      {"cvt.s32.s8 %r, %a0;", {0x180}, uint32_t(-128)},
      {"cvt.u32.u8 %r, %a0;", {0x1ff}, 0xff},
      {"cvt.sat.u8.s32 %r, %a0;", {300}, 255},
      {"cvt.sat.u8.s32 %r, %a0;", {~0u}, 0},
      {"cvt.sat.s8.s32 %r, %a0;", {uint32_t(-300)}, uint32_t(-128)},
      {"cvt.rzi.s32.f32 %r, %a0;", {f(-2.7f)}, uint32_t(-2)},
      {"cvt.rni.s32.f32 %r, %a0;", {f(2.5f)}, 2},
      {"cvt.rmi.s32.f32 %r, %a0;", {f(-2.1f)}, uint32_t(-3)},
      {"cvt.rpi.s32.f32 %r, %a0;", {f(2.1f)}, 3},
      {"cvt.rzi.s32.f32 %r, %a0;", {f(1e20f)}, 0x7fffffff},
      {"cvt.rzi.u32.f32 %r, %a0;", {f(-5.f)}, 0},
      {"cvt.rzi.s32.f32 %r, %a0;", {f(kNan)}, 0},
      {"cvt.rzi.u8.f32 %r, %a0;", {f(300.f)}, 255},
      {"cvt.rzi.s64.f64 %q, %w0;", {d(-1e15)}, uint64_t(-1000000000000000), true},
      {"cvt.rn.f32.u32 %r, %a0;", {~0u}, f(4294967296.f)},
      {"cvt.rz.f32.u32 %r, %a0;", {~0u}, f(4294967040.f)},
      {"cvt.rn.f64.s32 %q, %a0;", {~0u}, d(-1), true},
      {"cvt.rn.f32.f64 %r, %w0;", {d(0.1)}, f(0.1f)},
      {"cvt.rm.f32.f64 %r, %w0;", {d(0.1)}, f(std::nextafter(0.1f, 0.f))},
      {"cvt.f64.f32 %q, %a0;", {f(1.5f)}, d(1.5), true},
      {"cvt.rni.f32.f32 %r, %a0;", {f(3.5f)}, f(4.f)},
      {"cvt.sat.f32.f32 %r, %a0;", {f(3.5f)}, f(1.f)},
      {"cvt.rn.f16.f32 %h, %a0; cvt.u32.u16 %r, %h;", {f(1.5f)}, 0x3e00},
      {"cvt.rn.f16.f32 %h, %a0; cvt.u32.u16 %r, %h;", {f(0x1p-24f)}, 1},
      {"cvt.rn.f16.f32 %h, %a0; cvt.u32.u16 %r, %h;", {f(65520.f)}, 0x7c00},
      {"cvt.rz.f16.f32 %h, %a0; cvt.u32.u16 %r, %h;", {f(65535.f)}, 0x7bff},
      {"cvt.u16.u32 %h, %a0; cvt.f32.f16 %r, %h;", {0x0001}, f(0x1p-24f)},
      {"cvt.u16.u32 %h, %a0; cvt.f32.f16 %r, %h;", {0xfc00}, f(-kInf)},
      {"cvt.rn.f16x2.f32 %r, %a0, %a1;", {f(1.f), f(2.f)}, 0x3c004000},
      {"cvt.rn.bf16x2.f32 %r, %a0, %a1;", {f(1.f), f(2.f)}, 0x3f804000},
      {"cvt.rn.bf16.f32 %h, %a0; cvt.u32.u16 %r, %h;", {f(1.00390625f)}, 0x3f80},
      {"cvt.rna.tf32.f32 %r, %a0;", {0x3f801000}, 0x3f802000},
      {"cvt.rn.tf32.f32 %r, %a0;", {0x3f801000}, 0x3f800000},
      {"cvt.rn.tf32.f32 %r, %a0;", {0x3f803000}, 0x3f804000},
      {"cvt.rn.relu.tf32.f32 %r, %a0;", {f(-1.f)}, 0},
      {"cvt.rz.relu.tf32.f32 %r, %a0;", {f(1.5f)}, f(1.5f)},
      {"cvt.rna.satfinite.tf32.f32 %r, %a0;", {f(-kInf)}, 0xff7fe000},
      {"cvt.rn.relu.f16.f32 %h, %a0; cvt.u32.u16 %r, %h;", {f(-1.f)}, 0},
      {"cvt.rn.relu.bf16.f32 %h, %a0; cvt.u32.u16 %r, %h;", {f(kNan)}, 0x7fff},
      {"cvt.rn.satfinite.f16.f32 %h, %a0; cvt.u32.u16 %r, %h;", {f(-70000.f)}, 0xfbff},
      {"cvt.rn.relu.satfinite.f16x2.f32 %r, %a0, %a1;", {f(70000.f), f(-2.f)}, 0x7bff0000},
      {"cvt.rn.satfinite.bf16x2.f32 %r, %a0, %a1;", {f(-kInf), f(1.f)}, 0xff7f3f80},
      {"cvt.rn.satfinite.relu.e4m3x2.f32 %h, %a0, %a1; cvt.u32.u16 %r, %h;", {f(-1.f), f(1.5f)}, 0x003c},
      {"cvt.rn.satfinite.relu.e5m2x2.f32 %h, %a0, %a1; cvt.u32.u16 %r, %h;", {f(kNan), f(-kInf)}, 0x7f00},
      {"cvt.rn.satfinite.relu.e4m3x2.f16x2 %h, %a0; cvt.u32.u16 %r, %h;", {0x3e00bc00}, 0x3c00},
      {"cvt.u16.u32 %h, %a0; cvt.rn.relu.f16x2.e5m2x2 %r, %h;", {0xbc3c}, 0x00003c00},
      {"cvt.rn.satfinite.e4m3x2.f32 %h, %a0, %a1; cvt.u32.u16 %r, %h;", {f(1000.f), f(-1.5f)}, 0x7ebc},
      {"cvt.u16.u32 %h, %a0; cvt.rn.f16x2.e4m3x2 %r, %h;", {0x38bc}, 0x3c00be00},
      // Movement.
      {"mov.b64 %q, {%a0, %a1};", {1, 2}, 0x200000001ull, true},
      {"mov.b64 {%t, %r}, %w0;", {0x500000004ull}, 5},
      {"mov.b64 {_, %r}, %w0;", {0x500000004ull}, 5},
      {"mov.b32 {%h, %h2}, %a0; mov.b32 %r, {%h2, %h};", {0x12345678}, 0x56781234},
      {"{ .reg .b32 %a0; mov.u32 %a0, 9; mov.u32 %r, %a0; }", {1}, 9},
      {"mov.u32 %r, WARP_SZ;", {}, 32},
      {"mov.f32 %r, 0f3F800000;", {}, f(1.f)},
      {"mov.u32 %r, -(1 << 4) | 3;", {}, uint32_t(-(1 << 4) | 3)},
      {"add.f16x2 %r, %a0, %a1;", {0x3c003c00, 0x40003800}, 0x42003e00},
      {"fma.rn.f16x2 %r, %a0, %a1, %a2;", {0x40004000, 0x40003c00, 0x3c003c00}, 0x45004200},
      {"fma.rn.bf16x2 %r, %a0, %a1, %a2;", {0x40004000, 0x40003f80, 0x3f803f80}, 0x40a04040},
      {"set.eq.f16x2.f16x2 %r, %a0, %a1;", {0x3c003c00, 0x3c004000}, 0x3c000000},
  };
  // clang-format on
  return made;
}

std::string module_of(const Row& row) {
  return std::string(
             ".version 8.6\n.target sm_89\n.address_size 64\n"
             ".visible .entry k(.param .u64 in, .param .u64 out, .param .u32 only)\n{\n"
             ".reg .pred %p, %o, %lane; .reg .b16 %h, %h2; .reg .b32 %a<3>, %r, %t, %i, %only;\n"
             ".reg .b64 %w<3>, %q, %in, %out, %at;\n"
             "mov.u32 %i, %tid.x; ld.param.u64 %in, [in]; ld.param.u64 %out, [out]; ld.param.u32 "
             "%only, [only];\n"
             "mul.wide.u32 %at, %i, 8; add.s64 %out, %out, %at;\n"
             "ld.global.u64 %w0, [%in]; ld.global.u64 %w1, [%in+8]; ld.global.u64 %w2, [%in+16];\n"
             "cvt.u32.u64 %a0, %w0; cvt.u32.u64 %a1, %w1; cvt.u32.u64 %a2, %w2;\n"
             "mov.u32 %r, 0; mov.u64 %q, 0;\n"
             "setp.eq.u32 %lane, %only, 32; setp.eq.or.u32 %lane, %i, %only, %lane;\n"
             "@!%lane bra DONE;\n") +
         row.code +
         (row.wide ? "\nst.global.u64 [%out], %q;\n"
                   : "\ncvt.u64.u32 %q, %r;\nst.global.u64 [%out], %q;\n") +
         "DONE: ret;\n}\n";
}

TEST(Opcodes, EveryRowGivesItsValue) {
  for (const Row& row : rows()) {
    SCOPED_TRACE(row.code);
    Device device;
    ASSERT_TRUE(device.load(module_of(row))) << device.error.log;
    ASSERT_EQ(device.unsupported(), "");
    std::vector<uint64_t> in = row.inputs;
    in.resize(3);
    const uint64_t untouched = 0x1234567812345678;
    for (uint32_t only : {32u, 0u, 17u}) {  // all lanes, or one
      std::vector<uint64_t> out(32, untouched);
      const Outcome outcome = device.run(
          "k", {1}, {32}, Parameters().add(device.buffer(in)).add(device.buffer(out)).add(only));
      ASSERT_EQ(outcome.state, BlockState::kFinished) << outcome.fault.text;
      for (uint32_t lane = 0; lane < 32; ++lane) {
        const bool runs = only == 32 || lane == only;
        EXPECT_EQ(out[lane], runs ? row.expected : untouched)
            << "lane " << lane << std::hex << " got 0x" << out[lane];
        if (out[lane] != (runs ? row.expected : untouched)) break;
      }
      device.memory.remove(out.data());
    }
  }
}

// The approximations against the C library: 2^-21 relative, or absolute where the ISA says so.
TEST(Opcodes, ApproximationsAreClose) {
  struct Approximation {
    const char* code;
    double (*exact)(double);
    float low, high;
    double relative, absolute;
  };
  const Approximation all[] = {
      {"ex2.approx.f32 %r, %a0;", [](double x) { return std::exp2(x); }, -126, 127, 0x1p-21, 0},
      {"lg2.approx.f32 %r, %a0;", [](double x) { return std::log2(x); }, 1e-30f, 1e5f, 0x1p-21,
       0x1p-22},
      {"sin.approx.f32 %r, %a0;", [](double x) { return std::sin(x); }, -100, 100, 0, 1e-5},
      {"cos.approx.f32 %r, %a0;", [](double x) { return std::cos(x); }, -100, 100, 0, 1e-5},
      {"tanh.approx.f32 %r, %a0;", [](double x) { return std::tanh(x); }, -10, 10, 0x1p-20, 0},
      {"rsqrt.approx.f32 %r, %a0;", [](double x) { return 1 / std::sqrt(x); }, 1e-38f, 1e30f,
       0x1p-21, 0},
      {"rcp.approx.f32 %r, %a0;", [](double x) { return 1 / x; }, 1e-30f, 1e30f, 0x1p-23, 0},
      {"sqrt.approx.f32 %r, %a0;", [](double x) { return std::sqrt(x); }, 0, 1e30f, 0x1p-22, 0},
  };
  for (const Approximation& a : all) {
    SCOPED_TRACE(a.code);
    Device device;
    ASSERT_TRUE(device.load(module_of({a.code, {}, 0}))) << device.error.log;
    for (int i = 0; i <= 200; ++i) {
      const bool logarithmic = a.low > 0;
      const double t = i / 200.0;
      const auto x = static_cast<float>(logarithmic ? a.low * std::pow(double(a.high) / a.low, t)
                                                    : a.low + (double(a.high) - a.low) * t);
      std::vector<uint64_t> in = {f(x), 0, 0}, out(32);
      ASSERT_EQ(device
                    .run("k", {1}, {32},
                         Parameters().add(device.buffer(in)).add(device.buffer(out)).add(32))
                    .state,
                BlockState::kFinished);
      const double got = std::bit_cast<float>(static_cast<uint32_t>(out[5])), want = a.exact(x);
      EXPECT_NEAR(got, want, std::fabs(want) * a.relative + a.absolute) << "x = " << x;
      device.memory.remove(in.data());
      device.memory.remove(out.data());
    }
  }
}

}  // namespace
}  // namespace openmps::softgpu::test
