// SPDX-License-Identifier: Apache-2.0
// Handlers of plain loads and stores. Compiled once per instruction set, like lanes.cc, so no
// header with inline functions may be included. An access of the whole warp is recognised as
// uniform, contiguous or scattered by one pass over the addresses; a bounds check covers all lanes
// at once.
//
// Fields: a the addresses, imm an offset, aux the number of elements (vectors); for loads d, for
// stores b the register, or with more than one element `extra` the registers.
#include "softgpu/interp/warp.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace openmps::softgpu::SOFTGPU_ISA {
namespace {

#include "softgpu/interp/lane_math.h"
#include "softgpu/interp/lane_vectors.h"

#define OUTLINE static __attribute__((noinline))
#define UNROLL _Pragma("GCC unroll 8")

INLINE const std::byte* operand(std::byte* regs, const Op* op, u32 element, int32_t single) {
  return regs + (op->aux == 1 ? single : op->extra[element]);
}

// The access to the memory of a kernel's threads, an lvalue. Threads that race without atomics see
// one value or the other on a GPU; ThreadSanitizer builds therefore make every access a relaxed
// atomic: kernels may race with each other, a race with a copy or with the program is still
// reported. Elsewhere the accesses are plain, which vectorises.
#if defined(__SANITIZE_THREAD__)
template <class M>
INLINE M read_relaxed(const M* from) {
  return __atomic_load_n(from, __ATOMIC_RELAXED);
}
template <class M>
INLINE void write_relaxed(M* to, M value) {
  __atomic_store_n(to, value, __ATOMIC_RELAXED);
}
// Not atomic as a whole on a GPU either.
INLINE u128 read_relaxed(const u128* from) {
  const u64* halves = (const u64*)from;
  return (u128)read_relaxed(halves + 1) << 64 | read_relaxed(halves);
}
INLINE void write_relaxed(u128* to, u128 value) {
  write_relaxed((u64*)to, (u64)value);
  write_relaxed((u64*)to + 1, (u64)(value >> 64));
}
#define READ(place) read_relaxed(&(place))
#define WRITE(place, value) write_relaxed(&(place), value)
#else
#define READ(place) (place)
#define WRITE(place, value) (place) = (value)
#endif

// What all 32 addresses look like together.
enum Pattern : u32 { kUniform, kContiguous, kScattered };

template <class A, u32 step>
INLINE Pattern classify_step(const A* addresses) {
  const A first = addresses[0];
  A not_uniform = 0, not_contiguous = 0;
  for (u32 i = 0; i < kWarpSize; ++i) {
    not_uniform |= addresses[i] ^ first;
    not_contiguous |= (A)(addresses[i] - (A)(i * step)) ^ first;
  }
  return not_uniform == 0 ? kUniform : not_contiguous == 0 ? kContiguous : kScattered;
}

// The step between neighbours must be a constant: multiplications would cost more than the rest.
template <class A, class M>
INLINE Pattern classify(const A* addresses, u32 count) {
  switch (count) {
    case 1: return classify_step<A, sizeof(M)>(addresses);
    case 2: return classify_step<A, 2 * sizeof(M)>(addresses);
    case 4: return classify_step<A, 4 * sizeof(M)>(addresses);
    default: return kScattered;
  }
}

struct Extent {
  u64 low;
  u64 high;  // of the last access's first byte
  u64 ored;  // all addresses, for the alignment
};

template <class A>
INLINE Extent extent(const A* addresses, A offset, u32 active) {
  A low = ~(A)0, high = 0, ored = 0;
  if (active == kFullMask) {
    for (u32 i = 0; i < kWarpSize; ++i) {
      const A address = addresses[i] + offset;
      low = address < low ? address : low;
      high = address > high ? address : high;
      ored |= address;
    }
  } else {
    for (u32 left = active; left; left &= left - 1) {
      const A address = addresses[__builtin_ctz(left)] + offset;
      low = address < low ? address : low;
      high = address > high ? address : high;
      ored |= address;
    }
  }
  return {low, high, ored};
}

// Neighbouring ops have different slots: they are seven words long.
INLINE u32 range_slot(const Op* op) { return (u32)((u64)op / 8) % kRangeSlots; }

// Whether [begin, end) is in the range that `op` found last; false says nothing.
INLINE bool in_slot(const Warp* warp, const Op* op, u64 begin, u64 end, bool write) {
  const CachedRange& range = warp->ranges->slots[range_slot(op)];
  return begin >= range.begin && end <= (write ? range.writable_end : range.end) && begin < end;
}
INLINE bool in_range(Warp* warp, const Op* op, u64 begin, u64 end, bool write) {
  return __builtin_expect(in_slot(warp, op, begin, end, write), 1) ||
         find_range(warp, begin, end, write, range_slot(op));
}

template <class M, class R>
INLINE void load_uniform(const Op* op, std::byte* regs, const std::byte* at, u32 mask) {
  const u32 count = op->aux;  // the lanes that are stored might be `op`, for all the compiler knows
  for (u32 e = 0; e < count; ++e) {
    R* d = (R*)operand(regs, op, e, op->d);
    const R value = (R)READ(((const M*)at)[e]);
    if (mask == kFullMask) {
      LANES d[i] = value;
    } else {
      LANES d[i] = mask & ((u32)1 << i) ? value : d[i];
    }
  }
}

// `base` points to lane 0's first element; lane i's follow at i * aux.
template <class M, class R>
INLINE void load_contiguous(const Op* op, std::byte* regs, const std::byte* base) {
  const M* from = (const M*)base;
  if (op->aux == 1) {
    R* d = (R*)(regs + op->d);
    LANES d[i] = (R)READ(from[i]);
    return;
  }
  const u32 n = op->aux;
  for (u32 e = 0; e < n; ++e) {
    R* d = (R*)(regs + op->extra[e]);
    LANES d[i] = (R)READ(from[i * n + e]);
  }
}

// Whether there are forms that move whole vector registers, or the vectors of single lanes.
template <class M, class R>
constexpr bool kMovesVectors = SOFTGPU_VECTORS != 0 && sizeof(M) == sizeof(R) &&
                               (sizeof(M) == 4 || sizeof(M) == 8);

template <class M, class R, class P>
INLINE void load_scattered(const Op* op, std::byte* regs, u32 active, P pointer) {
#if SOFTGPU_VECTORS
  if constexpr (kMovesVectors<M, R>) {
    if (op->aux != 1 && active == kFullMask &&
        load_lane_vectors<sizeof(M)>(op->aux, regs, op->extra, pointer)) {
      return;
    }
  }
#endif
  for (u32 e = 0; e < op->aux; ++e) {
    R* d = (R*)operand(regs, op, e, op->d);
    if (active == kFullMask) {
      for (u32 i = 0; i < kWarpSize; ++i) d[i] = (R)READ(((const M*)pointer(i))[e]);
    } else {
      for (u32 left = active; left; left &= left - 1) {
        const u32 i = (u32)__builtin_ctz(left);
        d[i] = (R)READ(((const M*)pointer(i))[e]);
      }
    }
  }
}

template <class M, class R, class P>
INLINE void store_scattered(const Op* op, std::byte* regs, u32 active, P pointer) {
#if SOFTGPU_VECTORS
  if constexpr (kMovesVectors<M, R>) {
    if (op->aux != 1 && active == kFullMask &&
        store_lane_vectors<sizeof(M)>(op->aux, regs, op->extra, pointer)) {
      return;
    }
  }
#endif
  for (u32 e = 0; e < op->aux; ++e) {
    const R* from = (const R*)operand(regs, op, e, op->b);
    if (active == kFullMask) {
      for (u32 i = 0; i < kWarpSize; ++i) WRITE(((M*)pointer(i))[e], (M)from[i]);
    } else {
      for (u32 left = active; left; left &= left - 1) {
        const u32 i = (u32)__builtin_ctz(left);
        WRITE(((M*)pointer(i))[e], (M)from[i]);
      }
    }
  }
}

// Half a warp at a time: 16 threads in a row are what two-dimensional blocks of width 16 give.
constexpr u32 kHalf = kWarpSize / 2;

// Written with intrinsics: gcc unrolls the plain loop into a hundred scalar instructions.
template <u32 step>
INLINE Pattern classify_half(const u32* addresses) {
#if defined(__AVX512F__)
  const __m512i lanes = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  const __m512i steps = _mm512_mullo_epi32(lanes, _mm512_set1_epi32(step));
  const __m512i at = _mm512_loadu_si512(addresses);
  const __m512i first = _mm512_set1_epi32((int)addresses[0]);
  if (_mm512_cmpneq_epi32_mask(at, first) == 0) return kUniform;
  return _mm512_cmpneq_epi32_mask(_mm512_sub_epi32(at, steps), first) == 0 ? kContiguous
                                                                           : kScattered;
#elif defined(__AVX2__)
  const __m256i first = _mm256_set1_epi32((int)addresses[0]);
  const __m256i low = _mm256_loadu_si256((const __m256i*)addresses);
  const __m256i high = _mm256_loadu_si256((const __m256i*)(addresses + 8));
  const __m256i steps =
      _mm256_mullo_epi32(_mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0), _mm256_set1_epi32(step));
  const __m256i far = _mm256_add_epi32(steps, _mm256_set1_epi32(8 * step));
  if (_mm256_movemask_epi8(_mm256_and_si256(_mm256_cmpeq_epi32(low, first),
                                            _mm256_cmpeq_epi32(high, first))) == -1) {
    return kUniform;
  }
  const __m256i same = _mm256_and_si256(_mm256_cmpeq_epi32(_mm256_sub_epi32(low, steps), first),
                                        _mm256_cmpeq_epi32(_mm256_sub_epi32(high, far), first));
  return _mm256_movemask_epi8(same) == -1 ? kContiguous : kScattered;
#else
  u32 i = 1;
  while (i < kHalf && addresses[i] == addresses[0]) ++i;
  if (i == kHalf) return kUniform;
  for (i = 1; i < kHalf && addresses[i] - i * step == addresses[0];) ++i;
  return i == kHalf ? kContiguous : kScattered;
#endif
}

// Load from `base` + address; nothing is checked here. False: the addresses are scattered.
template <class M, class R>
INLINE bool load_halves(R* d, const u32* addresses, const std::byte* base) {
  const Pattern patterns[2] = {classify_half<sizeof(M)>(addresses),
                               classify_half<sizeof(M)>(addresses + kHalf)};
  if (patterns[0] == kScattered || patterns[1] == kScattered) return false;
  const M* from[2] = {(const M*)(base + addresses[0]), (const M*)(base + addresses[kHalf])};
  for (u32 h = 0; h < 2; ++h) {
    R* to = d + h * kHalf;
    if (patterns[h] == kUniform) {
      const R value = (R)READ(*from[h]);
      for (u32 i = 0; i < kHalf; ++i) to[i] = value;
    } else {
      INDEPENDENT for (u32 i = 0; i < kHalf; ++i) to[i] = (R)READ(from[h][i]);
    }
  }
  return true;
}

// The address register may be one of a vector load's results: keep a copy.
template <class A>
struct Addresses {
  A lane[kWarpSize];
};
template <class A>
INLINE Addresses<A> copy_of(const A* addresses) {
  Addresses<A> r;
  LANES r.lane[i] = addresses[i];
  return r;
}

template <class A>
INLINE Addresses<A> shifted(const A* addresses, A offset) {
  Addresses<A> r;
  LANES r.lane[i] = addresses[i] + offset;
  return r;
}

// Moves by whole vector registers, for whole warps. `good(firsts, bytes)` says whether `bytes` from
// each of the offsets `firsts` of the address `base` may be accessed as aligned elements. False:
// nothing has been done.
// ------

#if SOFTGPU_VECTORS
template <class A>
INLINE Extent extent_of(const A (&first)[kVectors]) {
  A low = first[0], high = first[0], ored = first[0];
  for (u32 v = 1; v < kVectors; ++v) {
    low = first[v] < low ? first[v] : low;
    high = first[v] > high ? first[v] : high;
    ored |= first[v];
  }
  return {low, high, ored};
}
#endif

template <class M, class A, class Good>
INLINE bool load_vectors([[maybe_unused]] M* d, [[maybe_unused]] const A* addresses,
                         [[maybe_unused]] A offset, [[maybe_unused]] u64 base,
                         [[maybe_unused]] Good good) {
#if SOFTGPU_VECTORS
  A first[kVectors];  // the registers of addresses may be those of the result
  for (u32 v = 0; v < kVectors; ++v) first[v] = addresses[v * kVectorLanes] + offset;
  // Rows are the rule in global memory. In shared memory, where its addresses cost half as much,
  // the window serves all.
  if constexpr (sizeof(A) == 8 || sizeof(M) == 8) {
    constexpr u64 kRowBytes = sizeof(M) * kVectorLanes;
    if (rows_of<sizeof(M)>(addresses)) {
      if (!good(extent_of(first), kRowBytes)) return false;
      for (u32 v = 0; v < kVectors; ++v) {
        for (u64 at = 0; at < kRowBytes; at += sizeof(Words)) {
          store_words((std::byte*)(d + v * kVectorLanes) + at,
                      load_words((const void*)(base + first[v] + at)));
        }
      }
      return true;
    }
  }
  if constexpr (sizeof(M) == 4) {
    Words distances[kVectors];
    if (!windows_of(addresses, distances) || !good(extent_of(first), kWindowBytes)) return false;
    for (u32 v = 0; v < kVectors; ++v) {
      store_words(d + v * kVectorLanes, permute_words(load_words((const void*)(base + first[v])),
                                                      quarter_words(distances[v])));
    }
    return true;
  }
#endif
  return false;
}

// As load_vectors(), of words or vectors of words whose lanes read from two windows. All loops are
// unrolled: places in memory that are written in parts and read as a whole would cost more than the
// rest.
template <u32 count, class A, class Good>
INLINE bool load_windows([[maybe_unused]] const Op* op, [[maybe_unused]] std::byte* regs,
                         [[maybe_unused]] const A* addresses, [[maybe_unused]] u64 base,
                         [[maybe_unused]] Good good) {
#if SOFTGPU_VECTORS
  const A offset = (A)op->imm;
  TwoWindows<A> windows[kVectors];
  Extent all = {~(u64)0, 0, 0};
  UNROLL for (u32 v = 0; v < kVectors; ++v) {
    if (!find_windows(addresses + v * kVectorLanes, 4 * count, &windows[v])) return false;
    UNROLL for (u32 w = 0; w < 2; ++w) {
      const A at = windows[v].begin[w] + offset;
      all.low = min_of<u64>(all.low, at);
      all.high = max_of<u64>(all.high, at);
      all.ored |= at;
    }
  }
  if (!good(all, kWindowBytes)) return false;
  int32_t to[count];
  UNROLL for (u32 e = 0; e < count; ++e) to[e] = count == 1 ? op->d : op->extra[e];
  UNROLL for (u32 v = 0; v < kVectors; ++v) {
    const Words first = load_words((const void*)(base + (A)(windows[v].begin[0] + offset)));
    const Words second = load_words((const void*)(base + (A)(windows[v].begin[1] + offset)));
    UNROLL for (u32 e = 0; e < count; ++e) {
      store_words((u32*)(regs + to[e]) + v * kVectorLanes,
                  permute_pair(first, second, add_words(windows[v].index, splat_words(e))));
    }
  }
  return true;
#else
  return false;
#endif
}
template <class A, class Good>
INLINE bool load_vector_windows(const Op* op, std::byte* regs, const A* addresses, u64 base,
                                Good good) {
  return (op->aux == 2 && load_windows<2>(op, regs, addresses, base, good)) ||
         (op->aux == 4 && load_windows<4>(op, regs, addresses, base, good));
}

template <class M, class A, class Good>
INLINE bool store_vectors([[maybe_unused]] const M* from, [[maybe_unused]] const A* addresses,
                          [[maybe_unused]] A offset, [[maybe_unused]] u64 base,
                          [[maybe_unused]] Good good) {
#if SOFTGPU_VECTORS
  if (!rows_of<sizeof(M)>(addresses)) return false;
  constexpr u64 kRowBytes = sizeof(M) * kVectorLanes;
  A first[kVectors];
  for (u32 v = 0; v < kVectors; ++v) first[v] = addresses[v * kVectorLanes] + offset;
  if (!good(extent_of(first), kRowBytes)) return false;
  for (u32 v = 0; v < kVectors; ++v) {  // of rows that overlap, as of lanes, the last one wins
    std::byte* to = (std::byte*)(base + first[v]);
    for (u64 at = 0; at < kRowBytes; at += sizeof(Words)) {
      store_words(to + at, load_words((const std::byte*)(from + v * kVectorLanes) + at));
    }
  }
  return true;
#else
  return false;
#endif
}

// A loop's next loads from `at` on will be as far from this one as this from the last: with many
// threads in flight a GPU hides what the processor's own prefetcher, which stops at pages, does
// not.
constexpr u64 kLoadsAhead = 4;
constexpr u64 kCacheLine = 64;
INLINE void prefetch_next(Warp* warp, const Op* op, u64 at, u64 bytes) {
  u64* last = &warp->last_row[range_slot(op)];
  const u64 then = at + kLoadsAhead * (at - *last);
  *last = at;
  for (u64 i = 0; i < bytes; i += kCacheLine) __builtin_prefetch((const void*)(then + i));
  __builtin_prefetch((const void*)(then + bytes - 1));  // on one line more if not aligned
}

// Global and generic. ------------------------------------------------------------------------

INLINE auto global_good(const Warp* warp, const Op* op, u64 alignment, bool write) {
  return [=](const Extent& at, u64 size) __attribute__((always_inline)) {
    return (at.ored & (alignment - 1)) == 0 && in_slot(warp, op, at.low, at.high + size, write);
  };
}

template <class M, class R>
OUTLINE const Op* load_global_rest(const Op* op, Warp* warp, std::byte* regs, u32) {
  const u64* addresses = (const u64*)(regs + op->a);
  const u32 active = warp->active;
  const u64 bytes = sizeof(M) * op->aux;
  const Extent all = extent(addresses, (u64)op->imm, active);
  if (all.ored & (bytes - 1)) return fault_misaligned(warp, op, addresses, bytes);
  if (in_range(warp, op, all.low, all.high + bytes, false)) {
    const Addresses<u64> from = copy_of(addresses);
    const u64 offset = op->imm;
    load_scattered<M, R>(op, regs, active, [&](u32 i) { return from.lane[i] + offset; });
    return op + 1;
  }
  if (!resolve(warp, op, addresses, bytes, false)) return nullptr;
  load_scattered<M, R>(op, regs, active, [&](u32 i) { return warp->pointers[i]; });
  return op + 1;
}

template <class M, class R>
OUTLINE const Op* load_global_plain(const Op* op, Warp* warp, std::byte* regs, u32 mask) {
  if (warp->active == kFullMask) {
    const u64* addresses = (const u64*)(regs + op->a);
    const u64 bytes = sizeof(M) * op->aux;
    const Pattern pattern = classify<u64, M>(addresses, op->aux);
    const u64 first = addresses[0] + op->imm;
    if (pattern != kScattered && (first & (bytes - 1)) == 0) {
      const u64 span = pattern == kUniform ? bytes : bytes * kWarpSize;
      if (in_range(warp, op, first, first + span, false)) {
        if (pattern == kUniform) {
          load_uniform<M, R>(op, regs, (const std::byte*)first, kFullMask);
        } else {
          load_contiguous<M, R>(op, regs, (const std::byte*)first);
          prefetch_next(warp, op, first, span);
        }
        SOFTGPU_NEXT(op + 1);
      }
    }
    if constexpr (kMovesVectors<M, R> && sizeof(M) == 4) {
      if (load_vector_windows(op, regs, addresses, 0, global_good(warp, op, bytes, false))) {
        SOFTGPU_NEXT(op + 1);
      }
    }
  }
  return load_global_rest<M, R>(op, warp, regs, mask);
}

template <class M, class R>
OUTLINE const Op* load_global_windows(const Op* op, Warp* warp, std::byte* regs, u32 mask) {
  const u64* addresses = (const u64*)(regs + op->a);
  if (load_windows<1>(op, regs, addresses, 0, global_good(warp, op, sizeof(M), false))) {
    SOFTGPU_NEXT(op + 1);
  }
  return load_global_plain<M, R>(op, warp, regs, mask);
}

template <class M, class R>
INLINE const Op* load_global(const Op* op, Warp* warp, std::byte* regs, u32 mask) {
  if constexpr (kMovesVectors<M, R>) {
    if (warp->active == kFullMask && op->aux == 1) {
      const u64* addresses = (const u64*)(regs + op->a);
      const u64 at = addresses[0] + op->imm;
      if (load_vectors((M*)(regs + op->d), addresses, op->imm, 0,
                       global_good(warp, op, sizeof(M), false))) {
        prefetch_next(warp, op, at, sizeof(M) * kWarpSize);
        SOFTGPU_NEXT(op + 1);
      }
      if constexpr (sizeof(M) == 4) return load_global_windows<M, R>(op, warp, regs, mask);
    }
  }
  return load_global_plain<M, R>(op, warp, regs, mask);
}

template <class M, class R>
OUTLINE const Op* store_global_rest(const Op* op, Warp* warp, std::byte* regs, u32) {
  const u64* addresses = (const u64*)(regs + op->a);
  const u32 active = warp->active;
  const u64 bytes = sizeof(M) * op->aux;
  const Extent all = extent(addresses, (u64)op->imm, active);
  if (all.ored & (bytes - 1)) return fault_misaligned(warp, op, addresses, bytes);
  if (in_range(warp, op, all.low, all.high + bytes, true)) {
    store_scattered<M, R>(op, regs, active, [&](u32 i) { return addresses[i] + op->imm; });
    return op + 1;
  }
  if (!resolve(warp, op, addresses, bytes, true)) return nullptr;
  store_scattered<M, R>(op, regs, active, [&](u32 i) { return warp->pointers[i]; });
  return op + 1;
}

template <class M, class R>
OUTLINE const Op* store_global_plain(const Op* op, Warp* warp, std::byte* regs, u32 mask) {
  if (warp->active == kFullMask && op->aux == 1) {
    const u64* addresses = (const u64*)(regs + op->a);
    const u64 first = addresses[0] + op->imm;
    if (classify<u64, M>(addresses, 1) == kContiguous && (first & (sizeof(M) - 1)) == 0 &&
        in_range(warp, op, first, first + sizeof(M) * kWarpSize, true)) {
      const R* from = (const R*)(regs + op->b);
      M* to = (M*)first;
      LANES WRITE(to[i], (M)from[i]);
      SOFTGPU_NEXT(op + 1);
    }
  }
  return store_global_rest<M, R>(op, warp, regs, mask);
}

template <class M, class R>
INLINE const Op* store_global(const Op* op, Warp* warp, std::byte* regs, u32 mask) {
  if constexpr (kMovesVectors<M, R>) {
    if (warp->active == kFullMask && op->aux == 1) {
      const u64* addresses = (const u64*)(regs + op->a);
      if (store_vectors((const M*)(regs + op->b), addresses, op->imm, 0,
                        global_good(warp, op, sizeof(M), true))) {
        SOFTGPU_NEXT(op + 1);
      }
    }
  }
  return store_global_plain<M, R>(op, warp, regs, mask);
}

// Shared: 32-bit offsets into the block's memory. ---------------------------------------------

template <class M>
INLINE auto shared_good(const Warp* warp, u64 alignment = sizeof(M)) {
  return [ bytes = warp->shared_bytes, alignment ](const Extent& at, u64 size)
      __attribute__((always_inline)) {
    return (at.ored & (alignment - 1)) == 0 && at.high + size <= bytes;
  };
}

template <class M, class R>
OUTLINE const Op* load_shared_rest(const Op* op, Warp* warp, std::byte* regs, u32) {
  const u32* addresses = (const u32*)(regs + op->a);
  const u32 active = warp->active;
  const u64 bytes = sizeof(M) * op->aux;
  const u32 offset = (u32)op->imm;
  const Addresses<u32> from = copy_of(addresses);
  for (u32 left = active; left; left &= left - 1) {
    const u32 at = from.lane[__builtin_ctz(left)] + offset;
    if (at + bytes > warp->shared_bytes || (at & (bytes - 1))) return fault_shared(warp, op, bytes);
  }
  load_scattered<M, R>(op, regs, active,
                       [&](u32 i) { return warp->shared + (u32)(from.lane[i] + offset); });
  return op + 1;
}

template <class M, class R>
OUTLINE const Op* load_shared_plain(const Op* op, Warp* warp, std::byte* regs, u32 mask) {
  if (warp->active == kFullMask) {
    const u32* addresses = (const u32*)(regs + op->a);
    const u64 bytes = sizeof(M) * op->aux;
    const Pattern pattern = classify<u32, M>(addresses, op->aux);
    const u32 first = addresses[0] + (u32)op->imm;
    if (pattern != kScattered && (first & (bytes - 1)) == 0 &&
        first + (pattern == kUniform ? bytes : bytes * kWarpSize) <= warp->shared_bytes) {
      if (pattern == kUniform) {
        load_uniform<M, R>(op, regs, warp->shared + first, kFullMask);
      } else {
        load_contiguous<M, R>(op, regs, warp->shared + first);
      }
      SOFTGPU_NEXT(op + 1);
    }
    const u32 offset = (u32)op->imm;
    const Extent all = extent(addresses, offset, kFullMask);
    if (op->aux == 1 && all.high + sizeof(M) <= warp->shared_bytes &&
        (all.ored & (sizeof(M) - 1)) == 0) {
      const std::byte* base = warp->shared;
      R* d = (R*)(regs + op->d);
      const Addresses<u32> from = shifted(addresses, offset);
      if (!load_halves<M, R>(d, from.lane, base)) {
        LANES d[i] = (R)READ(*(const M*)(base + from.lane[i]));
      }
      SOFTGPU_NEXT(op + 1);
    }
  }
  return load_shared_rest<M, R>(op, warp, regs, mask);
}

template <class M, class R>
OUTLINE const Op* load_shared_windows(const Op* op, Warp* warp, std::byte* regs, u32 mask) {
  const u32* addresses = (const u32*)(regs + op->a);
  if (load_windows<1>(op, regs, addresses, (u64)warp->shared, shared_good<M>(warp))) {
    SOFTGPU_NEXT(op + 1);
  }
  // Scattered, or out of bounds.
  const u32 offset = (u32)op->imm;
  const Extent all = extent(addresses, offset, kFullMask);
  if (!shared_good<M>(warp)(all, sizeof(M))) return load_shared_rest<M, R>(op, warp, regs, mask);
  const std::byte* base = warp->shared;
  R* d = (R*)(regs + op->d);
  const Addresses<u32> from = shifted(addresses, offset);
  for (u32 i = 0; i < kWarpSize; ++i) d[i] = (R)READ(*(const M*)(base + from.lane[i]));
  SOFTGPU_NEXT(op + 1);
}
template <class M, class R>
OUTLINE const Op* load_shared_vector_windows(const Op* op, Warp* warp, std::byte* regs, u32 mask) {
  const u32* addresses = (const u32*)(regs + op->a);
  if (load_vector_windows(op, regs, addresses, (u64)warp->shared,
                          shared_good<M>(warp, sizeof(M) * op->aux))) {
    SOFTGPU_NEXT(op + 1);
  }
  return load_shared_plain<M, R>(op, warp, regs, mask);
}

// Of a whole warp that reads one place, as threads do that go through a tile together: without what
// the other cases need of the stack.
template <class M>
INLINE bool load_shared_same([[maybe_unused]] const Op* op, [[maybe_unused]] const Warp* warp,
                             [[maybe_unused]] std::byte* regs,
                             [[maybe_unused]] const u32* addresses) {
#if SOFTGPU_VECTORS
  const u64 first = addresses[0] + (u32)op->imm;
  const u64 bytes = sizeof(M) * op->aux;
  if (!all_equal(addresses) || (first & (bytes - 1)) != 0 || first + bytes > warp->shared_bytes) {
    return false;
  }
  load_uniform<M, M>(op, regs, warp->shared + first, kFullMask);
  return true;
#else
  return false;
#endif
}

template <class M, class R>
INLINE const Op* load_shared(const Op* op, Warp* warp, std::byte* regs, u32 mask) {
  if constexpr (kMovesVectors<M, R>) {
    if (warp->active == kFullMask) {
      const u32* addresses = (const u32*)(regs + op->a);
      if (op->aux == 1 ? load_vectors((M*)(regs + op->d), addresses, (u32)op->imm,
                                      (u64)warp->shared, shared_good<M>(warp))
                       : load_shared_same<M>(op, warp, regs, addresses)) {
        SOFTGPU_NEXT(op + 1);
      }
      if constexpr (sizeof(M) == 4) {
        return op->aux == 1 ? load_shared_windows<M, R>(op, warp, regs, mask)
                            : load_shared_vector_windows<M, R>(op, warp, regs, mask);
      }
    }
  }
  return load_shared_plain<M, R>(op, warp, regs, mask);
}

// Runs of loads with the same addresses but for a constant (ir/fuse.cc). b: where the windows are
// kept; of the first load, c and e: the lowest and the highest offset in the run, so that it checks
// bounds for all. Between the loads of a run nothing switches lanes or warps; and should the first
// one keep nothing, all are as single loads.
#if SOFTGPU_VECTORS
INLINE void keep_windows(const Op* op, Warp* warp, const u32* addresses) {
  KeptWindow& kept = warp->windows[op->b];
  Words distances[kVectors];
  bool valid = windows_of(addresses, distances);
  Words all = splat_words(0);
  for (u32 v = 0; v < kVectors; ++v) all |= distances[v];
  const s64 span = all_zero(all, all) ? sizeof(u32) : kWindowBytes;
  for (u32 v = 0; v < kVectors; ++v) {
    const s64 first = addresses[v * kVectorLanes];
    valid &= ((first + op->c) & 3) == 0 && first + op->c >= 0 &&
             first + op->e + span <= (s64)warp->shared_bytes;
    kept.begin[v] = warp->shared + first;
    store_words(kept.index + v * kVectorLanes, quarter_words(distances[v]));
  }
  kept.valid = valid;
}
INLINE Words kept_words(const Op* op, const KeptWindow& kept, u32 v) {
  return permute_words(load_words(kept.begin[v] + (s32)op->imm),
                       load_words(kept.index + v * kVectorLanes));
}
#endif

INLINE const Op* load_shared_kept(const Op* op, Warp* warp, std::byte* regs, u32 mask) {
#if SOFTGPU_VECTORS
  const KeptWindow& kept = warp->windows[op->b];
  if (__builtin_expect(kept.valid, 1)) {
    u32* d = (u32*)(regs + op->d);
    for (u32 v = 0; v < kVectors; ++v) store_words(d + v * kVectorLanes, kept_words(op, kept, v));
    SOFTGPU_NEXT(op + 1);
  }
#endif
  return load_shared<u32, u32>(op, warp, regs, mask);
}

INLINE const Op* load_shared_keep(const Op* op, Warp* warp, std::byte* regs, u32 mask) {
#if SOFTGPU_VECTORS
  if (__builtin_expect(warp->active == kFullMask, 1)) {
    keep_windows(op, warp, (const u32*)(regs + op->a));
  } else {
    warp->windows[op->b].valid = false;
  }
#endif
  return load_shared_kept(op, warp, regs, mask);
}

// NaNs among the sums of an inner product's steps from `first` to `op` become the one that there
// is, and `op` comes next.
[[maybe_unused]] OUTLINE const Op* settle_sums(const Op* op, Warp* warp, std::byte* regs, u32 mask,
                                               const Op* first) {
  for (; first != op; first += 3) {
    f32* d = (f32*)(regs + first[2].d);
    LANES d[i] = canonical(d[i]);
  }
  SOFTGPU_NEXT(op);
}

// A step of an inner product and those that continue it, as the aux of its multiply-add says. The
// words are not written to registers: nothing else reads them.
INLINE const Op* load_shared_fma(const Op* op, Warp* warp, std::byte* regs, u32 mask) {
#if SOFTGPU_VECTORS
  const KeptWindow* windows = warp->windows;
  if (__builtin_expect(windows[op[0].b].valid && windows[op[1].b].valid, 1)) {
    Floats sum[kVectors];
    const Op* const first = op;
    for (u32 v = 0; v < kVectors; ++v) {
      sum[v] = load_floats((const f32*)(regs + op[2].c) + v * kVectorLanes);
    }
    for (bool more = true; more; op += 3) {
      const KeptWindow &x = windows[op[0].b], &y = windows[op[1].b];
      if (__builtin_expect(!x.valid || !y.valid, 0)) break;
      f32* d = (f32*)(regs + op[2].d);
      for (u32 v = 0; v < kVectors; ++v) {
        sum[v] = fused_floats(kept_words(op, x, v), kept_words(op + 1, y, v), sum[v]);
        store_floats(d + v * kVectorLanes, sum[v]);
      }
      more = op[2].aux;
    }
    // A NaN survives to the end of the sums, so it is enough to check for one there.
    if (__builtin_expect(has_nan(sum), 0)) return settle_sums(op, warp, regs, mask, first);
    SOFTGPU_NEXT(op);
  }
#endif
  return load_shared_kept(op, warp, regs, mask);
}

template <class M, class R>
OUTLINE const Op* store_shared_rest(const Op* op, Warp* warp, std::byte* regs, u32) {
  const u32* addresses = (const u32*)(regs + op->a);
  const u32 active = warp->active;
  const u64 bytes = sizeof(M) * op->aux;
  const u32 offset = (u32)op->imm;
  for (u32 left = active; left; left &= left - 1) {
    const u32 at = addresses[__builtin_ctz(left)] + offset;
    if (at + bytes > warp->shared_bytes || (at & (bytes - 1))) return fault_shared(warp, op, bytes);
  }
  store_scattered<M, R>(op, regs, active,
                        [&](u32 i) { return warp->shared + (u32)(addresses[i] + offset); });
  return op + 1;
}

template <class M, class R>
OUTLINE const Op* store_shared_plain(const Op* op, Warp* warp, std::byte* regs, u32 mask) {
  if (warp->active == kFullMask && op->aux == 1) {
    const u32* addresses = (const u32*)(regs + op->a);
    const u32 first = addresses[0] + (u32)op->imm;
    if (classify<u32, M>(addresses, 1) == kContiguous && (first & (sizeof(M) - 1)) == 0 &&
        first + sizeof(M) * kWarpSize <= warp->shared_bytes) {
      const R* from = (const R*)(regs + op->b);
      M* to = (M*)(warp->shared + first);
      LANES WRITE(to[i], (M)from[i]);
      SOFTGPU_NEXT(op + 1);
    }
  }
  return store_shared_rest<M, R>(op, warp, regs, mask);
}

template <class M, class R>
INLINE const Op* store_shared(const Op* op, Warp* warp, std::byte* regs, u32 mask) {
  if constexpr (kMovesVectors<M, R>) {
    if (warp->active == kFullMask && op->aux == 1) {
      const u32* addresses = (const u32*)(regs + op->a);
      if (store_vectors((const M*)(regs + op->b), addresses, (u32)op->imm, (u64)warp->shared,
                        shared_good<M>(warp))) {
        SOFTGPU_NEXT(op + 1);
      }
    }
  }
  return store_shared_plain<M, R>(op, warp, regs, mask);
}

// Local: every lane has its own memory. --------------------------------------------------------

INLINE bool local_good(Warp* warp, const u64* addresses, u64 offset, u64 bytes) {
  for (u32 left = warp->active; left; left &= left - 1) {
    const u64 at = addresses[__builtin_ctz(left)] + offset;
    if (at >= warp->local_bytes || at + bytes > warp->local_bytes || (at & (bytes - 1))) {
      return false;
    }
  }
  return true;
}

template <class M, class R>
INLINE const Op* load_local(const Op* op, Warp* warp, std::byte* regs, u32) {
  const u64* addresses = (const u64*)(regs + op->a);
  const u64 bytes = sizeof(M) * op->aux;
  if (!local_good(warp, addresses, op->imm, bytes)) return fault_local(warp, op, bytes);
  const Addresses<u64> from = copy_of(addresses);
  std::byte* base = warp->local + op->imm;
  const u64 stride = warp->local_bytes;
  load_scattered<M, R>(op, regs, warp->active,
                       [&](u32 i) { return base + i * stride + from.lane[i]; });
  return op + 1;
}

template <class M, class R>
INLINE const Op* store_local(const Op* op, Warp* warp, std::byte* regs, u32) {
  const u64* addresses = (const u64*)(regs + op->a);
  const u64 bytes = sizeof(M) * op->aux;
  if (!local_good(warp, addresses, op->imm, bytes)) return fault_local(warp, op, bytes);
  std::byte* base = warp->local + op->imm;
  const u64 stride = warp->local_bytes;
  store_scattered<M, R>(op, regs, warp->active,
                        [&](u32 i) { return base + i * stride + addresses[i]; });
  return op + 1;
}

const Op* h_ld_shared_keep(const Op* op, Warp* warp, std::byte* regs, u32 mask) {
  return load_shared_keep(op, warp, regs, mask);
}
const Op* h_ld_shared_kept(const Op* op, Warp* warp, std::byte* regs, u32 mask) {
  return load_shared_kept(op, warp, regs, mask);
}
const Op* h_ld_shared_fma(const Op* op, Warp* warp, std::byte* regs, u32 mask) {
  return load_shared_fma(op, warp, regs, mask);
}

}  // namespace

#define LOAD_FROM(space, M, R)                                                                     \
  static const Op* h_ld_##space##_##M##_##R(const Op* op, Warp* warp, std::byte* regs, u32 mask) { \
    return load_##space<M, R>(op, warp, regs, mask);                                               \
  }
#define STORE_TO(space, M, R)                                                                      \
  static const Op* h_st_##space##_##M##_##R(const Op* op, Warp* warp, std::byte* regs, u32 mask) { \
    return store_##space<M, R>(op, warp, regs, mask);                                              \
  }
#define LOAD(M, R) LOAD_FROM(global, M, R) LOAD_FROM(shared, M, R) LOAD_FROM(local, M, R)
#define STORE(M, R) STORE_TO(global, M, R) STORE_TO(shared, M, R) STORE_TO(local, M, R)
#include "softgpu/ir/ops_memory.def"
#undef LOAD
#undef STORE

void add_memory_handlers(HandlerTable* table) {
#define PUT(name) table->handlers[(size_t)IrOp::k_##name] = h_##name;
#define LOAD(M, R) PUT(ld_global_##M##_##R) PUT(ld_shared_##M##_##R) PUT(ld_local_##M##_##R)
#define STORE(M, R) PUT(st_global_##M##_##R) PUT(st_shared_##M##_##R) PUT(st_local_##M##_##R)
#include "softgpu/ir/ops_memory.def"
#undef LOAD
#undef STORE
  PUT(ld_shared_keep)
  PUT(ld_shared_kept)
  PUT(ld_shared_fma)
#undef PUT
}

}  // namespace openmps::softgpu::SOFTGPU_ISA
