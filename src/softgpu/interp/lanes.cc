// SPDX-License-Identifier: Apache-2.0
// Handlers of the IR ops that compute lane by lane, made from ir/*.def. Compiled once per
// instruction set (SOFTGPU_ISA); the loops over 32 lanes are what the compiler vectorises. Uses no
// header with inline functions: their copies would be compiled for this instruction set too.
#include "softgpu/interp/warp.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace openmps::softgpu::SOFTGPU_ISA {
namespace {

#include "softgpu/interp/lane_math.h"

// NaNs among results of f32 become the one that there is. They are rare, so they are looked for
// behind the store, in two vectors with one comparison, and mended out of line by settle().
INLINE bool has_nan(const f32* d) {
#if defined(__AVX512F__)
  return _mm512_cmp_ps_mask(_mm512_loadu_ps(d), _mm512_loadu_ps(d + 16), _CMP_UNORD_Q) != 0;
#elif defined(__AVX2__)
  const __m256 low = _mm256_cmp_ps(_mm256_loadu_ps(d), _mm256_loadu_ps(d + 8), _CMP_UNORD_Q);
  const __m256 high = _mm256_cmp_ps(_mm256_loadu_ps(d + 16), _mm256_loadu_ps(d + 24), _CMP_UNORD_Q);
  return _mm256_movemask_ps(_mm256_or_ps(low, high)) != 0;
#else
  u32 strange = 0;
  LANES strange |= (u32)(d[i] != d[i]);
  return strange != 0;
#endif
}
template <class T>
INLINE bool has_nan(const T*) {
  return false;
}
template <class T>
INLINE T settled(T x) {
  return x;
}
INLINE f32 settled(f32 x) { return canonical(x); }

// Write f(lane) to the lanes of `mask`. `d` may be an operand too: each lane is read before
// written. True: settle() is to come.
template <class D, class F>
INLINE bool each_lane(D* d, u32 mask, F f) {
  if (__builtin_expect(mask == kFullMask, 1)) {
    LANES d[i] = (D)f(i);
    return has_nan(d);
  }
  if (sizeof(D) == 2) {  // gcc 12 cannot generate masked minima of 16-bit lanes
    LANES {
      const u16 keep = (u16)(((mask >> i) & 1) - 1);
      d[i] = (D)(((u16)f(i) & (u16)~keep) | ((u16)d[i] & keep));
    }
  } else {
    LANES {
      const D value = settled((D)f(i));
      d[i] = mask & ((u32)1 << i) ? value : d[i];
    }
  }
  return false;
}

template <class D, class F>
INLINE bool each_active_lane(D* d, u32 mask, F f) {
  for (u32 left = mask; left; left &= left - 1) {
    const u32 i = (u32)__builtin_ctz(left);
    d[i] = settled((D)f(i));
  }
  return false;
}

template <class T>
INLINE T* lanes_at(std::byte* regs, int32_t offset) {
  return (T*)__builtin_assume_aligned(regs + offset,
                                      sizeof(T) * kWarpSize < 64 ? sizeof(T) * kWarpSize : 64);
}

INLINE u32* word_at(std::byte* regs, int32_t offset) { return (u32*)(regs + offset); }

// The last that a handler does: a call that came back would have all of them save what they need
// for the next instruction.
__attribute__((noinline)) const Op* settle(const Op* op, Warp* warp, std::byte* regs, u32 mask) {
  f32* d = lanes_at<f32>(regs, op->d);
  LANES d[i] = canonical(d[i]);
  SOFTGPU_NEXT(op + 1);
}
#define SETTLE_AND_NEXT(unsettled)                                         \
  if (__builtin_expect(unsettled, 0)) return settle(op, warp, regs, mask); \
  SOFTGPU_NEXT(op + 1)

#define HANDLER(name) const Op* h_##name(const Op* op, Warp* warp, std::byte* regs, u32 mask)

#define DEFINE_UNARY(each, name, D, A, ...)                                         \
  HANDLER(name) {                                                                   \
    const A* pa = lanes_at<A>(regs, op->a);                                         \
    const bool unsettled = each(                                                    \
        lanes_at<D>(regs, op->d), mask, [=](u32 i) __attribute__((always_inline)) { \
          const A a = pa[i];                                                        \
          return (D)(__VA_ARGS__);                                                  \
        });                                                                         \
    SETTLE_AND_NEXT(unsettled);                                                     \
  }
#define DEFINE_BINARY(each, name, D, A, B, ...)                                     \
  HANDLER(name) {                                                                   \
    const A* pa = lanes_at<A>(regs, op->a);                                         \
    const B* pb = lanes_at<B>(regs, op->b);                                         \
    const bool unsettled = each(                                                    \
        lanes_at<D>(regs, op->d), mask, [=](u32 i) __attribute__((always_inline)) { \
          const A a = pa[i];                                                        \
          const B b = pb[i];                                                        \
          return (D)(__VA_ARGS__);                                                  \
        });                                                                         \
    SETTLE_AND_NEXT(unsettled);                                                     \
  }
#define DEFINE_TERNARY(each, name, D, A, B, C, ...)                                 \
  HANDLER(name) {                                                                   \
    const A* pa = lanes_at<A>(regs, op->a);                                         \
    const B* pb = lanes_at<B>(regs, op->b);                                         \
    const C* pc = lanes_at<C>(regs, op->c);                                         \
    const bool unsettled = each(                                                    \
        lanes_at<D>(regs, op->d), mask, [=](u32 i) __attribute__((always_inline)) { \
          const A a = pa[i];                                                        \
          const B b = pb[i];                                                        \
          const C c = pc[i];                                                        \
          (void)a, (void)b, (void)c;                                                \
          return (D)(__VA_ARGS__);                                                  \
        });                                                                         \
    SETTLE_AND_NEXT(unsettled);                                                     \
  }

#define UNARY(...) DEFINE_UNARY(each_lane, __VA_ARGS__)
#define BINARY(...) DEFINE_BINARY(each_lane, __VA_ARGS__)
#define TERNARY(...) DEFINE_TERNARY(each_lane, __VA_ARGS__)
#define UNARY_SLOW(...) DEFINE_UNARY(each_active_lane, __VA_ARGS__)
#define BINARY_SLOW(...) DEFINE_BINARY(each_active_lane, __VA_ARGS__)
#define TERNARY_SLOW(...) DEFINE_TERNARY(each_active_lane, __VA_ARGS__)

#define QUATERNARY(name, D, A, B, C, E, ...)                                        \
  HANDLER(name) {                                                                   \
    const A* pa = lanes_at<A>(regs, op->a);                                         \
    const B* pb = lanes_at<B>(regs, op->b);                                         \
    const C* pc = lanes_at<C>(regs, op->c);                                         \
    const E* pe = lanes_at<E>(regs, op->e);                                         \
    const bool unsettled = each_lane(                                               \
        lanes_at<D>(regs, op->d), mask, [=](u32 i) __attribute__((always_inline)) { \
          const A a = pa[i];                                                        \
          const B b = pb[i];                                                        \
          const C c = pc[i];                                                        \
          const E e = pe[i];                                                        \
          return (D)(__VA_ARGS__);                                                  \
        });                                                                         \
    SETTLE_AND_NEXT(unsettled);                                                     \
  }

#define CARRY(name, T, Wide, value, carry, writes_carry)                               \
  HANDLER(name) {                                                                      \
    const T* pa = lanes_at<T>(regs, op->a);                                            \
    const T* pb = lanes_at<T>(regs, op->b);                                            \
    T* pd = lanes_at<T>(regs, op->d);                                                  \
    const u32 carries = *word_at(regs, kCarryOffset);                                  \
    u32 out = 0;                                                                       \
    for (u32 i = 0; i < kWarpSize; ++i) {                                              \
      const T a = pa[i], b = pb[i];                                                    \
      const Wide in = (carries >> i) & 1;                                              \
      (void)in;                                                                        \
      Wide wide;                                                                       \
      value;                                                                           \
      out |= (u32)(carry) << i;                                                        \
      pd[i] = mask & ((u32)1 << i) ? (T)wide : pd[i];                                  \
    }                                                                                  \
    if (writes_carry) *word_at(regs, kCarryOffset) = (carries & ~mask) | (out & mask); \
    SOFTGPU_NEXT(op + 1);                                                              \
  }

#define SELECT(name, T)                                                             \
  HANDLER(name) {                                                                   \
    const T* pa = lanes_at<T>(regs, op->a);                                         \
    const T* pb = lanes_at<T>(regs, op->b);                                         \
    const u32 chosen = *word_at(regs, op->c);                                       \
    const bool unsettled = each_lane(                                               \
        lanes_at<T>(regs, op->d), mask, [=](u32 i) __attribute__((always_inline)) { \
          return chosen & ((u32)1 << i) ? pa[i] : pb[i];                            \
        });                                                                         \
    SETTLE_AND_NEXT(unsettled);                                                     \
  }

#define COMPARE(name, T, ...)                                 \
  HANDLER(name) {                                             \
    const T* pa = lanes_at<T>(regs, op->a);                   \
    const T* pb = lanes_at<T>(regs, op->b);                   \
    u32* d = word_at(regs, op->d);                            \
    const u32 result = compare_lanes(                         \
        pa, pb, [](T a, T b) __attribute__((always_inline)) { \
          (void)b;                                            \
          return (bool)(__VA_ARGS__);                         \
        });                                                   \
    *d = (*d & ~mask) | (result & mask);                      \
    SOFTGPU_NEXT(op + 1);                                     \
  }

// One bit per lane. Where there is an instruction that gathers the lanes' signs, by it; else
// written so that the compiler makes compares and one reduction of it.
#if defined(__AVX2__)
INLINE u32 signs_of(const s32* lanes) {
#if defined(__AVX512F__)
  return _mm512_movepi32_mask(_mm512_loadu_si512(lanes));
#else
  return (u32)_mm256_movemask_ps(_mm256_loadu_ps((const f32*)lanes));
#endif
}
INLINE u32 signs_of(const s64* lanes) {
#if defined(__AVX512F__)
  return _mm512_movepi64_mask(_mm512_loadu_si512(lanes));
#else
  return (u32)_mm256_movemask_pd(_mm256_loadu_pd((const f64*)lanes));
#endif
}
#if defined(__AVX512F__)
constexpr u32 kVectorBytes = 64;
#else
constexpr u32 kVectorBytes = 32;
#endif
template <u32 bytes>
struct SignsOf {
  using Type = s64;
};
template <>
struct SignsOf<4> {
  using Type = s32;
};
#endif

template <class T, class F>
INLINE u32 compare_lanes(const T* a, const T* b, F f) {
  u32 result = 0;
#if defined(__AVX2__)
  if constexpr (sizeof(T) >= 4) {
    constexpr u32 kLanes = kVectorBytes / sizeof(T);
    for (u32 first = 0; first < kWarpSize; first += kLanes) {
      typename SignsOf<sizeof(T)>::Type signs[kLanes];
      for (u32 i = 0; i < kLanes; ++i) signs[i] = f(a[first + i], b[first + i]) ? -1 : 0;
      result |= signs_of(signs) << first;
    }
    return result;
  }
#endif
  for (u32 i = 0; i < kWarpSize; ++i) result |= f(a[i], b[i]) ? (u32)1 << i : 0;
  return result;
}

// 1 / sqrt(x): the processor's estimate and one Newton step where there is one.
template <bool kFlush>
INLINE bool rsqrt_lanes(f32* d, const f32* a, u32 mask) {
#if defined(__AVX512F__)
  for (u32 i = 0; i < kWarpSize; i += 16) {
    __m512 x = _mm512_load_ps(a + i);
    if (kFlush) {
      const __mmask16 subnormal = _mm512_fpclass_ps_mask(x, 0x20);
      x = _mm512_mask_and_ps(x, subnormal, x, _mm512_set1_ps(-0.0f));
    }
    const __m512 y = _mm512_maskz_rsqrt14_ps(0xffff, x);
    const __m512 error = _mm512_fnmadd_ps(_mm512_mul_ps(x, y), y, _mm512_set1_ps(1));
    const __mmask16 special = _mm512_fpclass_ps_mask(y, 0x1e);  // zeros and infinities
    const __m512 better = _mm512_fmadd_ps(_mm512_mul_ps(y, _mm512_set1_ps(0.5f)), error, y);
    const __m512 known = _mm512_mask_mov_ps(better, special, y);
    const __mmask16 strange = _mm512_cmp_ps_mask(known, known, _CMP_UNORD_Q);
    const __m512 r = _mm512_mask_mov_ps(known, strange, _mm512_set1_ps(quiet_nan()));
    _mm512_mask_store_ps(d + i, (__mmask16)(mask >> i), r);
  }
  return false;
#else
  return each_lane(
      d, mask, [=](u32 i) __attribute__((always_inline)) {
        const f32 x = kFlush ? ftz(a[i]) : a[i];
        return 1 / __builtin_sqrtf(x);
      });
#endif
}
#define RSQRT(name, flush)                                                                 \
  HANDLER(name) {                                                                          \
    SETTLE_AND_NEXT(                                                                       \
        rsqrt_lanes<flush>(lanes_at<f32>(regs, op->d), lanes_at<f32>(regs, op->a), mask)); \
  }

#define LOAD(...)
#define STORE(...)
#define PLAIN(...)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#include "softgpu/ir/ops_all.def"
#pragma GCC diagnostic pop

}  // namespace

void add_lane_handlers(HandlerTable* table) {
#define UNARY(name, ...) table->handlers[(size_t)IrOp::k_##name] = h_##name;
#define BINARY UNARY
#define TERNARY UNARY
#define QUATERNARY UNARY
#define UNARY_SLOW UNARY
#define BINARY_SLOW UNARY
#define TERNARY_SLOW UNARY
#define CARRY UNARY
#define SELECT UNARY
#define RSQRT UNARY
#define COMPARE UNARY
#define LOAD(...)
#define STORE(...)
#define PLAIN(...)
#include "softgpu/ir/ops_all.def"
}

}  // namespace openmps::softgpu::SOFTGPU_ISA
