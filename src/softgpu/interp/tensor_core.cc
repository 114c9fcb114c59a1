// SPDX-License-Identifier: Apache-2.0
// See tensor_core.h. What the steps of each kind of element are was measured on an H200 with mma.
#include "softgpu/interp/tensor_core.h"

#include "softgpu/ir/frame.h"

namespace openmps::softgpu {
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

uint32_t dot(Element factor, Element sum_before, Element sum, const Number* a, const Number* b,
             uint32_t stride, uint32_t k, uint32_t c) {
  if (element_bits(factor) == 8) {
    const f32 addend = sum_before == Element::kF16 ? half_to_float((u16)c) : float_of(c);
    const u32 bits = dot_fp8(a, b, stride, k, addend);
    return sum == Element::kF16 ? float_to_half(float_of(bits)) : bits;
  }
  Number terms[1 + kMostTerms];
  terms[0] = number_of(c, sum_before);
  for (u32 i = 0; i < k; ++i) terms[1 + i] = product(a[i], b[i * stride]);
  const Sum total = add_terms(terms, static_cast<int>(1 + k));
  return sum == Element::kF16 ? round_to_f16(total) : cut_to_f32(total);
}

}  // namespace matrix
}  // namespace openmps::softgpu
