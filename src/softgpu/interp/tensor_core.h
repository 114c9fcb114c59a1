// SPDX-License-Identifier: Apache-2.0
// One element of a product of matrices as tensor cores compute it, for mma and wmma (matrix.cc) and
// wgmma (group_matrix.cc). Pure functions; any thread.
#pragma once

#include <cstdint>

#include "softgpu/interp/matrix_math.h"
#include "softgpu/ir/matrix_codes.h"

namespace openmps::softgpu::matrix {

// The number that the low bits are; TF32 lies in the upper bits of an f32.
Number number_of(uint64_t bits, Element element);

// The most products of one sum.
inline constexpr uint32_t kMostTerms = 32;

// The bits of a[0] * b[0] + a[1] * b[stride] + ... + c, k products of elements like `factor`, as
// f32 or f16 (`sum`); c has the bits of such a number.
uint32_t dot(Element factor, Element sum_before, Element sum, const Number* a, const Number* b,
             uint32_t stride, uint32_t k, uint32_t c);

}  // namespace openmps::softgpu::matrix
