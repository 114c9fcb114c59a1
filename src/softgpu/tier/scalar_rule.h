// SPDX-License-Identifier: Apache-2.0
// Ops that work on the scalar and on the pattern of a value by themselves (ssa.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "softgpu/ir/op.h"

namespace openmps::softgpu::tier {

struct ScalarRule {
  enum class Kind : uint8_t {
    kMove,
    kAdd,
    kSub,
    kMul,
    kMad,
    kBitwise,
    kShift,
    kResize,
    kMulWide,
    kMadWide,
    kElement
  } kind = Kind::kMove;
  size_t operands = 1;
  bool is_signed = false;
  uint32_t from = 32, to = 32;  // kResize: bits
  uint64_t factor = 1;          // kElement
};

// False: there is none for `op`.
bool scalar_rule(IrOp op, ScalarRule* rule);

}  // namespace openmps::softgpu::tier
