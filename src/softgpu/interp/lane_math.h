// SPDX-License-Identifier: Apache-2.0
// What one lane computes: the functions that ir/*.def use. Included by lanes.cc inside a namespace
// per instruction set; everything is always_inline, branch-free where it is to vectorise.
// Approximations are Taylor series whose remainder is below 2^-23 on the reduced range.

#define INLINE static inline __attribute__((always_inline))

// A loop over lanes, none of which reads what another writes: gcc vectorises it without a check.
#if defined(__clang__)
#define INDEPENDENT
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif
#define LANES INDEPENDENT for (u32 i = 0; i < kWarpSize; ++i)

using u8 = uint8_t;
using s8 = int8_t;
using u16 = uint16_t;
using s16 = int16_t;
using u32 = uint32_t;
using s32 = int32_t;
using u64 = uint64_t;
using s64 = int64_t;
using f32 = float;
using f64 = double;
using u128 = unsigned __int128;
using s128 = __int128;

INLINE u32 bits_of(f32 x) { return __builtin_bit_cast(u32, x); }
INLINE f32 float_of(u32 x) { return __builtin_bit_cast(f32, x); }
INLINE u64 bits_of(f64 x) { return __builtin_bit_cast(u64, x); }
INLINE f64 double_of(u64 x) { return __builtin_bit_cast(f64, x); }

template <class T>
INLINE T min_of(T a, T b) {
  return a < b ? a : b;
}
template <class T>
INLINE T max_of(T a, T b) {
  return a > b ? a : b;
}

// Integers.
INLINE s32 clamp_s32(s64 x) {
  return (s32)(x > 0x7fffffff ? 0x7fffffff : x < -(s64)0x80000000 ? -(s64)0x80000000 : x);
}
INLINE s32 low24(s32 x) { return (s32)((u32)x << 8) >> 8; }
INLINE u32 quotient_u32(u32 a, u32 b) { return b == 0 ? ~0u : (u32)((f64)a / (f64)b); }
INLINE s32 quotient_s32(s32 a, s32 b) {
  const f64 q = (f64)a / (f64)b;  // only -2^31 / -1 does not fit: it wraps
  return b == 0 ? -1 : q >= 2147483648.0 ? (s32)0x80000000 : (s32)q;
}
INLINE u32 pack_saturated(s32 high, s32 low, s32 least, s32 most, u32 bits) {
  const u32 mask = (1u << bits) - 1;
  return ((u32)min_of(max_of(high, least), most) & mask) << bits |
         ((u32)min_of(max_of(low, least), most) & mask);
}
INLINE u32 pack16(u32 low, u32 high) { return (low & 0xffffu) | (high << 16); }
INLINE u64 pack32(u32 low, u32 high) { return low | ((u64)high << 32); }
INLINE u32 top_bit(u32 x) { return x ? 31 - (u32)__builtin_clz(x) : ~0u; }
INLINE u32 top_bit64(u64 x) { return x ? 63 - (u32)__builtin_clzll(x) : ~0u; }
INLINE u32 shift_amount(u32 top, u32 last) { return top == ~0u ? top : last - top; }
INLINE u32 reverse_bits(u32 x) {
  x = ((x >> 1) & 0x55555555u) | ((x & 0x55555555u) << 1);
  x = ((x >> 2) & 0x33333333u) | ((x & 0x33333333u) << 2);
  x = ((x >> 4) & 0x0f0f0f0fu) | ((x & 0x0f0f0f0fu) << 4);
  x = ((x >> 8) & 0x00ff00ffu) | ((x & 0x00ff00ffu) << 8);
  return (x >> 16) | (x << 16);
}
INLINE u32 low_mask(u32 n) { return n > 31 ? ~0u : ((u32)1 << (n & 31)) - 1; }
INLINE u64 low_mask64(u32 n) { return n > 63 ? ~(u64)0 : ((u64)1 << (n & 63)) - 1; }
INLINE u32 sign_from(u32 x, u32 n) {  // the low n bits, signed
  const u32 shift = (32 - n) & 31;
  return n == 0 ? 0 : (u32)((s32)(x << shift) >> shift);
}
INLINE u32 extract_u32(u32 x, u32 at, u32 n) {
  return at > 31 ? 0 : (x >> (at & 31)) & low_mask(n);
}
INLINE s32 extract_s32(s32 x, u32 at, u32 n) {
  // Bits beyond the top are copies of the sign bit of the field or, past the word, of the word.
  const s32 moved = x >> (at > 31 ? 31 : at);
  return n == 0 ? 0 : n > 31 ? moved : (s32)sign_from((u32)moved, n);
}
INLINE u64 extract_u64(u64 x, u32 at, u32 n) {
  return at > 63 ? 0 : (x >> (at & 63)) & low_mask64(n);
}
INLINE s64 extract_s64(s64 x, u32 at, u32 n) {
  const s64 moved = x >> (at > 63 ? 63 : at);
  const u32 shift = (64 - n) & 63;
  return n == 0 ? 0 : n > 63 ? moved : (s64)((u64)moved << shift) >> shift;
}
INLINE u32 insert_b32(u32 field, u32 into, u32 at, u32 n) {
  const u32 mask = at > 31 ? 0 : low_mask(n) << (at & 31);
  return (into & ~mask) | ((field << (at & 31)) & mask);
}
INLINE u64 insert_b64(u64 field, u64 into, u32 at, u32 n) {
  const u64 mask = at > 63 ? 0 : low_mask64(n) << (at & 63);
  return (into & ~mask) | ((field << (at & 63)) & mask);
}
INLINE u32 nth_set(u32 mask, u32 base, s32 offset) {
  if (base > 31) return ~0u;
  if (offset == 0) return (mask >> base) & 1 ? base : ~0u;
  const s32 step = offset > 0 ? 1 : -1;
  s32 left = offset > 0 ? offset : -offset;
  for (s32 at = (s32)base; at >= 0 && at < 32; at += step) {
    if ((mask >> at) & 1 && --left == 0) return (u32)at;
  }
  return ~0u;
}
INLINE u32 lop3(u32 a, u32 b, u32 c, u32 table) {
  u32 r = 0;
  if (table & 0x01) r |= ~a & ~b & ~c;
  if (table & 0x02) r |= ~a & ~b & c;
  if (table & 0x04) r |= ~a & b & ~c;
  if (table & 0x08) r |= ~a & b & c;
  if (table & 0x10) r |= a & ~b & ~c;
  if (table & 0x20) r |= a & ~b & c;
  if (table & 0x40) r |= a & b & ~c;
  if (table & 0x80) r |= a & b & c;
  return r;
}
INLINE u32 permute(u32 a, u32 b, u32 selectors) {
  const u64 bytes = pack32(a, b);
  u32 r = 0;
  for (u32 i = 0; i < 4; ++i) {
    const u32 selector = (selectors >> (4 * i)) & 0xf;
    u32 byte = (u32)(bytes >> (8 * (selector & 7))) & 0xff;
    byte = selector & 8 ? (byte & 0x80 ? 0xff : 0) : byte;
    r |= byte << (8 * i);
  }
  return r;
}
INLINE u32 choose(u32 i, u32 s0, u32 s1, u32 s2, u32 s3) {
  return i & 2 ? (i & 1 ? s3 : s2) : (i & 1 ? s1 : s0);
}
template <class A, class B>
INLINE s32 dot4(u32 a, u32 b) {
  s32 sum = 0;
  for (int i = 0; i < 4; ++i) sum += (s32)(A)(a >> (8 * i)) * (s32)(B)(b >> (8 * i));
  return sum;
}
template <class A, class B>
INLINE u32 dot2(u32 a, u32 b) {
  return (u32)((s32)(A)a * (s32)(B)b) + (u32)((s32)(A)(a >> 16) * (s32)(B)(b >> 8));
}
// Floating point.
// Every f32 operation gives this NaN, whatever it was given.
INLINE f32 quiet_nan() { return float_of(0x7fffffffu); }
INLINE f32 canonical(f32 x) { return x != x ? quiet_nan() : x; }
// f64: which of several operands that are NaNs comes out, made quiet: b, then c, then a.
INLINE f64 quiet(f64 x) { return double_of(bits_of(x) | (u64)1 << 51); }
INLINE f64 last_nan(f64 r, f64 b) { return b != b ? quiet(b) : r; }
INLINE f32 ftz(f32 x) {
  return (bits_of(x) & 0x7f800000u) == 0 ? float_of(bits_of(x) & 0x80000000u) : x;
}
INLINE f64 ftz(f64 x) {
  return (bits_of(x) & 0x7ff0000000000000u) == 0 ? double_of(bits_of(x) & ((u64)1 << 63)) : x;
}
// Of a number, and of a result that an approximation makes with the upper 32 bits alone.
INLINE f64 upper_half(f64 x) { return double_of(bits_of(x) & ~(u64)0xffffffffu); }
INLINE f64 upper_result(f64 x) {
  return x != x ? double_of((u64)0x7fffffffu << 32) : upper_half(ftz(x));
}
INLINE f32 fused(f32 a, f32 b, f32 c) { return __builtin_fmaf(a, b, c); }
INLINE f64 fused(f64 a, f64 b, f64 c) { return __builtin_fma(a, b, c); }
// Where one rounding more does not matter: not the C library's emulation on old processors.
INLINE f32 mul_add(f32 a, f32 b, f32 c) {
#ifdef __FMA__
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}
// The number if one is a NaN, -0 below +0.
INLINE f32 min_number(f32 a, f32 b) {
  const f32 least = a < b ? a : b < a ? b : float_of(bits_of(a) | bits_of(b));
  return a != a ? canonical(b) : b != b ? a : least;
}
INLINE f32 max_number(f32 a, f32 b) {
  const f32 most = a > b ? a : b > a ? b : float_of(bits_of(a) & bits_of(b));
  return a != a ? canonical(b) : b != b ? a : most;
}
INLINE f64 min_number(f64 a, f64 b) {
  const f64 least = a < b ? a : b < a ? b : double_of(bits_of(a) | bits_of(b));
  return a != a ? (b != b ? quiet(b) : b) : b != b ? a : least;
}
INLINE f64 max_number(f64 a, f64 b) {
  const f64 most = a > b ? a : b > a ? b : double_of(bits_of(a) & bits_of(b));
  return a != a ? (b != b ? quiet(b) : b) : b != b ? a : most;
}
INLINE f32 min_nan(f32 a, f32 b) { return a != a || b != b ? quiet_nan() : min_number(a, b); }
INLINE f32 max_nan(f32 a, f32 b) { return a != a || b != b ? quiet_nan() : max_number(a, b); }
INLINE f32 saturate(f32 a) { return a > 0 ? (a < 1 ? a : 1) : 0; }

INLINE f32 exp2_of(f32 x) {
  const f32 limited = x > 129 ? 129 : x >= -151 ? x : -151;  // in range for NaN, too
  const f32 whole = __builtin_rintf(limited);
  const f32 t = (limited - whole) * 0.6931471805599453f;  // |t| <= 0.347: t^8 / 8! < 2^-27
  f32 p = mul_add(t, 1.0f / 5040, 1.0f / 720);
  p = mul_add(t, p, 1.0f / 120);
  p = mul_add(t, p, 1.0f / 24);
  p = mul_add(t, p, 1.0f / 6);
  p = mul_add(t, p, 0.5f);
  p = mul_add(t, p, 1.0f);
  p = mul_add(t, p, 1.0f);
  // Two factors, so that subnormal results come out right.
  const s32 n = (s32)whole;
  const s32 half = n >> 1;
  p = p * float_of((u32)(half + 127) << 23) * float_of((u32)(n - half + 127) << 23);
  return x != x ? x : p;
}
INLINE f32 log2_of(f32 x) {
  const bool tiny = x < __FLT_MIN__;
  const f32 scaled = tiny ? x * 16777216.0f : x;
  const s32 moved = (s32)(bits_of(scaled) - 0x3f3504f3u);  // mantissa in [sqrt(1/2), sqrt(2))
  const s32 exponent = moved >> 23;
  const f32 m = float_of(bits_of(scaled) - ((u32)exponent << 23));
  const f32 t = (m - 1) / (m + 1);  // |t| < 0.172: log m = 2 atanh t, t^11 / 11 < 2^-31
  const f32 s = t * t;
  f32 p = mul_add(s, 1.0f / 9, 1.0f / 7);
  p = mul_add(s, p, 1.0f / 5);
  p = mul_add(s, p, 1.0f / 3);
  p = mul_add(s, p, 1.0f);
  const f32 r = mul_add(t * p, 2.885390081777927f, (f32)exponent - (tiny ? 24.0f : 0.0f));
  const f32 special = x == 0 ? -__builtin_inff() : x > 0 ? x : quiet_nan();  // +inf, NaN, negative
  return (x > 0 && x < __builtin_inff()) ? r : special;
}
// x - k * pi/2 in three parts; good while k fits the first product exactly, as on the hardware the
// absolute error grows with |x|.
INLINE f32 reduce_half_pi(f32 x, f32 k) {
#ifdef __FMA__
  f32 r = mul_add(k, -1.57079637050628662109375f, x);
  r = mul_add(k, 4.37113900018624283e-8f, r);
  return r;
#else
  return (f32)((f64)x - (f64)k * 1.5707963267948966);
#endif
}
INLINE f32 sine_quadrant(f32 r, s32 quadrant) {
  const f32 s = r * r;  // r^2 <= 0.617: s^5 r / 11! < 2^-28, s^5 / 10! < 2^-25
  f32 sine = mul_add(s, 1.0f / 362880, -1.0f / 5040);
  sine = mul_add(s, sine, 1.0f / 120);
  sine = mul_add(s, sine, -1.0f / 6);
  sine = mul_add(s * r, sine, r);
  f32 cosine = mul_add(s, -1.0f / 3628800, 1.0f / 40320);
  cosine = mul_add(s, cosine, -1.0f / 720);
  cosine = mul_add(s, cosine, 1.0f / 24);
  cosine = mul_add(s, cosine, -0.5f);
  cosine = mul_add(s, cosine, 1.0f);
  const f32 value = quadrant & 1 ? cosine : sine;
  return quadrant & 2 ? -value : value;
}
INLINE s32 quadrant_of(f32 k) { return k < 2147483520.0f && k > -2147483520.0f ? (s32)k : 0; }
INLINE f32 sine(f32 x) {
  const f32 k = __builtin_rintf(x * 0.6366197723675814f);
  return x == 0 ? x : sine_quadrant(reduce_half_pi(x, k), quadrant_of(k));
}
INLINE f32 cosine(f32 x) {
  const f32 k = __builtin_rintf(x * 0.6366197723675814f);
  return sine_quadrant(reduce_half_pi(x, k), quadrant_of(k) + 1);
}
INLINE f32 tanh_of(f32 x) {
  const f32 a = __builtin_fabsf(x);
  const f32 s = x * x;
  f32 p = mul_add(s, 62.0f / 2835, -17.0f / 315);
  p = mul_add(s, p, 2.0f / 15);
  p = mul_add(s, p, -1.0f / 3);
  p = mul_add(s * x, p, x);  // |x| < 0.3
  const f32 far = 1 - 2 / (exp2_of(a * 2.885390081777927f) + 1);
  const u32 size = bits_of(a < 0.3f ? p : far) & 0x7fffffffu;
  return x != x ? x : float_of(size | (bits_of(x) & 0x80000000u));
}

// Half precision, as bits.
INLINE f32 half_to_float(u16 h) {
  // 2^112 moves the exponent's bias, subnormals included.
  const f32 scaled = float_of((u32)(h & 0x7fff) << 13) * 5192296858534827628530496329220096.0f;
  const u32 special = (h & 0x7c00) == 0x7c00 ? 0x7f800000u : 0;
  return float_of(bits_of(scaled) | special | ((u32)(h & 0x8000) << 16));
}
INLINE u16 float_to_half(f32 x) {
  const u32 bits = bits_of(x) & 0x7fffffffu;
  const u32 sign = (bits_of(x) >> 16) & 0x8000u;
  const u32 normal = (bits + 0xfff + ((bits >> 13) & 1) - (112u << 23)) >> 13;
  // Adding 0.5 leaves the subnormal's bits, correctly rounded, at the mantissa's end.
  const u32 subnormal = bits_of(float_of(bits) + 0.5f) - 0x3f000000u;
  u32 r = bits < 0x38800000u ? subnormal : bits >= 0x477ff000u ? 0x7c00u : normal;
  r = bits > 0x7f800000u ? 0x7fffu : r | sign;
  return (u16)r;
}
INLINE u16 float_to_half_rz(f32 x) {
  const u32 bits = bits_of(x) & 0x7fffffffu;
  const u32 sign = (bits_of(x) >> 16) & 0x8000u;
  const bool subnormal = bits < 0x38800000u;
  const u32 small = (u32)(float_of(subnormal ? bits : 0) * 16777216.0f);  // 2^24
  u32 r = subnormal ? small : (bits - (112u << 23)) >> 13;
  r = bits >= 0x47800000u ? (bits == 0x7f800000u ? 0x7c00u : 0x7bffu) : r;
  return (u16)(bits > 0x7f800000u ? 0x7fffu : r | sign);
}
INLINE u16 float_to_half_directed(f32 x, bool down) {
  const u16 cut = float_to_half_rz(x);
  const f32 back = half_to_float(cut);
  const bool away = down ? back > x : back < x;  // false for NaN and exact values
  return (u16)(cut + (away ? 1 : 0));
}
INLINE f32 bf16_to_float(u16 h) { return float_of((u32)h << 16); }
INLINE u16 float_to_bf16(f32 x) {
  const u32 bits = bits_of(x);
  const u32 rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  return (u16)((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fff : rounded);
}
INLINE u16 float_to_bf16_rz(f32 x) {
  return (u16)((bits_of(x) & 0x7fffffffu) > 0x7f800000u ? 0x7fff : bits_of(x) >> 16);
}
INLINE u16 float_to_bf16_directed(f32 x, bool down) {
  const u16 cut = float_to_bf16_rz(x);
  const f32 back = bf16_to_float(cut);
  const bool away = down ? back > x : back < x;  // false for NaN and exact values
  return (u16)(cut + (away ? 1 : 0));
}
// To nearest; ties away from zero, or to even.
INLINE u32 float_to_tf32(f32 x) {
  const u32 bits = bits_of(x);
  return ((bits & 0x7f800000u) == 0x7f800000u ? bits : bits + 0x1000) & 0xffffe000u;
}
inline constexpr u32 kTf32Nan = 0x7fffe000u;
INLINE u32 float_to_tf32_even(f32 x) {
  const u32 bits = bits_of(x);
  if ((bits & 0x7f800000u) == 0x7f800000u) return x != x ? kTf32Nan : bits;
  return (bits + 0xfff + ((bits >> 13) & 1)) & 0xffffe000u;
}
INLINE u32 relu_tf32(u32 bits) {
  return (bits & 0x7fffffffu) > 0x7f800000u ? kTf32Nan : bits & 0x80000000u ? 0 : bits;
}
// `largest`: what is above it is no number.
INLINE u32 relu_fp8(u32 x, u32 largest) {
  return (x & 0x7fu) > largest ? 0x7fu : x & 0x80u ? 0 : x & 0xffu;
}
// Rounds to odd, after which a second rounding to fewer bits is exact.
INLINE f32 double_to_float_odd(f64 x) {
  const f32 nearest = (f32)x;
  const f64 back = (f64)nearest;
  const u32 bits = bits_of(nearest);
  // Beyond f32, the largest number is next; it is odd.
  const bool beyond = back != x && (bits & 0x7fffffffu) == 0x7f800000u;
  const bool inexact = back != x && (bits & 0x7f800000u) != 0x7f800000u;
  const bool too_far = __builtin_fabs(back) > __builtin_fabs(x);
  return beyond ? float_of(bits - 1) : inexact ? float_of((bits - (too_far ? 1 : 0)) | 1) : nearest;
}
// a * b + c of half-precision values, rounded to odd: the product is exact in double.
INLINE f64 fused_odd(f64 a, f64 b, f64 c) {
  const f64 p = a * b;
  const f64 s = p + c;
  const f64 t = s - p;
  const f64 error = (p - (s - t)) + (c - t);
  const u64 bits = bits_of(s);
  const bool inexact = error != 0 && __builtin_fabs(s) < __builtin_inf();
  const bool toward_zero = (error > 0) != (s > 0);
  return inexact && !(bits & 1) ? double_of(toward_zero ? bits - 1 : bits + 1) : s;
}
// A NaN of f64 keeps its sign and the top of its payload.
INLINE u16 double_to_half(f64 x, u16 rounded) {
  const u64 bits = bits_of(x);
  const u32 kept = 0x7e00u | ((u32)(bits >> 48) & 0x8000u) | ((u32)(bits >> 42) & 0x3ffu);
  return x != x ? (u16)kept : rounded;
}
INLINE u16 double_to_bf16(f64 x, u16 rounded) {
  const u64 bits = bits_of(x);
  const u32 kept = 0x7fc0u | ((u32)(bits >> 48) & 0x8000u) | ((u32)(bits >> 45) & 0x7fu);
  return x != x ? (u16)kept : rounded;
}
// A subnormal number becomes a zero of its sign. `exponent`: the bits of it.
INLINE u32 flush_half(u16 x, u32 exponent) { return (x & exponent) == 0 ? x & 0x8000u : x; }
INLINE u32 abs_half(u16 x, u32 infinity) {
  return (x & 0x7fffu) > infinity ? 0x7fffu : x & 0x7fffu;
}
INLINE u32 neg_half(u16 x, u32 infinity) {
  return (x & 0x7fffu) > infinity ? 0x7fffu : x ^ 0x8000u;
}
INLINE u32 set_sign_half(u16 x, u16 sign, u32 infinity) {
  return (x & 0x7fffu) > infinity ? x : x | sign;
}
// The largest finite value in infinity's place.
INLINE u32 finite_half(u16 x, u32 infinity) {
  return (x & 0x7fffu) == infinity ? (x & 0x8000u) | (infinity - 1) : x;
}
INLINE u32 relu_half(u16 x, u32 infinity) {
  return (x & 0x7fffu) > infinity ? 0x7fffu : x & 0x8000u ? 0 : x;
}
// `code` numbers the comparisons in the order of ir/lower_alu.cc.
INLINE bool compare_code(u32 code, f32 a, f32 b) {
  const bool unordered = a != a || b != b;
  switch (code) {
    case 0: return a == b;
    case 1: return a < b || a > b;
    case 2: return a < b;
    case 3: return a <= b;
    case 4: return a > b;
    case 5: return a >= b;
    case 6: return unordered || a == b;
    case 7: return unordered || a != b;
    case 8: return unordered || a < b;
    case 9: return unordered || a <= b;
    case 10: return unordered || a > b;
    case 11: return unordered || a >= b;
    case 12: return !unordered;
    default: return unordered;
  }
}
template <int kBrain>
INLINE u32 set_half(u16 a, u16 b, u32 code, bool as_mask) {
  const bool yes = kBrain ? compare_code(code, bf16_to_float(a), bf16_to_float(b))
                          : compare_code(code, half_to_float(a), half_to_float(b));
  return !yes ? 0 : as_mask ? 0xffffu : kBrain ? 0x3f80u : 0x3c00u;
}
// FP8 by satfinite rules: too large gives the largest finite value. kExponent: 4 (e4m3) or 5
// (e5m2).
template <int kExponent>
INLINE u16 float_to_fp8(f32 x) {
  constexpr int kMantissa = 7 - kExponent;
  constexpr int kBias = (1 << (kExponent - 1)) - 1;
  constexpr u32 kLargest = kExponent == 4 ? 0x7e : 0x7b;
  const u32 bits = bits_of(x) & 0x7fffffffu;
  const u32 sign = (bits_of(x) >> 24) & 0x80u;
  if (bits > 0x7f800000u) return 0x7f;  // a NaN in both formats
  u32 r;
  if (bits < (u32)(127 - kBias + 1) << 23) {
    // Subnormal: count of the smallest steps, rounded to nearest even by the addition.
    const f32 step = float_of((u32)(127 + 23 - (kBias - 1) - kMantissa) << 23);
    r = bits_of(float_of(bits) + step) - bits_of(step);
  } else {
    constexpr int kShift = 23 - kMantissa;
    const u32 rounded = bits + ((1u << (kShift - 1)) - 1) + ((bits >> kShift) & 1);
    r = (rounded - ((u32)(127 - kBias) << 23)) >> kShift;
    if (r > kLargest) r = kLargest;
  }
  return (u16)(r | sign);
}
template <int kExponent>
INLINE u16 fp8_to_half(u32 x) {
  const u32 sign = (x & 0x80) << 8;
  if (kExponent == 5) return (x & 0x7f) > 0x7c ? 0x7fff : (u16)(x << 8);
  if ((x & 0x7f) == 0x7f) return 0x7fff;
  // e4m3: 3 bits of mantissa, bias 7; 2^8 moves it to the bias of f16 (15).
  const f32 scaled = half_to_float((u16)((x & 0x7f) << 7)) * 256.0f;
  return (u16)(sign | float_to_half(scaled));
}
