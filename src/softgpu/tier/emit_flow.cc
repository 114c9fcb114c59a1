// SPDX-License-Identifier: Apache-2.0
// Blocks, branches, and leaving the function: see emitter.h.
#include <cstddef>

#include "softgpu/interp/block.h"
#include "softgpu/tier/emitter.h"

namespace openmps::softgpu::tier {

void Emitter::collect_kept(int32_t value, std::set<Val>* variables) const {
  const int32_t v = ssa_.find(value);
  const auto take = [&](Val variable) {
    if (variable != nullptr && kept_.contains(variable)) variables->insert(variable);
  };
  const Form& form = ssa_.form(v);
  take(scalars_[static_cast<size_t>(v)]);
  take(vectors_[static_cast<size_t>(v)]);
  if (form.kind != Kind::kBase || ssa_.value(form.id).kind == Value::Kind::kFixed) return;
  take(vectors_[static_cast<size_t>(form.id)]);
}

void Emitter::leave_and_resume(uint32_t op, CompiledExit exit, uint32_t at,
                               const std::set<Val>& variables) {
  const auto address = [&](const Kept& kept) { return lanes_.at(state_, kept.offset); };
  const auto alignment = [](const Kept& kept) {
    return kept.offset % 64 == 0 ? 64u : kept.offset % 8 == 0 ? 8u : kept.offset % 4 == 0 ? 4u : 1u;
  };
  for (Val variable : variables) {
    const Kept& kept = kept_.at(variable);
    lanes_.store(get(kept.type, variable), address(kept), alignment(kept));
  }
  const auto number = static_cast<uint32_t>(entries_.size());
  entries_.push_back(at);
  lanes_.store(lanes_.scalar_constant(32, at),
               lanes_.at(state_, offsetof(CompiledState, resume_at)), 4);
  lanes_.store(lanes_.scalar_constant(32, number),
               lanes_.at(state_, offsetof(CompiledState, resume)), 4);
  leave(op, exit);
  const BlockRef resume = block("resume");
  llvm_.AddCase(dispatch_switch_, lanes_.scalar_constant(32, number), resume);
  start(resume);
  for (Val variable : variables) {
    const Kept& kept = kept_.at(variable);
    put(lanes_.load(kept.type, address(kept), alignment(kept)), variable);
  }
}

void Emitter::flush(const std::vector<uint8_t>& live) {
  for (size_t s = 0; s < live.size(); ++s) {
    const auto slot = static_cast<int32_t>(s);
    if (!live[s] || now_[s] < 0 || ssa_.graph.is_fixed(slot)) continue;
    write_frame(slot, operand_of(now_[s]));
  }
}

void Emitter::flush_reads(uint32_t i) {
  for (int32_t slot : ssa_.graph.facts[i].reads) {
    const auto s = static_cast<size_t>(slot);
    if (now_[s] >= 0 && !ssa_.graph.is_fixed(slot)) write_frame(slot, operand_of(now_[s]));
  }
}

// The interpreter runs the ops from `first` to `last`, and the function goes on behind them.
void Emitter::emit_suspend(int32_t b, uint32_t first, uint32_t last) {
  const std::vector<uint8_t> live = live_behind(ssa_.graph, b, last);
  const bool is_barrier = ssa_.graph.facts[first].role == Role::kBarrier;
  for (uint32_t i = first; i <= last; ++i) flush_reads(i);
  if (!is_barrier) flush(live);
  std::vector<int32_t> written(now_.size(), -1);
  for (uint32_t i = first; i <= last; ++i) {
    for (size_t k = 0; k < ssa_.made[i].size(); ++k) {
      written[static_cast<size_t>(ssa_.graph.facts[i].writes[k])] = ssa_.made[i][k];
    }
  }
  std::set<Val> variables;
  for (size_t s = 0; s < live.size(); ++s) {
    if (live[s] && now_[s] >= 0 && written[s] < 0) collect_kept(now_[s], &variables);
  }
  leave_and_resume(first, CompiledExit::kInterpret, last + 1, variables);
  for (size_t s = 0; s < written.size(); ++s) {
    if (written[s] < 0) continue;
    Operand result = read_frame(static_cast<int32_t>(s));
    if (ssa_.is_uniform(written[s])) {
      lanes_.wide = false;
      const Val lane = llvm_.BuildExtractElement(lanes_.builder, result.vector,
                                                 lanes_.scalar_constant(32, 0), "");
      result = uniform(lane, result.bytes);
    }
    assign(written[s], result);
    if (shapes_.contains(ssa_.find(written[s]))) find_shape(ssa_.find(written[s]));
    now_[s] = written[s];
  }
}

void Emitter::define(uint32_t i, const std::vector<Operand>& results) {
  const OpFacts& facts = ssa_.graph.facts[i];
  for (size_t k = 0; k < facts.writes.size(); ++k) {
    const int32_t v = ssa_.made[i][k];
    if (v < 0) continue;
    assign(v, results[k]);
    if (shapes_.contains(ssa_.find(v))) find_shape(ssa_.find(v));
    now_[static_cast<size_t>(facts.writes[k])] = v;
  }
}

// The op behind those, from `i` on, that the interpreter has to run; 0: there are none; beyond the
// block's end: to its end, and what is behind it, too.
uint32_t Emitter::suspended_until(int32_t b, uint32_t i) const {
  const Graph& graph = ssa_.graph;
  const uint32_t end = graph.blocks[static_cast<size_t>(b)].end;
  const Op& op = graph.op(i);
  const auto is_suspended = [&](uint32_t k) {
    return graph.facts[k].role == Role::kSuspend || graph.facts[k].role == Role::kBarrier;
  };
  // A guard is entered and left by the interpreter.
  if (op.code == IrOp::k_guard || op.code == IrOp::k_guard_not) {
    bool any = false;
    uint32_t k = i;
    for (; k < end && graph.op(k).code != IrOp::k_unguard; ++k) any |= is_suspended(k);
    return any ? k + 1 : 0;
  }
  if (!is_suspended(i)) return 0;
  if (op.code != IrOp::k_set_rounding) return i + 1;
  if (op.aux == 0) return 0;
  // Code does not know of other rounding modes: the interpreter runs what is to have them.
  for (uint32_t k = i + 1; k < end; ++k) {
    if (graph.op(k).code == IrOp::k_set_rounding && graph.op(k).aux == 0) return k + 1;
  }
  return end + 1;
}

// False: the block ends here. `i` may be moved on.
bool Emitter::emit_op(int32_t b, uint32_t* i) {
  const Graph& graph = ssa_.graph;
  const OpFacts& facts = graph.facts[*i];
  const Op& op = graph.op(*i);
  if (const uint32_t behind = suspended_until(b, *i)) {
    const uint32_t end = graph.blocks[static_cast<size_t>(b)].end;
    if (behind > end) {
      flush(live_before(graph, b, *i));
      for (uint32_t k = *i; k < end; ++k) flush_reads(k);
      leave(*i, CompiledExit::kInterpret);
      return false;
    }
    emit_suspend(b, *i, behind - 1);
    *i = behind - 1;
    return true;
  }
  switch (facts.role) {
    case Role::kNothing:
    case Role::kJump:
    case Role::kSuspend:
    case Role::kBranch: return true;
    case Role::kCount: spend(op.aux); return true;
    case Role::kLeave:
      flush_reads(*i);
      flush(live_behind(graph, b, *i));
      leave(*i, CompiledExit::kInterpret);
      return false;
    default: break;
  }
  if (const uint32_t behind = emit_segment(b, *i)) {
    *i = behind - 1;
  } else {
    emit_plain(*i);
  }
  return true;
}

void Emitter::emit_block(int32_t b) {
  const GraphBlock& block = ssa_.graph.blocks[static_cast<size_t>(b)];
  start(blocks_[static_cast<size_t>(b)]);
  block_at_hand_ = b;
  now_.assign(ssa_.graph.code.slots.size(), -1);
  for (size_t s = 0; s < now_.size(); ++s) now_[s] = ssa_.in(b, static_cast<int32_t>(s));
  for (uint32_t i = block.begin; i < block.end; ++i) {
    if (!emit_op(b, &i)) return;
  }
  emit_end(b);
}

void Emitter::emit_end(int32_t b) {
  const uint32_t last = ssa_.graph.last_of(b);
  const Role role = ssa_.graph.facts[last].role;
  if (role == Role::kBranch) {
    emit_branch(b);
    return;
  }
  const std::vector<int32_t>& next = ssa_.graph.blocks[static_cast<size_t>(b)].successors;
  if (next.empty()) {
    llvm_.BuildUnreachable(lanes_.builder);
    return;
  }
  if (role == Role::kJump) spend(ssa_.graph.op(last).aux);
  emit_edge(b, next[0]);
}

// To the block `to`. Going back, others get the processor now and then.
void Emitter::emit_edge(int32_t b, int32_t to) {
  const Op& op = ssa_.graph.op(ssa_.graph.last_of(b));
  if (to <= b) {
    const Val fuel = get(lanes_.integer(64), fuel_);
    const Val stop = lanes_.load(lanes_.integer(8), stop_, 1);
    lanes_.wide = false;
    Val must = lanes_.or_(lanes_.compare(kSle, fuel, lanes_.scalar_constant(64, 0)),
                          lanes_.compare(kNe, stop, lanes_.scalar_constant(8, 0)));
    if (op.sync != 0) {
      const Val spins = lanes_.add(warp_field(offsetof(Warp, spins), lanes_.integer(32)),
                                   lanes_.scalar_constant(32, kWaitWeight));
      set_warp_field(offsetof(Warp, spins), spins);
      must = lanes_.or_(must, lanes_.compare(kUge, spins, lanes_.scalar_constant(32, kSpinLimit)));
    }
    const BlockRef poll = block("poll"), go_on = block("again");
    llvm_.BuildCondBr(lanes_.builder, must, poll, go_on);
    start(poll);
    std::set<Val> variables;
    const auto& live = ssa_.graph.live_in[static_cast<size_t>(to)];
    for (size_t s = 0; s < live.size(); ++s) {
      const int32_t v = ssa_.out(b, static_cast<int32_t>(s));
      if (live[s] && v >= 0) collect_kept(v, &variables);
    }
    const uint32_t at = ssa_.graph.blocks[static_cast<size_t>(to)].begin;
    leave_and_resume(at, CompiledExit::kPoll, at, variables);
    llvm_.BuildBr(lanes_.builder, go_on);
    start(go_on);
  }
  follow_edge(b, to);
  llvm_.BuildBr(lanes_.builder, blocks_[static_cast<size_t>(to)]);
}

void Emitter::emit_branch(int32_t b) {
  const uint32_t last = ssa_.graph.last_of(b);
  const Op& op = ssa_.graph.op(last);
  const std::vector<int32_t>& next = ssa_.graph.blocks[static_cast<size_t>(b)].successors;
  const bool negated = op.code == IrOp::k_bra_unless || op.code == IrOp::k_bra_unless_back;
  const Operand predicate = operand_of(ssa_.uses[last][0]);
  const BlockRef taken = block("taken"), not_taken = block("not_taken");
  lanes_.wide = false;
  if (predicate.is_uniform()) {
    spend(op.aux);
    llvm_.BuildCondBr(lanes_.builder, predicate.scalar, negated ? not_taken : taken,
                      negated ? taken : not_taken);
  } else {
    Val bits = bits_of(predicate);
    if (negated) bits = lanes_.not_(bits);
    const int32_t region = ssa_.region_of(b);
    const BlockRef some = block("some"), parted = block("parted");
    if (region >= 0) spend(op.aux);
    llvm_.BuildCondBr(lanes_.builder, lanes_.compare(kEq, bits, lanes_.scalar_constant(32, 0)),
                      not_taken, some);
    start(some);
    llvm_.BuildCondBr(lanes_.builder,
                      lanes_.compare(kEq, bits, lanes_.scalar_constant(32, kFullMask)), taken,
                      parted);
    start(parted);
    if (region >= 0) {
      emit_region(ssa_.regions[static_cast<size_t>(region)], bits);
    } else {
      flush_reads(last);
      flush(live_out(ssa_.graph, b));
      leave(last, CompiledExit::kInterpret);
    }
    if (region < 0) {
      for (const BlockRef way : {taken, not_taken}) {
        start(way);
        spend(op.aux);
      }
    }
  }
  start(taken);
  emit_edge(b, next[0]);
  start(not_taken);
  emit_edge(b, next.size() > 1 ? next[1] : next[0]);
}

}  // namespace openmps::softgpu::tier
