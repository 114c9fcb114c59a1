// SPDX-License-Identifier: Apache-2.0
// Lanes that have parted: the blocks between a branch and the place where its lanes meet, run with
// masks. The first block, in the order of the text, that lanes wait for is always the next one, so
// each block has one mask of lanes that have come to it. See emitter.h.
#include <algorithm>
#include <cstddef>

#include "softgpu/interp/warp.h"
#include "softgpu/ir/op_info.h"
#include "softgpu/tier/emitter.h"

namespace openmps::softgpu::tier {
namespace {

// Warp instructions that lanes which have parted may run beyond the end of a warp's turn, before
// the interpreter, which is slower, goes on with them: about a turn more.
constexpr int64_t kOverdraft = 1 << 16;

}  // namespace

struct Emitter::RegionState {
  const Region& region;
  std::vector<int32_t> place;        // by block: where in region.blocks; -1: elsewhere
  std::vector<Val> waiting;          // variables: lanes that have come to each block
  Val arrived = nullptr;             // variable: lanes where they meet
  std::vector<Val> slots;            // variables by slot that the region writes; null: others
  std::map<int32_t, Operand> local;  // slots written by the block at hand
  std::vector<BlockRef> tests;       // by place: are there lanes?
  Val mask = nullptr;                // of the block at hand
};

Operand Emitter::region_operand(RegionState& state, int32_t slot) {
  const auto found = state.local.find(slot);
  if (found != state.local.end()) return found->second;
  const auto s = static_cast<size_t>(slot);
  if (state.slots[s] == nullptr) {
    const int32_t v = ssa_.out(state.region.branch, slot);
    return v < 0 ? Operand{} : operand_of(v);
  }
  const uint32_t bytes = ssa_.graph.bytes_of(slot);
  const Val value = get(type_of(bytes, true), state.slots[s]);
  return general(bytes == 0 ? flags_of(value) : value, bytes);
}

void Emitter::emit_region(const Region& region, Val taken) {
  const Graph& graph = ssa_.graph;
  RegionState state{
      .region = region, .place = {}, .waiting = {}, .slots = {}, .local = {}, .tests = {}};
  state.place.assign(graph.blocks.size(), -1);
  const Val zero = lanes_.scalar_constant(32, 0);
  const auto mask_variable = [&] {
    const Val made = variable(lanes_.integer(32));
    put(zero, made);
    return made;
  };
  for (size_t k = 0; k < region.blocks.size(); ++k) {
    state.place[static_cast<size_t>(region.blocks[k])] = static_cast<int32_t>(k);
    state.waiting.push_back(mask_variable());
    state.tests.push_back(block("test"));
  }
  state.tests.push_back(block("met"));
  state.arrived = mask_variable();
  state.slots.assign(graph.code.slots.size(), nullptr);
  for (int32_t slot : region.writes) {
    if (graph.is_resident(slot) || graph.is_fixed(slot)) continue;
    const auto s = static_cast<size_t>(slot);
    const uint32_t bytes = graph.bytes_of(slot);
    state.slots[s] = variable(type_of(bytes, true));
    const int32_t v = ssa_.out(region.branch, slot);
    if (v < 0) {
      put(llvm_.ConstNull(type_of(bytes, true)), state.slots[s]);
      continue;
    }
    const Operand x = operand_of(v);
    put(bytes == 0 ? bits_of(x) : settled_vector(x), state.slots[s]);
  }
  const std::vector<int32_t>& ways = graph.blocks[static_cast<size_t>(region.branch)].successors;
  lanes_.wide = false;
  const Val masks[] = {taken, lanes_.not_(taken)};
  for (size_t k = 0; k < ways.size(); ++k) {
    const int32_t place = state.place[static_cast<size_t>(ways[k])];
    const Val to = place < 0 ? state.arrived : state.waiting[static_cast<size_t>(place)];
    const Val before = get(lanes_.integer(32), to);
    put(lanes_.or_(before, masks[k]), to);
  }
  llvm_.BuildBr(lanes_.builder, state.tests[0]);
  for (size_t k = 0; k < region.blocks.size(); ++k) emit_region_block(state, k);
  // All have met.
  state.local.clear();
  start(state.tests.back());
  std::vector<std::pair<int32_t, int32_t>> moves;
  const int32_t meet = region.meet;
  size_t input = graph.blocks[static_cast<size_t>(meet)].predecessors.size();
  for (const Region& other : ssa_.regions) {
    if (other.branch == region.branch) break;
    input += other.meet == meet;
  }
  for (size_t k = 0; k < region.writes.size(); ++k) {
    if (region.outputs[k] >= 0) assign(region.outputs[k], region_operand(state, region.writes[k]));
  }
  for (int32_t phi : ssa_.phis[static_cast<size_t>(meet)]) {
    moves.emplace_back(phi, ssa_.value(phi).inputs[input]);
  }
  for (int32_t v : region.outputs) {
    if (v >= 0 && shapes_.contains(ssa_.find(v))) find_shape(ssa_.find(v));
  }
  assign_phis(moves);
  llvm_.BuildBr(lanes_.builder, blocks_[static_cast<size_t>(meet)]);
}

void Emitter::emit_region_block(RegionState& state, size_t k) {
  const Graph& graph = ssa_.graph;
  const int32_t b = state.region.blocks[k];
  const GraphBlock& part = graph.blocks[static_cast<size_t>(b)];
  start(state.tests[k]);
  const BlockRef body = block("masked");
  state.mask = get(lanes_.integer(32), state.waiting[k]);
  const Val zero = lanes_.scalar_constant(32, 0);
  llvm_.BuildCondBr(lanes_.builder, lanes_.compare(kNe, state.mask, zero), body,
                    state.tests[k + 1]);
  start(body);
  put(zero, state.waiting[k]);
  state.local.clear();
  for (uint32_t i = part.begin; i < part.end; ++i) {
    const OpFacts& facts = graph.facts[i];
    if (facts.role == Role::kCount || facts.role == Role::kJump || facts.role == Role::kBranch) {
      spend(graph.op(i).aux);
    }
    if (facts.role == Role::kCount || facts.role == Role::kJump || facts.role == Role::kBranch ||
        facts.role == Role::kNothing) {
      continue;
    }
    std::vector<Operand> operands;
    for (int32_t slot : facts.reads) {
      operands.push_back(graph.is_resident(slot) ? Operand{} : region_operand(state, slot));
    }
    const std::vector<Operand> made =
        facts.guard < 0 ? run_op(i, operands, state.mask) : run_guarded(i, operands, state.mask);
    for (size_t w = 0; w < facts.writes.size(); ++w) {
      if (!graph.is_resident(facts.writes[w])) state.local[facts.writes[w]] = made[w];
    }
  }
  emit_region_end(state, k);
}

void Emitter::emit_region_end(RegionState& state, size_t k) {
  const Graph& graph = ssa_.graph;
  const int32_t b = state.region.blocks[k];
  const uint32_t last = graph.last_of(b);
  const Op& op = graph.op(last);
  const std::vector<int32_t>& next = graph.blocks[static_cast<size_t>(b)].successors;
  Val taken = nullptr;
  if (graph.facts[last].role == Role::kBranch) {
    const Val bits = bits_of(region_operand(state, graph.facts[last].reads[0]));
    const bool negated = op.code == IrOp::k_bra_unless || op.code == IrOp::k_bra_unless_back;
    taken = lanes_.and_(state.mask, negated ? lanes_.not_(bits) : bits);
  }
  // What lives on is merged with what the other lanes have.
  const std::vector<uint8_t> live = live_out(graph, b);
  const Val flags = flags_of(state.mask);
  for (const auto& [slot, x] : state.local) {
    const auto s = static_cast<size_t>(slot);
    if (!live[s] || state.slots[s] == nullptr) continue;
    const Val before = get(type_of(x.bytes, true), state.slots[s]);
    const Val merged = x.bytes == 0 ? lanes_.or_(lanes_.and_(bits_of(x), state.mask),
                                                 lanes_.and_(before, lanes_.not_(state.mask)))
                                    : lanes_.select(flags, settled_vector(x), before);
    put(merged, state.slots[s]);
  }
  int32_t back = -1;
  for (size_t w = 0; w < next.size(); ++w) {
    const Val lanes = taken == nullptr ? state.mask
                      : w == 0         ? taken
                                       : lanes_.and_(state.mask, lanes_.not_(taken));
    const int32_t place = state.place[static_cast<size_t>(next[w])];
    const Val to = place < 0 ? state.arrived : state.waiting[static_cast<size_t>(place)];
    const Val before = get(lanes_.integer(32), to);
    put(lanes_.or_(before, lanes), to);
    if (place >= 0 && static_cast<size_t>(place) <= k) back = place;
  }
  if (back < 0) {
    llvm_.BuildBr(lanes_.builder, state.tests[k + 1]);
    return;
  }
  const auto to = static_cast<size_t>(back);
  const BlockRef again = block("again"), out = block("out");
  const Val left = get(lanes_.integer(32), state.waiting[to]);
  lanes_.wide = false;
  llvm_.BuildCondBr(lanes_.builder, lanes_.compare(kNe, left, lanes_.scalar_constant(32, 0)), again,
                    state.tests[k + 1]);
  start(again);
  const Val fuel = get(lanes_.integer(64), fuel_);
  const Val stop = lanes_.load(lanes_.integer(8), stop_, 1);
  const Val spent = lanes_.scalar_constant(64, static_cast<uint64_t>(-kOverdraft));
  const Val must = lanes_.or_(lanes_.compare(kSle, fuel, spent),
                              lanes_.compare(kNe, stop, lanes_.scalar_constant(8, 0)));
  llvm_.BuildCondBr(lanes_.builder, must, out, state.tests[to]);
  start(out);
  state.local.clear();
  part(state, to);
}

// The interpreter goes on with the lanes where they are.
void Emitter::part(RegionState& state, size_t) {
  const Graph& graph = ssa_.graph;
  std::vector<uint8_t> live = graph.live_in[static_cast<size_t>(state.region.meet)];
  for (int32_t b : state.region.blocks) {
    const auto& in = graph.live_in[static_cast<size_t>(b)];
    for (size_t s = 0; s < live.size(); ++s) live[s] |= in[s];
  }
  for (size_t s = 0; s < live.size(); ++s) {
    const auto slot = static_cast<int32_t>(s);
    if (!live[s] || graph.is_fixed(slot) || graph.is_resident(slot)) continue;
    if (state.slots[s] == nullptr && ssa_.out(state.region.branch, slot) < 0) continue;
    write_frame(slot, region_operand(state, slot));
  }
  // Pairs of op and mask, first where they meet.
  const auto count = static_cast<uint32_t>(state.region.blocks.size() + 1);
  const Type pairs = lanes_.vector(lanes_.integer(32), 2 * count);
  const Val places = lanes_.cast(variable(pairs), lanes_.pointer(lanes_.integer(8)));
  const auto write = [&](uint32_t at, int32_t b, Val lanes) {
    const uint32_t op = graph.blocks[static_cast<size_t>(b)].begin;
    lanes_.store(lanes_.scalar_constant(32, op), lanes_.at(places, uint64_t{8} * at), 4);
    lanes_.store(get(lanes_.integer(32), lanes), lanes_.at(places, uint64_t{8} * at + 4), 4);
  };
  write(0, state.region.meet, state.arrived);
  for (size_t k = 0; k < state.region.blocks.size(); ++k) {
    write(static_cast<uint32_t>(k) + 1, state.region.blocks[k], state.waiting[k]);
  }
  call_runtime(offsetof(CompiledRuntime, part) / sizeof(void*), lanes_.integer(32),
               {warp_, places, lanes_.scalar_constant(32, count)});
  leave(0, CompiledExit::kStopped);
}

}  // namespace openmps::softgpu::tier
