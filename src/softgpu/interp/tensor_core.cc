// SPDX-License-Identifier: Apache-2.0
// See tensor_core.h. What the steps of each kind of element are was measured on an H200 with mma.
#include "softgpu/interp/tensor_core.h"

#include "softgpu/interp/instruction_set.h"
#include "softgpu/ir/frame.h"

namespace openmps::softgpu {

#define SOFTGPU_INSTRUCTION_SET(name)                    \
  namespace name {                                       \
  bool multiply_tile(const TileProduct& tile);           \
  bool multiply_doubles(const DoubleProduct& product);   \
  void multiply_integers(const IntegerProduct& product); \
  }
SOFTGPU_INSTRUCTION_SET(base)
#if defined(__x86_64__)
SOFTGPU_INSTRUCTION_SET(avx2)
SOFTGPU_INSTRUCTION_SET(avx512)
#endif

namespace {

#include "softgpu/interp/lane_math.h"

using matrix::Number;

// FP8 goes as f16 in two steps, each with two neighbours of every four, and the addend comes last
// by an ordinary addition.
u32 dot_fp8(const Number* a, const Number* b, u32 stride, u32 k, f32 c) {
  Number terms[1 + matrix::kMostTerms / 2];
  u32 bits = 0;
  int count = 0;
  for (u32 half = 0; half < 2; ++half) {
    for (u32 i = 0; i < k; ++i) {
      if (i % 4 / 2 == half) terms[count++] = product(a[i], b[i * stride]);
    }
    bits = matrix::cut_to_f32(matrix::add_terms(terms, count));
    terms[0] = matrix::unpack(bits, 8, 23);
    count = 1;
  }
  return bits_of(canonical(float_of(bits) + c));
}

}  // namespace

namespace matrix {

Number number_of(uint64_t bits, Element element) {
  const auto word = static_cast<u32>(bits);
  switch (element) {
    case Element::kF16: return unpack(word, 5, 10);
    case Element::kBF16: return unpack(word, 8, 7);
    case Element::kTF32: return unpack(word >> 13, 8, 10);
    case Element::kE4M3: return unpack(fp8_to_half<4>(word), 5, 10);
    case Element::kE5M2: return unpack(fp8_to_half<5>(word), 5, 10);
    default: return unpack(word, 8, 23);
  }
}

namespace {

// The bits of one element of D; those of its column of B are `columns` apart.
u32 dot(const Tile& tile, const Number* a, const Number* b, u32 c) {
  if (element_bits(tile.a_type) == 8 && !tile.by_group) {
    const f32 addend = tile.c_type == Element::kF16 ? half_to_float((u16)c) : float_of(c);
    const u32 bits = dot_fp8(a, b, tile.columns, tile.depth, addend);
    return tile.d_type == Element::kF16 ? float_to_half(float_of(bits)) : bits;
  }
  Number terms[1 + kMostTerms];
  terms[0] = number_of(c, tile.c_type);
  for (u32 i = 0; i < tile.depth; ++i) terms[1 + i] = product(a[i], b[i * tile.columns]);
  const bool short_sum = element_bits(tile.a_type) == 8;
  const Sum total = add_terms(terms, static_cast<int>(1 + tile.depth),
                              short_sum ? kGroupFp8Fraction : kSumFraction);
  if (tile.d_type == Element::kF16) return round_to_f16(total);
  const u32 bits = cut_to_f32(total);
  const u32 cut_off = (1u << (23 - kGroupFp8Fraction)) - 1;
  return short_sum && total.kind == Number::Kind::kFinite ? bits & ~cut_off : bits;
}

struct Numbers {
  Number a[kMostRows * kMostTerms], b[kMostTerms * kMostColumns];
};

void multiply_one_by_one(const Tile& tile) {
  auto& [a, b] = workspace<Numbers>();
  for (u32 i = 0; i < tile.rows * tile.depth; ++i) a[i] = number_of(tile.a[i], tile.a_type);
  for (u32 i = 0; i < tile.depth * tile.columns; ++i) b[i] = number_of(tile.b[i], tile.b_type);
  for (u32 row = 0; row < tile.rows; ++row) {
    for (u32 column = 0; column < tile.columns; ++column) {
      const u32 at = row * tile.columns + column;
      tile.d[at] = dot(tile, a + row * tile.depth, b + column, tile.c[at]);
    }
  }
}

TileFormat format_of(Element element) {
  switch (element) {
    case Element::kF16: return {0, 5, 10};
    case Element::kBF16: return {0, 8, 7};
    case Element::kTF32: return {13, 8, 10};
    default: return {0, 8, 23};
  }
}

struct Products {
  MultiplyTile tile;
  MultiplyDoubles doubles;
  MultiplyIntegers integers;
};

const Products& products() {
  static const Products chosen = [] {
    switch (active_instruction_set()) {
#if defined(__x86_64__)
      case InstructionSet::kAvx512:
        return Products{avx512::multiply_tile, avx512::multiply_doubles, avx512::multiply_integers};
      case InstructionSet::kAvx2:
        return Products{avx2::multiply_tile, avx2::multiply_doubles, avx2::multiply_integers};
#endif
      default:
        return Products{base::multiply_tile, base::multiply_doubles, base::multiply_integers};
    }
  }();
  return chosen;
}

struct Sums {
  s64 value[kMostRows * kMostColumns];
  s32 largest[kMostRows * kMostColumns];
};

// Many columns at once. False: that is not how these numbers are multiplied.
bool multiply_vectors(const Tile& tile) {
  static const bool allowed = perf_allows("tiles");
  if (!allowed || element_bits(tile.a_type) == 8 || tile.depth > kTileDepth) return false;
  auto& [sums, largest] = workspace<Sums>();
  if (!products().tile({tile.rows, tile.columns, tile.depth, format_of(tile.a_type),
                        format_of(tile.c_type), tile.a, tile.b, tile.c, kSumFraction, sums,
                        largest})) {
    return false;
  }
  for (u32 i = 0; i < tile.rows * tile.columns; ++i) {
    Sum sum;
    sum.value = sums[i];
    sum.unit = largest[i] - kSumFraction;
    tile.d[i] = tile.d_type == Element::kF16 ? round_to_f16(sum) : cut_to_f32(sum);
  }
  return true;
}

}  // namespace

void multiply(const Tile& tile) {
  if (!multiply_vectors(tile)) multiply_one_by_one(tile);
}

bool multiply(const DoubleProduct& product) { return products().doubles(product); }

void multiply(const IntegerProduct& product) { products().integers(product); }

}  // namespace matrix
}  // namespace openmps::softgpu
