// SPDX-License-Identifier: Apache-2.0
// The arithmetic of tensor cores, as measured on an H200: the products of one step and the addend
// are aligned to the largest exponent among them, cut off (toward zero) 25 bits below it, and added
// exactly; the sum is cut off to f32 or rounded to the nearest f16. tests/softgpu/conformance holds
// what the measurement gave. Pure functions; any thread.
#pragma once

#include <cmath>
#include <cstdint>

namespace openmps::softgpu::matrix {

// Bits below the largest exponent that take part in a sum; those of FP8 that four warps multiply,
// which are also all that the sum keeps as an f32.
inline constexpr int kSumFraction = 25;
inline constexpr int kGroupFp8Fraction = 13;

struct Number {
  enum class Kind : uint8_t { kFinite, kInfinite, kNaN } kind = Kind::kFinite;
  bool negative = false;
  int32_t significand = 0;  // without sign
  int16_t unit = 0;         // the number is significand * 2^unit
  int16_t exponent = 0;     // of the format; that of subnormal numbers is the smallest
};

// IEEE formats.
inline Number unpack(uint32_t bits, int exponent_bits, int mantissa_bits) {
  const int all = (1 << exponent_bits) - 1, bias = all / 2;
  const int biased = static_cast<int>(bits >> mantissa_bits) & all;
  const auto mantissa = static_cast<int32_t>(bits & ((1u << mantissa_bits) - 1));
  Number number;
  number.negative = (bits >> (exponent_bits + mantissa_bits) & 1) != 0;
  if (biased == all) {
    number.kind = mantissa ? Number::Kind::kNaN : Number::Kind::kInfinite;
    return number;
  }
  number.significand = biased ? mantissa | 1 << mantissa_bits : mantissa;
  number.exponent = static_cast<int16_t>((biased ? biased : 1) - bias);
  number.unit = static_cast<int16_t>(number.exponent - mantissa_bits);
  return number;
}

inline Number product(const Number& a, const Number& b) {
  Number r;
  r.negative = a.negative != b.negative;
  const bool a_zero = a.kind == Number::Kind::kFinite && a.significand == 0;
  const bool b_zero = b.kind == Number::Kind::kFinite && b.significand == 0;
  if (a.kind == Number::Kind::kNaN || b.kind == Number::Kind::kNaN) {
    r.kind = Number::Kind::kNaN;
  } else if (a.kind == Number::Kind::kInfinite || b.kind == Number::Kind::kInfinite) {
    r.kind = a_zero || b_zero ? Number::Kind::kNaN : Number::Kind::kInfinite;
  } else {
    r.significand = a.significand * b.significand;  // 11 or fewer bits each
    r.unit = static_cast<int16_t>(a.unit + b.unit);
    r.exponent = static_cast<int16_t>(a.exponent + b.exponent);
  }
  return r;
}

// An exact sum: value * 2^unit, or what is not finite.
struct Sum {
  Number::Kind kind = Number::Kind::kFinite;
  bool negative = false;  // an infinity's sign
  int64_t value = 0;
  int unit = 0;
};

inline Sum add_terms(const Number* terms, int count, int fraction = kSumFraction) {
  Sum sum;
  bool plus = false, minus = false;
  int largest = INT16_MIN;
  for (int i = 0; i < count; ++i) {
    const Number& term = terms[i];
    if (term.kind == Number::Kind::kNaN) sum.kind = Number::Kind::kNaN;
    if (term.kind == Number::Kind::kInfinite) (term.negative ? minus : plus) = true;
    if (term.kind == Number::Kind::kFinite && term.significand != 0 && term.exponent > largest) {
      largest = term.exponent;
    }
  }
  if (plus && minus) sum.kind = Number::Kind::kNaN;
  if (sum.kind == Number::Kind::kNaN) return sum;
  if (plus || minus) {
    sum.kind = Number::Kind::kInfinite;
    sum.negative = minus;
    return sum;
  }
  sum.unit = largest - fraction;
  for (int i = 0; i < count; ++i) {
    if (terms[i].significand == 0) continue;
    const int shift = terms[i].unit - sum.unit;
    const int64_t magnitude = shift >= 0    ? int64_t{terms[i].significand} << shift
                              : shift > -32 ? int64_t{terms[i].significand} >> -shift
                                            : 0;
    sum.value += terms[i].negative ? -magnitude : magnitude;
  }
  return sum;
}

// The bits of the nearest f32 toward zero.
inline uint32_t cut_to_f32(const Sum& sum) {
  if (sum.kind == Number::Kind::kNaN) return 0x7fffffffu;
  if (sum.kind == Number::Kind::kInfinite) return sum.negative ? 0xff800000u : 0x7f800000u;
  if (sum.value == 0) return 0;
  const uint32_t sign = sum.value < 0 ? 0x80000000u : 0;
  const auto magnitude = static_cast<uint64_t>(sum.value < 0 ? -sum.value : sum.value);
  const int length = 64 - __builtin_clzll(magnitude);
  const int exponent = sum.unit + length - 1;
  if (exponent > 127) return sign | 0x7f800000u;
  const bool subnormal = exponent < -126;
  const int drop = subnormal ? -149 - sum.unit : length - 24;
  const uint64_t kept = drop > 63 ? 0 : drop > 0 ? magnitude >> drop : magnitude << -drop;
  if (subnormal) return sign | static_cast<uint32_t>(kept);
  return sign | static_cast<uint32_t>(exponent + 127) << 23 |
         (static_cast<uint32_t>(kept) & 0x7fffffu);
}

// The bits of the nearest f16, ties to even.
inline uint16_t round_to_f16(const Sum& sum) {
  if (sum.kind == Number::Kind::kNaN) return 0x7fff;
  if (sum.kind == Number::Kind::kInfinite) return sum.negative ? 0xfc00 : 0x7c00;
  if (sum.value == 0) return 0;
  const uint16_t sign = sum.value < 0 ? 0x8000 : 0;
  const auto magnitude = static_cast<uint64_t>(sum.value < 0 ? -sum.value : sum.value);
  const int exponent = sum.unit + 63 - __builtin_clzll(magnitude);
  if (exponent > 15) return sign | 0x7c00;
  const bool subnormal = exponent < -14;
  const int unit = (subnormal ? -14 : exponent) - 10;
  const int drop = unit - sum.unit;
  uint64_t kept = drop > 63 ? 0 : drop > 0 ? magnitude >> drop : magnitude << -drop;
  if (drop > 0 && drop <= 63) {
    const uint64_t rest = magnitude & ((uint64_t{1} << drop) - 1), half = uint64_t{1} << (drop - 1);
    if (rest > half || (rest == half && (kept & 1))) ++kept;
  }
  // A carry runs into the exponent, up to infinity.
  const uint64_t base = subnormal ? 0 : static_cast<uint64_t>(exponent + 14) << 10;
  return static_cast<uint16_t>(sign | (base + kept));
}

}  // namespace openmps::softgpu::matrix
