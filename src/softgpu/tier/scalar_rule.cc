// SPDX-License-Identifier: Apache-2.0
// See scalar_rule.h.
#include "softgpu/tier/scalar_rule.h"

namespace openmps::softgpu::tier {

bool scalar_rule(IrOp op, ScalarRule* rule) {
  using Kind = ScalarRule::Kind;
  switch (op) {
    case IrOp::k_mov_b16:
    case IrOp::k_mov_b32:
    case IrOp::k_mov_b64:
    case IrOp::k_cvt_u32_u32:
    case IrOp::k_cvt_u32_s32:
    case IrOp::k_cvt_s32_u32:
    case IrOp::k_cvt_s32_s32:
    case IrOp::k_cvt_u64_u64:
    case IrOp::k_cvt_u64_s64:
    case IrOp::k_cvt_s64_u64:
    case IrOp::k_cvt_s64_s64: *rule = {Kind::kMove, 1}; return true;
    case IrOp::k_add_b32:
    case IrOp::k_add_b64: *rule = {Kind::kAdd, 2}; return true;
    case IrOp::k_sub_b32:
    case IrOp::k_sub_b64: *rule = {Kind::kSub, 2}; return true;
    case IrOp::k_mul_lo_b32:
    case IrOp::k_mul_lo_b64: *rule = {Kind::kMul, 2}; return true;
    case IrOp::k_mad_lo_b32:
    case IrOp::k_mad_lo_b64: *rule = {Kind::kMad, 3}; return true;
    case IrOp::k_and_b32:
    case IrOp::k_and_b64:
    case IrOp::k_or_b32:
    case IrOp::k_or_b64:
    case IrOp::k_xor_b32:
    case IrOp::k_xor_b64: *rule = {Kind::kBitwise, 2}; return true;
    case IrOp::k_shl_b32:
    case IrOp::k_shl_b64:
    case IrOp::k_shr_u32:
    case IrOp::k_shr_u64:
    case IrOp::k_shr_s32:
    case IrOp::k_shr_s64: *rule = {Kind::kShift, 2}; return true;
    case IrOp::k_resize_u64_u32:
    case IrOp::k_cvt_u64_u32:
    case IrOp::k_cvt_s64_u32: *rule = {Kind::kResize, 1, false, 32, 64}; return true;
    case IrOp::k_resize_u64_s32:
    case IrOp::k_cvt_u64_s32:
    case IrOp::k_cvt_s64_s32: *rule = {Kind::kResize, 1, true, 32, 64}; return true;
    case IrOp::k_resize_u32_u64:
    case IrOp::k_cvt_u32_u64:
    case IrOp::k_cvt_u32_s64:
    case IrOp::k_cvt_s32_u64:
    case IrOp::k_cvt_s32_s64: *rule = {Kind::kResize, 1, false, 64, 32}; return true;
    case IrOp::k_mul_wide_u32: *rule = {Kind::kMulWide, 2, false}; return true;
    case IrOp::k_mul_wide_s32: *rule = {Kind::kMulWide, 2, true}; return true;
    case IrOp::k_mad_wide_u32: *rule = {Kind::kMadWide, 3, false}; return true;
    case IrOp::k_mad_wide_s32: *rule = {Kind::kMadWide, 3, true}; return true;
    case IrOp::k_element2_s32: *rule = {Kind::kElement, 2, true, 32, 64, 2}; return true;
    case IrOp::k_element4_s32: *rule = {Kind::kElement, 2, true, 32, 64, 4}; return true;
    case IrOp::k_element8_s32: *rule = {Kind::kElement, 2, true, 32, 64, 8}; return true;
    case IrOp::k_element16_s32: *rule = {Kind::kElement, 2, true, 32, 64, 16}; return true;
    case IrOp::k_element2_u32: *rule = {Kind::kElement, 2, false, 32, 64, 2}; return true;
    case IrOp::k_element4_u32: *rule = {Kind::kElement, 2, false, 32, 64, 4}; return true;
    case IrOp::k_element8_u32: *rule = {Kind::kElement, 2, false, 32, 64, 8}; return true;
    case IrOp::k_element16_u32: *rule = {Kind::kElement, 2, false, 32, 64, 16}; return true;
    default: return false;
  }
}

}  // namespace openmps::softgpu::tier
