// SPDX-License-Identifier: Apache-2.0
// Ops other than branches and memory: see emitter.h.
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>

#include "softgpu/ir/memory_codes.h"
#include "softgpu/ir/op_info.h"
#include "softgpu/tier/emitter.h"
#include "softgpu/tier/scalar_rule.h"

namespace openmps::softgpu::tier {
namespace {

bool moves_bits(IrOp op) { return op == IrOp::k_mov_b32 || op == IrOp::k_selp_b32; }

// Whether the op gives the same whatever pattern a NaN among its operand `k` has.
bool takes_any_nan(IrOp op, size_t k) {
  if (op == IrOp::k_f2f_f64_f32 || op == IrOp::k_flush_kept_f32) return false;
  return k < 4 && ir::op_info(op).operands[k] == ir::Lane::f32;
}

}  // namespace

std::vector<Operand> Emitter::run_op(uint32_t i, const std::vector<Operand>& operands, Val mask) {
  const OpFacts& facts = ssa_.graph.facts[i];
  switch (facts.role) {
    case Role::kCompute: {
      const int32_t v = ssa_.made[i][0];
      const bool known = mask == nullptr && facts.guard < 0 && v >= 0;
      return {compute(i, operands, known ? &ssa_.form(v) : nullptr)};
    }
    case Role::kLoad:
    case Role::kStore: return access_memory(i, operands, mask);
    case Role::kParam: return load_parameter(i);
    case Role::kShuffle: return shuffle(i, operands, mask);
    case Role::kVote: return {vote(i, operands)};
    default: return call_handler(i, operands, mask);
  }
}

// For the lanes for which the guard's predicate is true; the others keep what they had.
std::vector<Operand> Emitter::run_guarded(uint32_t i, const std::vector<Operand>& operands,
                                          Val mask) {
  const OpFacts& facts = ssa_.graph.facts[i];
  const Operand& guard = operands.back();
  const size_t results = facts.writes.size(), first_old = operands.size() - 1 - results;
  const auto old = [&](size_t k) -> const Operand& { return operands[first_old + k]; };
  lanes_.wide = false;
  if (guard.is_uniform() && mask == nullptr) {
    const Val yes = facts.guard_not ? lanes_.not_(guard.scalar) : guard.scalar;
    const BlockRef run = block("run"), skip = block("skip"), done = block("done");
    llvm_.BuildCondBr(lanes_.builder, yes, run, skip);
    start(run);
    std::vector<Operand> made = run_op(i, operands, nullptr);
    std::vector<Val> places;
    for (size_t k = 0; k < results; ++k) {
      const bool scalar = made[k].is_uniform() && old(k).is_uniform();
      const Type type = type_of(made[k].bytes, !scalar);
      places.push_back(variable(type));
      const auto keep_one = [&](const Operand& x) {
        Val value = x.bytes == 0 && !scalar ? bits_of(x) : nullptr;
        if (value == nullptr && scalar) value = x.unsettled ? settled(x.scalar, false) : x.scalar;
        if (value == nullptr) value = settled_vector(x);
        put(value, places.back());
      };
      keep_one(made[k]);
      const BlockRef here = llvm_.GetInsertBlock(lanes_.builder);
      start(skip);
      keep_one(old(k));
      start(here);
    }
    llvm_.BuildBr(lanes_.builder, done);
    start(skip);
    llvm_.BuildBr(lanes_.builder, done);
    start(done);
    for (size_t k = 0; k < results; ++k) {
      const bool scalar = made[k].is_uniform() && old(k).is_uniform();
      const Val value = get(type_of(made[k].bytes, !scalar), places[k]);
      made[k] = scalar               ? uniform(value, made[k].bytes)
                : made[k].bytes == 0 ? general(flags_of(value), 0)
                                     : general(value, made[k].bytes);
    }
    return made;
  }
  Val bits = bits_of(guard);
  if (facts.guard_not) bits = lanes_.not_(bits);
  const Val chosen = mask == nullptr ? bits : lanes_.and_(mask, bits);
  const auto merge = [&](const Operand& made, const Operand& before) {
    return general(lanes_.select(flags_of(bits), settled_vector(made), settled_vector(before)),
                   made.bytes);
  };
  std::vector<Operand> made;
  if (facts.role == Role::kCompute) {
    made = run_op(i, operands, nullptr);
    for (size_t k = 0; k < results; ++k) made[k] = merge(made[k], old(k));
    return made;
  }
  std::vector<Val> places;
  for (size_t k = 0; k < results; ++k) {
    places.push_back(variable(type_of(old(k).bytes, true)));
    put(old(k).bytes == 0 ? bits_of(old(k)) : settled_vector(old(k)), places[k]);
  }
  const BlockRef run = block("run"), done = block("done");
  llvm_.BuildCondBr(lanes_.builder, lanes_.compare(kNe, chosen, lanes_.scalar_constant(32, 0)), run,
                    done);
  start(run);
  made = run_op(i, operands, chosen);
  for (size_t k = 0; k < results; ++k) {
    const Operand merged = merge(made[k], old(k));
    put(merged.bytes == 0 ? bits_of(merged) : settled_vector(merged), places[k]);
  }
  llvm_.BuildBr(lanes_.builder, done);
  start(done);
  for (size_t k = 0; k < results; ++k) {
    const uint32_t bytes = old(k).bytes;
    const Val value = get(type_of(bytes, true), places[k]);
    made[k] = general(bytes == 0 ? flags_of(value) : value, bytes);
  }
  return made;
}

// The op on the scalar parts, where the pattern follows by the rules of forms.cc.
Operand Emitter::by_scalars(uint32_t i, const std::vector<Operand>& operands, const Form& form) {
  const Op& op = ssa_.graph.op(i);
  lanes_.wide = false;
  Val parts[4] = {};
  for (size_t k = 0; k < operands.size() && k < 4; ++k) {
    parts[k] = operands[k].bytes == 0 ? operands[k].scalar : part_of(operands[k]);
  }
  const bool either = op.code == IrOp::k_or_b32 || op.code == IrOp::k_or_b64 ||
                      op.code == IrOp::k_xor_b32 || op.code == IrOp::k_xor_b64;
  if (either && form.kind == Kind::kLanes) {
    // The constant's bits where the pattern is belong to the pattern.
    const size_t k = operands[0].is_uniform() ? 0 : 1;
    const uint32_t zeros = operands[1 - k].form.zeros;
    const uint64_t low = zeros >= 64 ? ~uint64_t{0} : (uint64_t{1} << zeros) - 1;
    parts[k] = lanes_.scalar_constant(8 * operands[k].bytes, operands[k].form.bits & ~low);
  }
  Operand made;
  made.form = form;
  made.scalar = emit_compute(lanes_, op, parts);
  made.bytes = ssa_.graph.bytes_of(ssa_.graph.facts[i].writes[0]);
  return made;
}

Operand Emitter::compute(uint32_t i, const std::vector<Operand>& operands, const Form* form) {
  const Op& op = ssa_.graph.op(i);
  const OpFacts& facts = ssa_.graph.facts[i];
  const size_t count = operands.size() - (facts.guard < 0 ? 0 : facts.writes.size() + 1);
  const std::vector<Operand> used(operands.begin(),
                                  operands.begin() + static_cast<ptrdiff_t>(count));
  const int32_t self = ssa_.made[i][0] >= 0 ? ssa_.find(ssa_.made[i][0]) : -1;
  const bool all_uniform =
      std::all_of(used.begin(), used.end(), [](const Operand& x) { return x.is_uniform(); });
  const uint32_t bytes = ssa_.graph.bytes_of(facts.writes[0]);
  if (form != nullptr && !all_uniform) {
    const bool own = form->kind == Kind::kBase && form->id == self;
    if (!own && form->kind != Kind::kUniform) return by_scalars(i, used, *form);
    if (!own) return by_scalars(i, used, *form);
  }
  // The array's address by itself: forms.cc, kElement.
  const bool apart = form != nullptr && form->kind == Kind::kBase && form->id == self &&
                     form->has_scalar && !all_uniform;
  lanes_.wide = !all_uniform;
  Val parts[4] = {};
  // Bits that are only moved stay as they are if that is so for all of them (ssa.cc).
  const bool moves = moves_bits(op.code);
  const bool moves_unsettled = moves && form != nullptr && ssa_.value(self).unsettled;
  const bool unsettled =
      moves ? moves_unsettled : bytes == 4 && ir::op_info(op.code).d == ir::Lane::f32;
  for (size_t k = 0; k < used.size() && k < 4; ++k) {
    const Operand& x = used[k];
    const bool any_nan = moves ? moves_unsettled : takes_any_nan(op.code, k);
    if (all_uniform) {
      parts[k] = x.unsettled && !any_nan ? settled(x.scalar, false) : x.scalar;
    } else if (apart && k == 1) {
      parts[k] = lanes_.splat_constant(64, 0);
    } else {
      parts[k] = any_nan ? vector_of(x) : settled_vector(x);
    }
    lanes_.wide = !all_uniform;
  }
  const Val value = emit_compute(lanes_, op, parts);
  Operand made = all_uniform ? uniform(value, bytes) : general(value, bytes);
  made.unsettled = unsettled;
  if (apart) {
    made.scalar = used[1].scalar;
    made.form.has_scalar = true;
  }
  return made;
}

std::vector<Operand> Emitter::load_parameter(uint32_t i) {
  const Op& op = ssa_.graph.op(i);
  const uint32_t count = op.aux & 15, bytes = op.aux >> 4 & 0xff, lane_bytes = op.aux >> 12 & 0xff;
  const bool is_signed = op.aux >> 20 & 1;
  uint64_t base = 0;
  std::memcpy(&base, ssa_.graph.code.image.data() + op.a, sizeof base);
  std::vector<Operand> made;
  lanes_.wide = false;
  for (uint32_t e = 0; e < count; ++e) {
    const Val address = lanes_.at(params_, base + op.imm + uint64_t{e} * bytes);
    Val value = lanes_.load(lanes_.integer(8 * bytes), address, 1);
    if (lane_bytes > bytes) {
      value = is_signed ? lanes_.sext(value, 8 * lane_bytes) : lanes_.zext(value, 8 * lane_bytes);
    }
    if (lane_bytes < bytes) value = lanes_.trunc(value, 8 * lane_bytes);
    made.push_back(uniform(value, lane_bytes));
  }
  return made;
}

std::vector<Operand> Emitter::call_handler(uint32_t i, const std::vector<Operand>& operands,
                                           Val mask) {
  const OpFacts& facts = ssa_.graph.facts[i];
  for (size_t k = 0; k < facts.reads.size(); ++k) {
    const int32_t slot = facts.reads[k];
    if (ssa_.graph.is_fixed(slot) || ssa_.graph.is_resident(slot)) continue;
    write_frame(slot, operands[k]);
  }
  const auto switch_lanes = [&](Val lanes) {
    set_warp_field(offsetof(Warp, active), lanes);
    set_warp_field(offsetof(Warp, mask), lanes);
  };
  const size_t fuel = offsetof(Warp, fuel);
  set_warp_field(fuel, get(lanes_.integer(64), fuel_));
  if (mask != nullptr) switch_lanes(mask);
  const Val index = lanes_.scalar_constant(32, i);
  const Val went_on = call_runtime(offsetof(CompiledRuntime, call_handler) / sizeof(void*),
                                   lanes_.integer(32), {warp_, index});
  if (mask != nullptr) switch_lanes(lanes_.scalar_constant(32, kFullMask));
  put(warp_field(fuel, lanes_.integer(64)), fuel_);
  const BlockRef go_on = block("go_on");
  llvm_.BuildCondBr(lanes_.builder, lanes_.compare(kNe, went_on, lanes_.scalar_constant(32, 0)),
                    go_on, stopped_);
  start(go_on);
  std::vector<Operand> made;
  for (int32_t slot : facts.writes) {
    if (ssa_.graph.is_resident(slot)) {
      made.emplace_back();
      continue;
    }
    Operand result = read_frame(slot);
    // One value for all lanes.
    if (ssa_.graph.op(i).code == IrOp::k_read_special && mask == nullptr) {
      lanes_.wide = false;
      result = uniform(llvm_.BuildExtractElement(lanes_.builder, result.vector,
                                                 lanes_.scalar_constant(32, 0), ""),
                       result.bytes);
    }
    made.push_back(result);
  }
  return made;
}

std::vector<Operand> Emitter::shuffle(uint32_t i, const std::vector<Operand>& operands, Val mask) {
  const Op& op = ssa_.graph.op(i);
  const auto known = [](const Operand& x) { return x.is_uniform() && x.form.constant; };
  if (!known(operands[1]) || !known(operands[2]) || mask != nullptr) {
    return call_handler(i, operands, mask);
  }
  const auto by = static_cast<uint32_t>(operands[1].form.bits) & 31;
  const auto control = static_cast<uint32_t>(operands[2].form.bits);
  const uint32_t segment = control >> 8 & 31;
  std::vector<uint32_t> from_lane;
  uint32_t in_range = 0;
  for (uint32_t lane = 0; lane < kWarpSize; ++lane) {
    const uint32_t first = lane & segment, last = first | (control & 31 & ~segment);
    const uint32_t from = op.code == IrOp::k_shuffle_up          ? lane - by
                          : op.code == IrOp::k_shuffle_down      ? lane + by
                          : op.code == IrOp::k_shuffle_butterfly ? lane ^ by
                                                                 : first | (by & ~segment);
    const bool good = op.code == IrOp::k_shuffle_up
                          ? static_cast<int32_t>(from) >= static_cast<int32_t>(last)
                          : from <= last;
    in_range |= static_cast<uint32_t>(good) << lane;
    from_lane.push_back(good ? from : lane);
  }
  const Val values = vector_of(operands[0]);
  Operand moved = general(lanes_.shuffle(values, values, from_lane), 4);
  moved.unsettled = operands[0].unsettled;
  std::vector<Operand> made;
  for (int32_t slot : ssa_.graph.facts[i].writes) {
    if (ssa_.graph.bytes_of(slot) != 0) {
      made.push_back(moved);
    } else {
      made.push_back(general(flags_of(lanes_.scalar_constant(32, in_range)), 0));
    }
  }
  return made;
}

Operand Emitter::vote(uint32_t i, const std::vector<Operand>& operands) {
  lanes_.wide = false;
  const Val bits = bits_of(operands[0]);
  const Val all = lanes_.compare(kEq, bits, lanes_.scalar_constant(32, kFullMask));
  const Val none = lanes_.compare(kEq, bits, lanes_.scalar_constant(32, 0));
  switch (ssa_.graph.op(i).code) {
    case IrOp::k_vote_all: return uniform(all, 0);
    case IrOp::k_vote_any: return uniform(lanes_.not_(none), 0);
    case IrOp::k_vote_uni: return uniform(lanes_.or_(all, none), 0);
    default: return uniform(bits, 4);
  }
}

}  // namespace openmps::softgpu::tier
