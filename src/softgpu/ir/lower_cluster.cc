// SPDX-License-Identifier: Apache-2.0
// Lowering of what the blocks of a cluster do together: their barrier, and addresses in each
// other's shared memory. Part of Builder.
#include "softgpu/ir/builder.h"
#include "softgpu/ir/frame.h"

namespace openmps::softgpu::ir {

using ptx::SpecialRegister;
using ptx::Type;

bool Builder::lower_cluster_barrier(const Instruction& in) {
  emit(in.has("arrive") ? IrOp::k_cluster_arrive : IrOp::k_cluster_wait);
  return true;
}

// mapa: the address with this offset in another block.
bool Builder::lower_map_shared(const Instruction& in) {
  const bool wide = in.type(0) == Type::kU64;
  const uint32_t bytes = wide ? 8 : 4;
  const int32_t address = read(in.operands[1], wide ? Lane::u64 : Lane::u32);
  const int32_t rank = read(in.operands[2], Lane::u32);
  const int32_t place = temporary(4), offset = temporary(bytes), d = result(in.operands[0], bytes);
  emit(IrOp::k_add_b32, place, rank, constant(1, 4));
  emit(IrOp::k_shl_b32, place, place, constant(kSharedRankShift, 4));
  const uint64_t kept = ~(uint64_t{UINT32_MAX} & ~kSharedOffsetMask);
  emit(wide ? IrOp::k_and_b64 : IrOp::k_and_b32, offset, address, constant(kept, bytes));
  emit(wide ? IrOp::k_or_b64 : IrOp::k_or_b32, d, offset, fit(place, wide ? Lane::u64 : Lane::u32));
  store_result(in.operands[0], d);
  return true;
}

// getctarank: whose shared memory an address is.
bool Builder::lower_rank_of(const Instruction& in) {
  const int32_t address =
      fit(read(in.operands[1], in.type(0) == Type::kU64 ? Lane::u64 : Lane::u32), Lane::u32);
  const int32_t own = special(FrameValue::kSpecial, SpecialRegister::kClusterCtarank, 4);
  const int32_t place = temporary(4), rank = temporary(4), is_own = temporary(0);
  emit(IrOp::k_shr_u32, place, address, constant(kSharedRankShift, 4));
  emit(IrOp::k_sub_b32, rank, place, constant(1, 4));
  emit(IrOp::k_setp_eq_u32, is_own, place, constant(0, 4));
  const int32_t d = result(in.operands[0], 4);
  emit(IrOp::k_selp_b32, d, own, rank, is_own);
  store_result(in.operands[0], d);
  return true;
}

// isspacep.shared: in the window, and this block's own.
void Builder::is_own_shared(int32_t address, int32_t predicate) {
  const int32_t own = special(FrameValue::kSpecial, SpecialRegister::kClusterCtarank, 4);
  const uint64_t window = kSharedWindow >> kSharedRankShift;
  const int32_t place = temporary(8), mapped = temporary(8), is_mapped = temporary(0);
  emit(IrOp::k_shr_u64, place, address, constant(kSharedRankShift, 4));
  emit(IrOp::k_add_b64, mapped, fit(own, Lane::u64), constant(window + 1, 8));
  emit(IrOp::k_setp_eq_u64, is_mapped, place, mapped);
  const int32_t is_plain = temporary(0);
  emit(IrOp::k_setp_eq_u64, is_plain, place, constant(window, 8));
  emit(IrOp::k_pred_or, predicate, is_plain, is_mapped);
}

}  // namespace openmps::softgpu::ir
