// SPDX-License-Identifier: Apache-2.0
// Names and operand types of IR ops, for the lowering: it finds ops by name and fits operands to
// their lanes. Any thread.
#pragma once

#include <iterator>
#include <string_view>

#include "softgpu/ir/op.h"

namespace openmps::softgpu::ir {

enum class Lane : uint8_t {
  kNone,
  kPredicate,
  u8,
  s8,
  u16,
  s16,
  u32,
  s32,
  f32,
  u64,
  s64,
  f64,
  u128
};

inline uint32_t lane_bytes(Lane lane) {
  switch (lane) {
    case Lane::u8:
    case Lane::s8: return 1;
    case Lane::u16:
    case Lane::s16: return 2;
    case Lane::u32:
    case Lane::s32:
    case Lane::f32: return 4;
    case Lane::u64:
    case Lane::s64:
    case Lane::f64: return 8;
    case Lane::u128: return 16;
    default: return 0;
  }
}
inline bool is_float_lane(Lane lane) { return lane == Lane::f32 || lane == Lane::f64; }

struct OpInfo {
  std::string_view name;
  Lane d = Lane::kNone;
  Lane operands[4] = {Lane::kNone, Lane::kNone, Lane::kNone, Lane::kNone};  // a, b, c, e
  int operand_count() const {
    int n = 0;
    while (n < 4 && operands[n] != Lane::kNone) ++n;
    return n;
  }
};

const OpInfo& op_info(IrOp op);
// False if there is none of that name.
bool find_op(std::string_view name, IrOp* op);

}  // namespace openmps::softgpu::ir
