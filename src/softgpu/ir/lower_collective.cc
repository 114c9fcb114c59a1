// SPDX-License-Identifier: Apache-2.0
// Lowering of what the lanes of a warp and the warps of a block do together: shuffles, votes,
// matches, reductions and barriers. Part of Builder.
#include "softgpu/ir/builder.h"
#include "softgpu/ir/frame.h"
#include "softgpu/ir/memory_codes.h"

namespace openmps::softgpu::ir {

using ptx::Type;

// `members`: the value that says which lanes take part; -1: all.
void Builder::set_members(Draft& draft, int32_t members) {
  draft.e = members;
  if (members < 0) return;
  const bool same = values_[static_cast<size_t>(members)].kind == Value::Kind::kConstant;
  draft.aux |= kHasMembers | (same ? kSameMembers : 0);
}

// The predicate in "d|p", if the instruction has one.
void Builder::add_predicate(Draft& draft, const Operand& operand) {
  if (operand.pair < 0) return;
  draft.extra_results.push_back(register_value(operand.pair));
  draft.aux |= kHasPredicate;
}

// A predicate that an instruction writes; "_" in the text makes one that nothing reads.
int32_t Builder::predicate_result(const Operand& operand) {
  return operand.kind == Operand::Kind::kRegister ? register_value(operand.index) : temporary(0);
}

bool Builder::lower_shuffle(const Instruction& in) {
  const IrOp op = in.has("up")     ? IrOp::k_shuffle_up
                  : in.has("down") ? IrOp::k_shuffle_down
                  : in.has("bfly") ? IrOp::k_shuffle_butterfly
                                   : IrOp::k_shuffle_index;
  const int32_t a = read(in.operands[1], Lane::u32), b = read(in.operands[2], Lane::u32);
  const int32_t c = read(in.operands[3], Lane::u32);
  const int32_t members = in.operands.size() > 4 ? read(in.operands[4], Lane::u32) : -1;
  const int32_t d = result(in.operands[0], 4);
  Draft& draft = emit(op, d, a, b, c);
  set_members(draft, members);
  add_predicate(draft, in.operands[0]);
  store_result(in.operands[0], d);
  return true;
}

bool Builder::lower_vote(const Instruction& in) {
  const int32_t p = read_predicate(in.operands[1]);
  const int32_t members = in.operands.size() > 2 ? read(in.operands[2], Lane::u32) : -1;
  const bool ballot = in.has("ballot");
  const int32_t d = ballot ? result(in.operands[0], 4) : predicate_result(in.operands[0]);
  const IrOp op = ballot          ? IrOp::k_vote_ballot
                  : in.has("all") ? IrOp::k_vote_all
                  : in.has("any") ? IrOp::k_vote_any
                                  : IrOp::k_vote_uni;
  set_members(emit(op, d, p), members);
  if (ballot) store_result(in.operands[0], d);
  return true;
}

bool Builder::lower_match(const Instruction& in) {
  const bool wide = in.type(0) == Type::kB64;
  const int32_t a = read(in.operands[1], wide ? Lane::u64 : Lane::u32);
  const int32_t members = read(in.operands[2], Lane::u32);
  const int32_t d = result(in.operands[0], 4);
  const IrOp op = in.has("any") ? (wide ? IrOp::k_match_any_b64 : IrOp::k_match_any_b32)
                                : (wide ? IrOp::k_match_all_b64 : IrOp::k_match_all_b32);
  Draft& draft = emit(op, d, a);
  set_members(draft, members);
  add_predicate(draft, in.operands[0]);
  store_result(in.operands[0], d);
  return true;
}

bool Builder::lower_redux(const Instruction& in) {
  const bool is_signed = in.type(0) == Type::kS32;
  const ReduxOp op = in.has("add")   ? ReduxOp::kAdd
                     : in.has("min") ? (is_signed ? ReduxOp::kMinS : ReduxOp::kMinU)
                     : in.has("max") ? (is_signed ? ReduxOp::kMaxS : ReduxOp::kMaxU)
                     : in.has("and") ? ReduxOp::kAnd
                     : in.has("or")  ? ReduxOp::kOr
                                     : ReduxOp::kXor;
  const int32_t a = read(in.operands[1], Lane::u32), members = read(in.operands[2], Lane::u32);
  const int32_t d = result(in.operands[0], 4);
  Draft& draft = emit(IrOp::k_redux, d, a);
  set_members(draft, members);
  draft.aux |= static_cast<uint32_t>(op);
  store_result(in.operands[0], d);
  return true;
}

bool Builder::lower_active_mask(const Instruction& in) {
  const int32_t d = result(in.operands[0], 4);
  emit(IrOp::k_activemask, d);
  store_result(in.operands[0], d);
  return true;
}

bool Builder::lower_elect(const Instruction& in) {
  const int32_t members = read(in.operands[1], Lane::u32);
  const int32_t d = result(in.operands[0], 4);
  Draft& draft = emit(IrOp::k_elect, d);
  set_members(draft, members);
  add_predicate(draft, in.operands[0]);
  store_result(in.operands[0], d);
  return true;
}

bool Builder::lower_warp_barrier(const Instruction& in) {
  const int32_t members =
      in.operands.empty() ? constant(kFullMask, 4) : read(in.operands[0], Lane::u32);
  set_members(emit(IrOp::k_warp_barrier), members);
  return true;
}

bool Builder::lower_barrier(const Instruction& in) {
  const bool red = in.has("red");
  const size_t first = red ? 1 : 0;
  const int32_t id = read(in.operands[first], Lane::u32);
  int32_t count = -1, p = -1;
  if (red) {
    // "d, a, p" or "d, a, count, p".
    p = read_predicate(in.operands.back());
    if (in.operands.size() > 3) count = read(in.operands[2], Lane::u32);
  } else if (in.operands.size() > 1) {
    count = read(in.operands[1], Lane::u32);
  }
  if (in.has("arrive")) {
    if (count < 0) return unsupported("barrier.arrive without a count");
    emit(IrOp::k_barrier_arrive, -1, id, count).aux = 0x100;
    return true;
  }
  if (!red) {
    emit(IrOp::k_barrier_sync, -1, id, count).aux = count >= 0 ? 0x100 : 0;
    return true;
  }
  const BarrierRed kind = in.has("popc")  ? BarrierRed::kPopc
                          : in.has("and") ? BarrierRed::kAnd
                                          : BarrierRed::kOr;
  const bool popc = kind == BarrierRed::kPopc;
  const int32_t d = popc ? result(in.operands[0], 4) : predicate_result(in.operands[0]);
  emit(IrOp::k_barrier_red, d, id, count, p).aux =
      (count >= 0 ? 0x100u : 0) | static_cast<uint32_t>(kind);
  if (popc) store_result(in.operands[0], d);
  return true;
}

}  // namespace openmps::softgpu::ir
