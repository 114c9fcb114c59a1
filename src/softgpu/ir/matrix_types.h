// SPDX-License-Identifier: Apache-2.0
// What the name of a matrix instruction says, for the lowering of mma, wmma (lower_matrix.cc) and
// wgmma (lower_group_matrix.cc). Pure functions; any thread.
#pragma once

#include <optional>

#include "softgpu/ir/matrix_codes.h"
#include "softgpu/ptx/ast.h"

namespace openmps::softgpu::ir {

// The elements of that type; nothing: matrices have none.
std::optional<Element> element_of(ptx::Type type);

struct Shape {
  uint32_t m = 0, n = 0, k = 0;
};
// "m16n8k16"
std::optional<Shape> shape_of(const ptx::Instruction& instruction);

// What a shape is for: elements of the same size and nature share their shapes.
enum class Family { kHalf, kTF32, kFP8, kInt8, kInt4, kBit, kF64, kNone };
Family family_of(Element element);

}  // namespace openmps::softgpu::ir
