// SPDX-License-Identifier: Apache-2.0
// LLVM IR for ops that compute lane by lane: what the expressions of ir/ops_*.def say, bit by bit,
// but for f32 results that are NaNs (Ssa::find_unsettled()). An op that is not here is run by its
// handler.
#include <array>
#include <string_view>

#include "softgpu/ir/op_info.h"
#include "softgpu/tier/graph.h"
#include "softgpu/tier/lane_builder.h"

namespace openmps::softgpu::tier {
namespace {

using Function = Val (*)(LaneBuilder&, const Op&, const Val (&)[4]);
using Table = std::array<Function, kIrOpCount>;

// Floating point.

Val flush(LaneBuilder& g, Val a) {
  const Val exponent = g.and_(a, g.constant(32, 0x7f800000u));
  const Val tiny = g.compare(kEq, exponent, g.constant(32, 0));
  return g.select(tiny, g.and_(a, g.constant(32, 0x80000000u)), a);
}
Val is_nan(LaneBuilder& g, Val a, uint32_t bits) { return g.fcompare(kUno, a, a, bits); }
Val quiet(LaneBuilder& g, Val a) { return g.or_(a, g.constant(64, uint64_t{1} << 51)); }
Val last_nan(LaneBuilder& g, Val result, Val b) {
  return g.select(is_nan(g, b, 64), quiet(g, b), result);
}
Val extreme(LaneBuilder& g, Val a, Val b, bool least, uint32_t bits) {
  const RealCompare before = least ? kOlt : kOgt;
  const Val same = least ? g.or_(a, b) : g.and_(a, b);
  const Val chosen = g.select(g.fcompare(before, a, b, bits), a,
                              g.select(g.fcompare(before, b, a, bits), b, same));
  const Val other = bits == 32 ? b : g.select(is_nan(g, b, 64), quiet(g, b), b);
  return g.select(is_nan(g, a, bits), other, g.select(is_nan(g, b, bits), a, chosen));
}
Val one(LaneBuilder& g) { return g.float_constant(1); }

// Integers.

Val smaller(LaneBuilder& g, IntCompare how, Val a, Val b) {
  return g.select(g.compare(how, a, b), a, b);
}
// The product's upper half.
Val high_product(LaneBuilder& g, Val a, Val b, bool sign) {
  const auto widen = [&](Val x) { return sign ? g.sext(x, 64) : g.zext(x, 64); };
  return g.trunc(g.lshr(g.mul(widen(a), widen(b)), g.constant(64, 32)), 32);
}
Val wide_product(LaneBuilder& g, Val a, Val b, bool sign) {
  return sign ? g.mul(g.sext(a, 64), g.sext(b, 64)) : g.mul(g.zext(a, 64), g.zext(b, 64));
}
Val element(LaneBuilder& g, Val index, Val base, bool sign, uint32_t shift) {
  const Val wide = sign ? g.sext(index, 64) : g.zext(index, 64);
  return g.add(g.shl(wide, g.constant(64, shift)), base);
}
// Shifts by 32 bits of `by`; too far gives zero, or the sign.
Val shift_left(LaneBuilder& g, Val a, Val by, uint32_t bits) {
  const Val last = g.constant(32, bits - 1);
  Val n = g.and_(by, last);
  if (bits == 64) n = g.zext(n, 64);
  return g.select(g.compare(kUgt, by, last), g.constant(bits, 0), g.shl(a, n));
}
Val shift_right(LaneBuilder& g, Val a, Val by, uint32_t bits, bool sign) {
  const Val last = g.constant(32, bits - 1);
  Val n = sign ? smaller(g, kUlt, by, last) : g.and_(by, last);
  if (bits == 64) n = g.zext(n, 64);
  if (sign) return g.ashr(a, n);
  return g.select(g.compare(kUgt, by, last), g.constant(bits, 0), g.lshr(a, n));
}
Val low_mask(LaneBuilder& g, Val n) {
  const Val some =
      g.sub(g.shl(g.constant(32, 1), g.and_(n, g.constant(32, 31))), g.constant(32, 1));
  return g.select(g.compare(kUgt, n, g.constant(32, 31)), g.constant(32, ~0u), some);
}
Val byte_of(LaneBuilder& g, Val x) { return g.and_(x, g.constant(32, 0xff)); }
Val extract_unsigned(LaneBuilder& g, Val a, Val at, Val n) {
  return g.and_(shift_right(g, a, byte_of(g, at), 32, false), low_mask(g, byte_of(g, n)));
}
Val insert_field(LaneBuilder& g, Val field, Val into, Val at, Val n) {
  const Val by = byte_of(g, at);
  const Val mask = shift_left(g, low_mask(g, byte_of(g, n)), by, 32);
  const Val moved = g.shl(field, g.and_(by, g.constant(32, 31)));
  return g.or_(g.and_(into, g.not_(mask)), g.and_(moved, mask));
}
Val logic(LaneBuilder& g, const Op& op, Val a, Val b, Val c) {
  Val result = g.constant(32, 0);
  for (uint32_t k = 0; k < 8; ++k) {
    if (!(op.imm >> k & 1)) continue;
    const Val x = k & 4 ? a : g.not_(a), y = k & 2 ? b : g.not_(b), z = k & 1 ? c : g.not_(c);
    result = g.or_(result, g.and_(x, g.and_(y, z)));
  }
  return result;
}
Val permute(LaneBuilder& g, Val a, Val b, Val selectors) {
  const Val bytes = g.or_(g.zext(a, 64), g.shl(g.zext(b, 64), g.constant(64, 32)));
  Val result = g.constant(32, 0);
  for (uint32_t i = 0; i < 4; ++i) {
    const Val selector = g.lshr(selectors, g.constant(32, 4 * i));
    const Val by = g.shl(g.and_(selector, g.constant(32, 7)), g.constant(32, 3));
    const Val byte = byte_of(g, g.trunc(g.lshr(bytes, g.zext(by, 64)), 32));
    const Val sign = g.select(g.compare(kUgt, byte, g.constant(32, 0x7f)), g.constant(32, 0xff),
                              g.constant(32, 0));
    const Val is_sign = g.compare(kNe, g.and_(selector, g.constant(32, 8)), g.constant(32, 0));
    result = g.or_(result, g.shl(g.select(is_sign, sign, byte), g.constant(32, 8 * i)));
  }
  return result;
}
Val quotient_unsigned(LaneBuilder& g, Val a, Val b) {
  const Val none = g.compare(kEq, b, g.constant(32, 0));
  const Val by = g.select(none, g.constant(32, 1), b);
  const Type real = g.shaped(g.real(64)), whole = g.shaped(g.integer(32));
  const Val quotient = g.llvm.BuildFDiv(g.builder, g.llvm.BuildUIToFP(g.builder, a, real, ""),
                                        g.llvm.BuildUIToFP(g.builder, by, real, ""), "");
  return g.select(none, g.constant(32, ~0u), g.llvm.BuildFPToUI(g.builder, quotient, whole, ""));
}
Val quotient_signed(LaneBuilder& g, Val a, Val b) {
  const Val none = g.compare(kEq, b, g.constant(32, 0));
  // The one quotient that does not fit wraps to the dividend.
  const Val wraps = g.and_(g.compare(kEq, a, g.constant(32, 0x80000000u)),
                           g.compare(kEq, b, g.constant(32, ~0u)));
  const Val by = g.select(g.or_(none, wraps), g.constant(32, 1), b);
  const Type real = g.shaped(g.real(64)), whole = g.shaped(g.integer(32));
  const Val quotient = g.llvm.BuildFDiv(g.builder, g.llvm.BuildSIToFP(g.builder, a, real, ""),
                                        g.llvm.BuildSIToFP(g.builder, by, real, ""), "");
  return g.select(none, g.constant(32, ~0u), g.llvm.BuildFPToSI(g.builder, quotient, whole, ""));
}

// Half precision.

Val half_to_float(LaneBuilder& g, Val half) {
  const Val h = g.zext(half, 32);
  const Val moved = g.shl(g.and_(h, g.constant(32, 0x7fff)), g.constant(32, 13));
  const Val scaled = g.fmul(moved, g.constant(32, 0x77800000u));  // 2^112
  const Val top = g.constant(32, 0x7c00);
  const Val special =
      g.select(g.compare(kEq, g.and_(h, top), top), g.constant(32, 0x7f800000u), g.constant(32, 0));
  const Val sign = g.shl(g.and_(h, g.constant(32, 0x8000)), g.constant(32, 16));
  return g.or_(g.or_(scaled, special), sign);
}
Val float_to_half(LaneBuilder& g, Val x) {
  const auto k = [&](uint32_t value) { return g.constant(32, value); };
  const Val bits = g.and_(x, k(0x7fffffffu));
  const Val sign = g.and_(g.lshr(x, k(16)), k(0x8000));
  const Val odd = g.and_(g.lshr(bits, k(13)), k(1));
  const Val normal = g.lshr(g.sub(g.add(g.add(bits, k(0xfff)), odd), k(112u << 23)), k(13));
  const Val subnormal = g.sub(g.fadd(bits, g.float_constant(0.5f)), k(0x3f000000u));
  Val r = g.select(g.compare(kUlt, bits, k(0x38800000u)), subnormal,
                   g.select(g.compare(kUge, bits, k(0x477ff000u)), k(0x7c00), normal));
  r = g.select(g.compare(kUgt, bits, k(0x7f800000u)), k(0x7fff), g.or_(r, sign));
  return g.trunc(r, 16);
}
Val float_to_brain(LaneBuilder& g, Val x) {
  const auto k = [&](uint32_t value) { return g.constant(32, value); };
  const Val odd = g.and_(g.lshr(x, k(16)), k(1));
  const Val rounded = g.lshr(g.add(g.add(x, k(0x7fff)), odd), k(16));
  const Val strange = g.compare(kUgt, g.and_(x, k(0x7fffffffu)), k(0x7f800000u));
  return g.trunc(g.select(strange, k(0x7fff), rounded), 16);
}
Val pack16(LaneBuilder& g, Val low, Val high) {
  return g.or_(g.zext(low, 32), g.shl(g.zext(high, 32), g.constant(32, 16)));
}
Val low16(LaneBuilder& g, Val x) { return g.trunc(x, 16); }
Val high16(LaneBuilder& g, Val x) { return g.trunc(g.lshr(x, g.constant(32, 16)), 16); }
// Of two f16 in a register, each by f32.
template <class Combine>
Val combine_f16x2(LaneBuilder& g, Val a, Val b, const Combine& combine) {
  const auto half = [&](Val x, Val y) {
    return float_to_half(g, combine(half_to_float(g, x), half_to_float(g, y)));
  };
  return pack16(g, half(low16(g, a), low16(g, b)), half(high16(g, a), high16(g, b)));
}

// AVX-512's estimate of 1 / sqrt(x), from which rsqrt_lanes() of interp/lanes.cc begins, too.
Val rsqrt_estimate(LaneBuilder& g, Val x) {
  constexpr uint32_t kLanes = 16;
  const Type floats = g.vector(g.real(32), kLanes);
  const auto estimate = [&](Val part) {
    return g.intrinsic(
        "llvm.x86.avx512.rsqrt14.ps.512", {},
        {g.cast(part, floats), g.llvm.ConstNull(floats), g.scalar_constant(16, 0xffff)});
  };
  if (!g.wide) {
    const Val y = estimate(g.splat(x, kLanes));
    const Val first = g.llvm.BuildExtractElement(g.builder, y, g.scalar_constant(32, 0), "");
    return g.as_bits(first);
  }
  Val halves[2];
  for (uint32_t h = 0; h < 2; ++h) {
    std::vector<uint32_t> lanes;
    for (uint32_t i = 0; i < kLanes; ++i) lanes.push_back(h * kLanes + i);
    halves[h] = estimate(g.shuffle(x, x, lanes));
  }
  std::vector<uint32_t> all;
  for (uint32_t i = 0; i < kWarpSize; ++i) all.push_back(i);
  return g.as_bits(g.shuffle(halves[0], halves[1], all));
}
Val rsqrt(LaneBuilder& g, Val x, bool flushed) {
  if (flushed) x = flush(g, x);
  if (!g.has_estimates) return g.fdiv(one(g), g.real_intrinsic("llvm.sqrt", {x}));
  const Val y = rsqrt_estimate(g, x);
  const Val negated = g.xor_(g.fmul(x, y), g.constant(32, 0x80000000u));
  const Val error = g.real_intrinsic("llvm.fma", {negated, y, one(g)});
  const Val better = g.real_intrinsic("llvm.fma", {g.fmul(y, g.float_constant(0.5f)), error, y});
  const Val size = g.and_(y, g.constant(32, 0x7fffffffu));
  const Val special = g.or_(g.compare(kEq, size, g.constant(32, 0)),
                            g.compare(kEq, size, g.constant(32, 0x7f800000u)));
  return g.select(special, y, better);
}

Val exp2(LaneBuilder& g, Val x) {
  const auto k = [&](float value) { return g.float_constant(value); };
  const auto mul_add = [&](Val a, Val b, Val c) { return g.real_intrinsic("llvm.fma", {a, b, c}); };
  const Val limited = g.select(g.fcompare(kOgt, x, k(129)), k(129),
                               g.select(g.fcompare(kOge, x, k(-151)), x, k(-151)));
  const Val whole = g.real_intrinsic("llvm.rint", {limited});
  const Val t = g.fmul(g.fsub(limited, whole), k(0.6931471805599453f));
  Val p = mul_add(t, k(1.0f / 5040), k(1.0f / 720));
  p = mul_add(t, p, k(1.0f / 120));
  p = mul_add(t, p, k(1.0f / 24));
  p = mul_add(t, p, k(1.0f / 6));
  p = mul_add(t, p, k(0.5f));
  p = mul_add(t, p, k(1.0f));
  p = mul_add(t, p, k(1.0f));
  const Val n = g.llvm.BuildFPToSI(g.builder, g.as_real(whole), g.shaped(g.integer(32)), "");
  const Val half = g.ashr(n, g.constant(32, 1));
  const auto power = [&](Val e) {
    return g.shl(g.add(e, g.constant(32, 127)), g.constant(32, 23));
  };
  p = g.fmul(g.fmul(p, power(half)), power(g.sub(n, half)));
  return g.select(is_nan(g, x, 32), x, p);
}

#define PUT(name, ...)                                                             \
  (*table)[static_cast<size_t>(IrOp::k_##name)] = [](LaneBuilder& g, const Op& op, \
                                                     const Val(&x)[4]) {           \
    const Val a = x[0], b = x[1], c = x[2], e = x[3];                              \
    (void)g, (void)op, (void)a, (void)b, (void)c, (void)e;                         \
    return __VA_ARGS__;                                                            \
  }

void add_floats(Table* table) {
  PUT(add_f32, g.fadd(a, b));
  PUT(sub_f32, g.fsub(a, b));
  PUT(mul_f32, g.fmul(a, b));
  PUT(div_f32, g.fdiv(a, b));
  PUT(fma_f32, g.real_intrinsic("llvm.fma", {a, b, c}));
  PUT(min_f32, extreme(g, a, b, true, 32));
  PUT(max_f32, extreme(g, a, b, false, 32));
  PUT(abs_f32, g.and_(a, g.constant(32, 0x7fffffffu)));
  PUT(neg_f32, g.xor_(a, g.constant(32, 0x80000000u)));
  PUT(sqrt_f32, g.real_intrinsic("llvm.sqrt", {a}));
  PUT(rcp_f32, g.fdiv(one(g), a));
  PUT(rsqrt_f32, rsqrt(g, a, false));
  PUT(rsqrt_f32_ftz, rsqrt(g, a, true));
  PUT(ex2_f32, exp2(g, a));
  PUT(ex2_f32_ftz, flush(g, exp2(g, flush(g, a))));
  PUT(add_f32_ftz, flush(g, g.fadd(flush(g, a), flush(g, b))));
  PUT(sub_f32_ftz, flush(g, g.fsub(flush(g, a), flush(g, b))));
  PUT(mul_f32_ftz, flush(g, g.fmul(flush(g, a), flush(g, b))));
  PUT(div_f32_ftz, flush(g, g.fdiv(flush(g, a), flush(g, b))));
  PUT(fma_f32_ftz, flush(g, g.real_intrinsic("llvm.fma", {flush(g, a), flush(g, b), flush(g, c)})));
  PUT(min_f32_ftz, extreme(g, flush(g, a), flush(g, b), true, 32));
  PUT(max_f32_ftz, extreme(g, flush(g, a), flush(g, b), false, 32));
  PUT(abs_f32_ftz, g.and_(flush(g, a), g.constant(32, 0x7fffffffu)));
  PUT(neg_f32_ftz, g.xor_(flush(g, a), g.constant(32, 0x80000000u)));
  PUT(sqrt_f32_ftz, flush(g, g.real_intrinsic("llvm.sqrt", {flush(g, a)})));
  PUT(rcp_f32_ftz, flush(g, g.fdiv(one(g), flush(g, a))));
  PUT(flush_f32, flush(g, a));
  PUT(flush_kept_f32, flush(g, a));
  PUT(sat_f32, g.select(g.fcompare(kOgt, a, g.constant(32, 0)),
                        g.select(g.fcompare(kOlt, a, one(g)), a, one(g)), g.constant(32, 0)));
  PUT(round_rni_f32, g.real_intrinsic("llvm.rint", {a}));
  PUT(round_rzi_f32, g.real_intrinsic("llvm.trunc", {a}));
  PUT(round_rmi_f32, g.real_intrinsic("llvm.floor", {a}));
  PUT(round_rpi_f32, g.real_intrinsic("llvm.ceil", {a}));
  PUT(add_f64, last_nan(g, g.fadd(a, b, 64), b));
  PUT(sub_f64, last_nan(g, g.fsub(a, b, 64), b));
  PUT(mul_f64, last_nan(g, g.fmul(a, b, 64), b));
  PUT(fma_f64, last_nan(g, last_nan(g, g.real_intrinsic("llvm.fma", {a, b, c}, 64), c), b));
  PUT(abs_f64,
      g.select(is_nan(g, a, 64), quiet(g, a), g.and_(a, g.constant(64, ~(uint64_t{1} << 63)))));
  PUT(neg_f64,
      g.select(is_nan(g, a, 64), quiet(g, a), g.xor_(a, g.constant(64, uint64_t{1} << 63))));
  PUT(min_f64, extreme(g, a, b, true, 64));
  PUT(max_f64, extreme(g, a, b, false, 64));
}

void add_conversions(Table* table) {
  PUT(f2i_s32_f32, g.intrinsic("llvm.fptosi.sat", {g.shaped(g.integer(32)), g.shaped(g.real(32))},
                               {g.as_real(a)}));
  PUT(f2i_u32_f32, g.intrinsic("llvm.fptoui.sat", {g.shaped(g.integer(32)), g.shaped(g.real(32))},
                               {g.as_real(a)}));
  PUT(i2f_f32_s32, g.as_bits(g.llvm.BuildSIToFP(g.builder, a, g.shaped(g.real(32)), "")));
  PUT(i2f_f32_u32, g.as_bits(g.llvm.BuildUIToFP(g.builder, a, g.shaped(g.real(32)), "")));
  PUT(i2f_f64_s32, g.as_bits(g.llvm.BuildSIToFP(g.builder, a, g.shaped(g.real(64)), ""), 64));
  PUT(i2f_f64_u32, g.as_bits(g.llvm.BuildUIToFP(g.builder, a, g.shaped(g.real(64)), ""), 64));
  PUT(f2f_f64_f32,
      g.as_bits(g.llvm.BuildFPExt(g.builder, g.as_real(a), g.shaped(g.real(64)), ""), 64));
  PUT(f2f_f32_f64,
      g.as_bits(g.llvm.BuildFPTrunc(g.builder, g.as_real(a, 64), g.shaped(g.real(32)), "")));
  PUT(f2f_f32_f16, half_to_float(g, a));
  PUT(f2f_kept_f16, half_to_float(g, a));
  PUT(f2f_f16_f32, float_to_half(g, a));
  PUT(f2f_f32_bf16, g.shl(g.zext(a, 32), g.constant(32, 16)));
  PUT(f2f_bf16_f32, float_to_brain(g, a));
  PUT(pack_f16x2, pack16(g, float_to_half(g, b), float_to_half(g, a)));
  PUT(pack_bf16x2, pack16(g, float_to_brain(g, b), float_to_brain(g, a)));
  PUT(add_f16x2, combine_f16x2(g, a, b, [&g](Val x, Val y) { return g.fadd(x, y); }));
  PUT(mul_f16x2, combine_f16x2(g, a, b, [&g](Val x, Val y) { return g.fmul(x, y); }));
}

void add_integers(Table* table) {
  PUT(add_b16, g.add(a, b));
  PUT(add_b32, g.add(a, b));
  PUT(add_b64, g.add(a, b));
  PUT(sub_b16, g.sub(a, b));
  PUT(sub_b32, g.sub(a, b));
  PUT(sub_b64, g.sub(a, b));
  PUT(mul_lo_b16, g.mul(a, b));
  PUT(mul_lo_b32, g.mul(a, b));
  PUT(mul_lo_b64, g.mul(a, b));
  PUT(mul_hi_u32, high_product(g, a, b, false));
  PUT(mul_hi_s32, high_product(g, a, b, true));
  PUT(mul_wide_u16, g.mul(g.zext(a, 32), g.zext(b, 32)));
  PUT(mul_wide_s16, g.mul(g.sext(a, 32), g.sext(b, 32)));
  PUT(mul_wide_u32, wide_product(g, a, b, false));
  PUT(mul_wide_s32, wide_product(g, a, b, true));
  PUT(mad_lo_b16, g.add(g.mul(a, b), c));
  PUT(mad_lo_b32, g.add(g.mul(a, b), c));
  PUT(mad_lo_b64, g.add(g.mul(a, b), c));
  PUT(mad_hi_u32, g.add(high_product(g, a, b, false), c));
  PUT(mad_hi_s32, g.add(high_product(g, a, b, true), c));
  PUT(mad_wide_u32, g.add(wide_product(g, a, b, false), c));
  PUT(mad_wide_s32, g.add(wide_product(g, a, b, true), c));
  PUT(element2_s32, element(g, a, b, true, 1));
  PUT(element4_s32, element(g, a, b, true, 2));
  PUT(element8_s32, element(g, a, b, true, 3));
  PUT(element16_s32, element(g, a, b, true, 4));
  PUT(element2_u32, element(g, a, b, false, 1));
  PUT(element4_u32, element(g, a, b, false, 2));
  PUT(element8_u32, element(g, a, b, false, 3));
  PUT(element16_u32, element(g, a, b, false, 4));
  PUT(div_u32, quotient_unsigned(g, a, b));
  PUT(div_s32, quotient_signed(g, a, b));
  PUT(rem_u32, g.select(g.compare(kEq, b, g.constant(32, 0)), g.constant(32, ~0u),
                        g.sub(a, g.mul(quotient_unsigned(g, a, b), b))));
  PUT(rem_s32, g.select(g.compare(kEq, b, g.constant(32, 0)), g.constant(32, ~0u),
                        g.sub(a, g.mul(quotient_signed(g, a, b), b))));
  PUT(abs_s32, g.select(g.compare(kSlt, a, g.constant(32, 0)), g.sub(g.constant(32, 0), a), a));
  PUT(abs_s64, g.select(g.compare(kSlt, a, g.constant(64, 0)), g.sub(g.constant(64, 0), a), a));
  PUT(neg_s32, g.sub(g.constant(32, 0), a));
  PUT(neg_s64, g.sub(g.constant(64, 0), a));
  PUT(min_u16, smaller(g, kUlt, a, b));
  PUT(min_s16, smaller(g, kSlt, a, b));
  PUT(max_u16, smaller(g, kUgt, a, b));
  PUT(max_s16, smaller(g, kSgt, a, b));
  PUT(min_u32, smaller(g, kUlt, a, b));
  PUT(min_s32, smaller(g, kSlt, a, b));
  PUT(max_u32, smaller(g, kUgt, a, b));
  PUT(max_s32, smaller(g, kSgt, a, b));
  PUT(min_u64, smaller(g, kUlt, a, b));
  PUT(min_s64, smaller(g, kSlt, a, b));
  PUT(max_u64, smaller(g, kUgt, a, b));
  PUT(max_s64, smaller(g, kSgt, a, b));
}

void add_bits(Table* table) {
  PUT(popc_b32, g.intrinsic("llvm.ctpop", {g.shaped(g.integer(32))}, {a}));
  PUT(popc_b64, g.trunc(g.intrinsic("llvm.ctpop", {g.shaped(g.integer(64))}, {a}), 32));
  PUT(clz_b32, g.intrinsic("llvm.ctlz", {g.shaped(g.integer(32))}, {a, g.scalar_constant(1, 0)}));
  PUT(brev_b32, g.intrinsic("llvm.bitreverse", {g.shaped(g.integer(32))}, {a}));
  PUT(bfe_u32, extract_unsigned(g, a, b, c));
  PUT(bfi_b32, insert_field(g, a, b, c, e));
  PUT(and_b16, g.and_(a, b));
  PUT(and_b32, g.and_(a, b));
  PUT(and_b64, g.and_(a, b));
  PUT(or_b16, g.or_(a, b));
  PUT(or_b32, g.or_(a, b));
  PUT(or_b64, g.or_(a, b));
  PUT(xor_b16, g.xor_(a, b));
  PUT(xor_b32, g.xor_(a, b));
  PUT(xor_b64, g.xor_(a, b));
  PUT(not_b16, g.not_(a));
  PUT(not_b32, g.not_(a));
  PUT(not_b64, g.not_(a));
  PUT(lop3_b32, logic(g, op, a, b, c));
  PUT(shl_b32, shift_left(g, a, b, 32));
  PUT(shl_b64, shift_left(g, a, b, 64));
  PUT(shr_u32, shift_right(g, a, b, 32, false));
  PUT(shr_u64, shift_right(g, a, b, 64, false));
  PUT(shr_s32, shift_right(g, a, b, 32, true));
  PUT(shr_s64, shift_right(g, a, b, 64, true));
  PUT(shf_l_wrap_b32, g.intrinsic("llvm.fshl", {g.shaped(g.integer(32))}, {b, a, c}));
  PUT(shf_r_wrap_b32, g.intrinsic("llvm.fshr", {g.shaped(g.integer(32))}, {b, a, c}));
  PUT(prmt_b32, permute(g, a, b, c));
  PUT(mov_b16, a);
  PUT(mov_b32, a);
  PUT(mov_b64, a);
  PUT(lo_b32, low16(g, a));
  PUT(hi_b32, high16(g, a));
  PUT(lo_b64, g.trunc(a, 32));
  PUT(hi_b64, g.trunc(g.lshr(a, g.constant(64, 32)), 32));
  PUT(pack_b32, pack16(g, a, b));
  PUT(pack_b64, g.or_(g.zext(a, 64), g.shl(g.zext(b, 64), g.constant(64, 32))));
  PUT(selp_b16, g.select(c, a, b));
  PUT(selp_b32, g.select(c, a, b));
  PUT(selp_b64, g.select(c, a, b));
  PUT(pred_and, g.and_(a, b));
  PUT(pred_or, g.or_(a, b));
  PUT(pred_xor, g.xor_(a, b));
  PUT(pred_not, g.not_(a));
  PUT(pred_mov, a);
}

// What is regular enough to be read from its name.

uint32_t bits_of_name(std::string_view type) {
  return type.ends_with("8") ? 8 : type.ends_with("16") ? 16 : type.ends_with("32") ? 32 : 64;
}

// cvt_TO_FROM: the register is cut off to FROM and converted to TO, which is widened to 16 bits.
Val convert_integer(LaneBuilder& g, const Op& op, const Val (&x)[4]) {
  const std::string_view name = ir::op_info(op.code).name.substr(4);
  const std::string_view to = name.substr(0, name.find('_'));
  const std::string_view from = name.substr(name.find('_') + 1);
  const auto resized = [&](Val v, uint32_t have, uint32_t want, bool sign) {
    return want < have    ? g.trunc(v, want)
           : want == have ? v
           : sign         ? g.sext(v, want)
                          : g.zext(v, want);
  };
  const uint32_t from_bits = bits_of_name(from), to_bits = bits_of_name(to);
  Val value = resized(x[0], from_bits < 16 ? 16 : from_bits, from_bits, false);
  value = resized(value, from_bits, to_bits, from[0] == 's');
  return resized(value, to_bits, to_bits < 16 ? 16 : to_bits, to[0] == 's');
}

// resize_uTO_FROM.
Val resize(LaneBuilder& g, const Op& op, const Val (&x)[4]) {
  const std::string_view name = ir::op_info(op.code).name.substr(7);
  const std::string_view from = name.substr(name.find('_') + 1);
  const uint32_t to_bits = bits_of_name(name.substr(0, name.find('_')));
  if (to_bits < bits_of_name(from)) return g.trunc(x[0], to_bits);
  return from[0] == 's' ? g.sext(x[0], to_bits) : g.zext(x[0], to_bits);
}

struct CompareName {
  std::string_view name;
  IntCompare unsigned_one, signed_one;
  RealCompare real_one;
};
constexpr CompareName kCompares[] = {
    {"eq", kEq, kEq, kOeq},   {"ne", kNe, kNe, kOne},   {"lt", kUlt, kSlt, kOlt},
    {"le", kUle, kSle, kOle}, {"gt", kUgt, kSgt, kOgt}, {"ge", kUge, kSge, kOge},
    {"equ", kEq, kEq, kUeq},  {"neu", kEq, kEq, kUneF}, {"ltu", kEq, kEq, kUltF},
    {"leu", kEq, kEq, kUleF}, {"gtu", kEq, kEq, kUgtF}, {"geu", kEq, kEq, kUgeF},
    {"num", kEq, kEq, kOrd},  {"nan", kEq, kEq, kUno}};

// setp_HOW_TYPE, setp_HOW_f32_ftz.
Val compare(LaneBuilder& g, const Op& op, const Val (&x)[4]) {
  const ir::OpInfo& info = ir::op_info(op.code);
  std::string_view how = info.name.substr(5);
  const bool flushed = how.ends_with("_ftz");
  how = how.substr(0, how.find('_'));
  for (const CompareName& one : kCompares) {
    if (one.name != how) continue;
    if (ir::is_float_lane(info.operands[0])) {
      const Val a = flushed ? flush(g, x[0]) : x[0], b = flushed ? flush(g, x[1]) : x[1];
      return g.fcompare(one.real_one, a, b, 8 * ir::lane_bytes(info.operands[0]));
    }
    const bool sign = info.operands[0] == ir::Lane::s16 || info.operands[0] == ir::Lane::s32 ||
                      info.operands[0] == ir::Lane::s64;
    return g.compare(sign ? one.signed_one : one.unsigned_one, x[0], x[1]);
  }
  return nullptr;
}

const Table& table_of_functions() {
  static const Table* const made = [] {
    auto* table = new Table{};  // immortal
    for (size_t i = 0; i < kIrOpCount; ++i) {
      const std::string_view name = ir::op_info(static_cast<IrOp>(i)).name;
      if (name.starts_with("cvt_") && !name.starts_with("cvt_pack") && !name.starts_with("cvt_f") &&
          !name.starts_with("cvt_e")) {
        (*table)[i] = convert_integer;
      }
      if (name.starts_with("resize_")) (*table)[i] = resize;
      if (name.starts_with("setp_")) (*table)[i] = compare;
    }
    add_floats(table);
    add_conversions(table);
    add_integers(table);
    add_bits(table);
    return table;
  }();
  return *made;
}

}  // namespace

bool can_compute(IrOp op) { return table_of_functions()[static_cast<size_t>(op)] != nullptr; }

Val emit_compute(LaneBuilder& lanes, const Op& op, const Val (&operands)[4]) {
  return table_of_functions()[static_cast<size_t>(op.code)](lanes, op, operands);
}

}  // namespace openmps::softgpu::tier
