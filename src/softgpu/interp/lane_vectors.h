// SPDX-License-Identifier: Apache-2.0
// Whole vector registers of lanes, by intrinsics: what the compiler does not make of a loop over 32
// lanes, which is to recognise a pattern in their addresses and to permute them. Included by
// memory.cc and shuffle.cc after lane_math.h, inside a namespace per instruction set, on whose
// thread-safety and rules see there. SOFTGPU_VECTORS is 0 where there is neither AVX2 nor AVX-512,
// and for ThreadSanitizer, which is to see one access per lane.

#if defined(__SANITIZE_THREAD__) || !defined(__AVX2__)
#define SOFTGPU_VECTORS 0
#else
#define SOFTGPU_VECTORS 1

// A vector of 32-bit lanes and the outcome of comparing two.
#if defined(__AVX512F__)
inline constexpr u32 kVectorLanes = 16;
using Words = __m512i;
using Flags = __mmask16;
inline constexpr Flags kAllLanes =
    0xffff;  // gcc 12 takes the forms without a mask for uninitialised reads
INLINE Words load_words(const void* at) { return _mm512_loadu_si512(at); }
INLINE void store_words(void* at, Words words) { _mm512_storeu_si512(at, words); }
INLINE Words splat_words(u32 x) { return _mm512_set1_epi32((int)x); }
INLINE Words splat_longs(u64 x) { return _mm512_set1_epi64((long long)x); }
INLINE Words add_words(Words a, Words b) { return _mm512_add_epi32(a, b); }
INLINE Words sub_words(Words a, Words b) { return _mm512_sub_epi32(a, b); }
INLINE Words sub_longs(Words a, Words b) { return _mm512_sub_epi64(a, b); }
INLINE Words quarter_words(Words a) { return _mm512_maskz_srli_epi32(kAllLanes, a, 2); }
INLINE Words byte_1_of_words(Words a) { return _mm512_maskz_srli_epi32(kAllLanes, a, 8); }
INLINE bool all_zero(Words a, Words mask) { return _mm512_test_epi32_mask(a, mask) == 0; }
INLINE Flags greater_words(Words a, Words b) { return _mm512_cmpgt_epi32_mask(a, b); }
INLINE Words choose_words(Flags f, Words yes, Words no) {
  return _mm512_mask_blend_epi32(f, no, yes);
}
using Floats = __m512;
INLINE Floats load_floats(const f32* at) { return _mm512_loadu_ps(at); }
INLINE void store_floats(f32* at, Floats floats) { _mm512_storeu_ps(at, floats); }
INLINE Floats fused_floats(Words a, Words b, Floats c) {
  return _mm512_fmadd_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b), c);
}
INLINE Flags unordered_floats(Floats a, Floats b) { return _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q); }
INLINE u32 bits_of_flags(Flags f) { return f; }
INLINE bool all_flags(Flags f) { return f == kAllLanes; }
INLINE Flags either_flags(Flags a, Flags b) { return (Flags)(a | b); }
// Whether of each lane the bits of `mask` are zero; the lanes of `low` are the first half.
INLINE Flags zero_words(Words a, Words mask) { return _mm512_testn_epi32_mask(a, mask); }
INLINE Flags zero_longs(Words low, Words high, Words mask) {
  return (Flags)(_mm512_testn_epi64_mask(low, mask) | _mm512_testn_epi64_mask(high, mask) << 8);
}
// words[index % lanes of a vector].
INLINE Words permute_words(Words words, Words index) {
  return _mm512_maskz_permutexvar_epi32(kAllLanes, index, words);
}
// The low words of 64-bit lanes.
INLINE Words narrow_longs(Words low, Words high) {
  const Words evens = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
  return _mm512_permutex2var_epi32(low, evens, high);
}
// The words of two vectors that follow each other: both[index % lanes of two vectors].
INLINE Words permute_pair(Words first, Words second, Words index) {
  return _mm512_permutex2var_epi32(first, index, second);
}
// lanes[index % 32].
INLINE Words permute_warp(const u32* lanes, Words index) {
  return _mm512_permutex2var_epi32(load_words(lanes), index, load_words(lanes + 16));
}
#else
inline constexpr u32 kVectorLanes = 8;
using Words = __m256i;
using Flags = __m256i;
INLINE Words load_words(const void* at) { return _mm256_loadu_si256((const __m256i*)at); }
INLINE void store_words(void* at, Words words) { _mm256_storeu_si256((__m256i*)at, words); }
INLINE Words splat_words(u32 x) { return _mm256_set1_epi32((int)x); }
INLINE Words splat_longs(u64 x) { return _mm256_set1_epi64x((long long)x); }
INLINE Words add_words(Words a, Words b) { return _mm256_add_epi32(a, b); }
INLINE Words sub_words(Words a, Words b) { return _mm256_sub_epi32(a, b); }
INLINE Words sub_longs(Words a, Words b) { return _mm256_sub_epi64(a, b); }
INLINE Words quarter_words(Words a) { return _mm256_srli_epi32(a, 2); }
INLINE Words byte_1_of_words(Words a) { return _mm256_srli_epi32(a, 8); }
INLINE bool all_zero(Words a, Words mask) { return _mm256_testz_si256(a, mask); }
INLINE Flags greater_words(Words a, Words b) { return _mm256_cmpgt_epi32(a, b); }
INLINE Words choose_words(Flags f, Words yes, Words no) { return _mm256_blendv_epi8(no, yes, f); }
using Floats = __m256;
INLINE Floats load_floats(const f32* at) { return _mm256_loadu_ps(at); }
INLINE void store_floats(f32* at, Floats floats) { _mm256_storeu_ps(at, floats); }
INLINE Floats fused_floats(Words a, Words b, Floats c) {
  return _mm256_fmadd_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b), c);
}
INLINE Flags unordered_floats(Floats a, Floats b) {
  return _mm256_castps_si256(_mm256_cmp_ps(a, b, _CMP_UNORD_Q));
}
INLINE u32 bits_of_flags(Flags f) { return (u32)_mm256_movemask_ps(_mm256_castsi256_ps(f)); }
INLINE bool all_flags(Flags f) { return _mm256_movemask_epi8(f) == -1; }
INLINE Flags either_flags(Flags a, Flags b) { return _mm256_or_si256(a, b); }
INLINE Flags zero_words(Words a, Words mask) {
  return _mm256_cmpeq_epi32(_mm256_and_si256(a, mask), _mm256_setzero_si256());
}
INLINE Words permute_words(Words words, Words index) {
  return _mm256_permutevar8x32_epi32(words, index);
}
INLINE Words narrow_longs(Words low, Words high) {
  const __m256 mixed = _mm256_shuffle_ps(_mm256_castsi256_ps(low), _mm256_castsi256_ps(high), 0x88);
  return _mm256_permute4x64_epi64(_mm256_castps_si256(mixed), 0xd8);
}
INLINE Flags zero_longs(Words low, Words high, Words mask) {
  const Words zero = _mm256_setzero_si256();
  return narrow_longs(_mm256_cmpeq_epi64(_mm256_and_si256(low, mask), zero),
                      _mm256_cmpeq_epi64(_mm256_and_si256(high, mask), zero));
}
INLINE Words permute_pair(Words first, Words second, Words index) {
  return _mm256_castps_si256(_mm256_blendv_ps(_mm256_castsi256_ps(permute_words(first, index)),
                                              _mm256_castsi256_ps(permute_words(second, index)),
                                              _mm256_castsi256_ps(_mm256_slli_epi32(index, 28))));
}
INLINE Words permute_warp(const u32* lanes, Words index) {
  const Words bit_3 = _mm256_slli_epi32(index, 28), bit_4 = _mm256_slli_epi32(index, 27);
  auto part = [&](u32 k) __attribute__((always_inline)) {
    return _mm256_castsi256_ps(permute_words(load_words(lanes + 8 * k), index));
  };
  const __m256 low = _mm256_blendv_ps(part(0), part(1), _mm256_castsi256_ps(bit_3));
  const __m256 high = _mm256_blendv_ps(part(2), part(3), _mm256_castsi256_ps(bit_3));
  return _mm256_castps_si256(_mm256_blendv_ps(low, high, _mm256_castsi256_ps(bit_4)));
}
#endif

inline constexpr u32 kVectors = kWarpSize / kVectorLanes;

// Of the floats of a warp.
INLINE bool has_nan(const Floats* floats) {
  u32 found = 0;
  for (u32 v = 0; v < kVectors; v += 2) {
    found |= bits_of_flags(unordered_floats(floats[v], floats[v + 1]));
  }
  return found != 0;
}

// 0, step, 2 * step, ...: constants once the compiler is through.
INLINE Words word_steps(u32 step) {
  alignas(64) u32 lanes[kVectorLanes];
  for (u32 i = 0; i < kVectorLanes; ++i) lanes[i] = i * step;
  return load_words(lanes);
}
INLINE Words long_steps(u32 first, u32 step) {
  alignas(64) u64 lanes[kVectorLanes / 2];
  for (u32 i = 0; i < kVectorLanes / 2; ++i) lanes[i] = (u64)(first + i) * step;
  return load_words(lanes);
}

INLINE bool all_equal(const u32* addresses) {
  const Words first = splat_words(addresses[0]);
  Words differs = splat_words(0);
  for (u32 v = 0; v < kVectors; ++v) differs |= load_words(addresses + v * kVectorLanes) ^ first;
  return all_zero(differs, differs);
}

// Whether in each vector of lanes the addresses go up by `step`.
template <u32 step>
INLINE bool rows_of(const u32* addresses) {
  const Words steps = word_steps(step);
  Words differs = splat_words(0);
  for (u32 v = 0; v < kVectors; ++v) {
    const u32* row = addresses + v * kVectorLanes;
    differs |= sub_words(load_words(row), steps) ^ splat_words(row[0]);
  }
  return all_zero(differs, differs);
}
template <u32 step>
INLINE bool rows_of(const u64* addresses) {
  constexpr u32 kLongs = kVectorLanes / 2;
  const Words low = long_steps(0, step), high = long_steps(kLongs, step);
  Words differs = splat_words(0);
  for (u32 v = 0; v < kVectors; ++v) {
    const u64* row = addresses + v * kVectorLanes;
    const Words first = splat_longs(row[0]);
    differs |= sub_longs(load_words(row), low) ^ first;
    differs |= sub_longs(load_words(row + kLongs), high) ^ first;
  }
  return all_zero(differs, differs);
}

// For each vector of lanes the distances of the addresses from the first one's. True if all are
// those of words in a window of one vector register: any mixture of equal and neighbouring
// addresses.
inline constexpr u32 kWindowBytes = 4 * kVectorLanes;
INLINE bool windows_of(const u32* addresses, Words* distances) {
  Words all = splat_words(0);
  for (u32 v = 0; v < kVectors; ++v) {
    const u32* row = addresses + v * kVectorLanes;
    distances[v] = sub_words(load_words(row), splat_words(row[0]));
    all |= distances[v];
  }
  return all_zero(all, splat_words(~(kWindowBytes - 4)));
}
INLINE bool windows_of(const u64* addresses, Words* distances) {
  constexpr u32 kLongs = kVectorLanes / 2;
  Words all = splat_words(0);
  for (u32 v = 0; v < kVectors; ++v) {
    const u64* row = addresses + v * kVectorLanes;
    const Words first = splat_longs(row[0]);
    const Words low = sub_longs(load_words(row), first);
    const Words high = sub_longs(load_words(row + kLongs), first);
    distances[v] = narrow_longs(low, high);
    all |= low | high;
  }
  return all_zero(all, splat_longs(~(u64)(kWindowBytes - 4)));
}

// Of each lane the words from `begin` to its address, and whether the `bytes` there, to which it is
// aligned, are in the window that begins at `begin`.
INLINE Flags in_window(const u32* row, u32 begin, u32 bytes, Words* words) {
  const Words distance = sub_words(load_words(row), splat_words(begin));
  *words = quarter_words(distance);
  return zero_words(distance, splat_words(~(kWindowBytes - bytes)));
}
INLINE Flags in_window(const u64* row, u64 begin, u32 bytes, Words* words) {
  const Words first = splat_longs(begin);
  const Words low = sub_longs(load_words(row), first);
  const Words high = sub_longs(load_words(row + kVectorLanes / 2), first);
  *words = quarter_words(narrow_longs(low, high));
  return zero_longs(low, high, splat_longs(~(u64)(kWindowBytes - bytes)));
}

// Two windows that a vector of lanes reads `bytes` each from: one begins where the first lane reads
// and, unless that serves all, one ends behind what the last lane reads. That is what rows give
// that are shorter than a vector, or vectors of words, of half a warp.
template <class A>
struct TwoWindows {
  A begin[2];
  Words index;  // of each lane's first word in both together
};
// False: some lane is in neither.
template <class A>
INLINE bool find_windows(const A* row, u32 bytes, TwoWindows<A>* windows) {
  A* begin = windows->begin;
  begin[0] = begin[1] = row[0];
  const Flags in_first = in_window(row, begin[0], bytes, &windows->index);
  if (all_flags(in_first)) return true;
  Words behind;
  begin[1] = row[kVectorLanes - 1] + bytes - kWindowBytes;
  const Flags in_second = in_window(row, begin[1], bytes, &behind);
  windows->index = choose_words(in_first, windows->index, behind | splat_words(kVectorLanes));
  return all_flags(either_flags(in_first, in_second));
}

// Vectors that are anywhere, one per lane: each is moved at once, and those of a few lanes are
// transposed, for lanes are contiguous in a register and elements in memory.
// `registers`: where the register of each element is in the frame. False: there is no such form.
using Quad = __m128i;
INLINE void transpose(Quad& a, Quad& b, Quad& c, Quad& d) {
  const Quad low_ab = _mm_unpacklo_epi32(a, b), high_ab = _mm_unpackhi_epi32(a, b);
  const Quad low_cd = _mm_unpacklo_epi32(c, d), high_cd = _mm_unpackhi_epi32(c, d);
  a = _mm_unpacklo_epi64(low_ab, low_cd);
  b = _mm_unpackhi_epi64(low_ab, low_cd);
  c = _mm_unpacklo_epi64(high_ab, high_cd);
  d = _mm_unpackhi_epi64(high_ab, high_cd);
}

template <u32 element_bytes, class P>
INLINE bool load_lane_vectors(u32 count, std::byte* regs, const int32_t* registers, P pointer) {
  const auto put = [=](u32 e, u32 lane, Quad values) __attribute__((always_inline)) {
    _mm_storeu_si128((Quad*)(regs + registers[e] + lane * element_bytes), values);
  };
  const auto whole = [=](u32 lane) __attribute__((always_inline)) {
    return _mm_loadu_si128((const Quad*)pointer(lane));
  };
  if (element_bytes == 8 && count == 2) {
    for (u32 i = 0; i < kWarpSize; i += 2) {
      const Quad a = whole(i), b = whole(i + 1);
      put(0, i, _mm_unpacklo_epi64(a, b));
      put(1, i, _mm_unpackhi_epi64(a, b));
    }
    return true;
  }
  if (element_bytes == 4 && count == 4) {
    for (u32 i = 0; i < kWarpSize; i += 4) {
      Quad a = whole(i), b = whole(i + 1), c = whole(i + 2), d = whole(i + 3);
      transpose(a, b, c, d);
      put(0, i, a);
      put(1, i, b);
      put(2, i, c);
      put(3, i, d);
    }
    return true;
  }
  if (element_bytes == 4 && count == 2) {
    const auto half = [=](u32 lane) __attribute__((always_inline)) {
      return _mm_loadl_epi64((const Quad*)pointer(lane));
    };
    for (u32 i = 0; i < kWarpSize; i += 4) {
      const Quad ab = _mm_unpacklo_epi32(half(i), half(i + 1));
      const Quad cd = _mm_unpacklo_epi32(half(i + 2), half(i + 3));
      put(0, i, _mm_unpacklo_epi64(ab, cd));
      put(1, i, _mm_unpackhi_epi64(ab, cd));
    }
    return true;
  }
  return false;
}

template <u32 element_bytes, class P>
INLINE bool store_lane_vectors(u32 count, const std::byte* regs, const int32_t* registers,
                               P pointer) {
  const auto get = [=](u32 e, u32 lane) __attribute__((always_inline)) {
    return _mm_loadu_si128((const Quad*)(regs + registers[e] + lane * element_bytes));
  };
  const auto put = [=](u32 lane, Quad values) __attribute__((always_inline)) {
    _mm_storeu_si128((Quad*)pointer(lane), values);
  };
  if (element_bytes == 8 && count == 2) {
    for (u32 i = 0; i < kWarpSize; i += 2) {
      const Quad a = get(0, i), b = get(1, i);
      put(i, _mm_unpacklo_epi64(a, b));
      put(i + 1, _mm_unpackhi_epi64(a, b));
    }
    return true;
  }
  if (element_bytes == 4 && count == 4) {
    for (u32 i = 0; i < kWarpSize; i += 4) {
      Quad a = get(0, i), b = get(1, i), c = get(2, i), d = get(3, i);
      transpose(a, b, c, d);
      put(i, a);
      put(i + 1, b);
      put(i + 2, c);
      put(i + 3, d);
    }
    return true;
  }
  if (element_bytes == 4 && count == 2) {
    const auto put_half = [=](u32 lane, Quad values) __attribute__((always_inline)) {
      _mm_storel_epi64((Quad*)pointer(lane), values);
    };
    for (u32 i = 0; i < kWarpSize; i += 4) {
      const Quad a = get(0, i), b = get(1, i);
      const Quad low = _mm_unpacklo_epi32(a, b), high = _mm_unpackhi_epi32(a, b);
      put_half(i, low);
      put_half(i + 1, _mm_unpackhi_epi64(low, low));
      put_half(i + 2, high);
      put_half(i + 3, _mm_unpackhi_epi64(high, high));
    }
    return true;
  }
  return false;
}

#endif
