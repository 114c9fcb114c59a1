// SPDX-License-Identifier: Apache-2.0
// See graph.h.
#include "softgpu/tier/graph.h"

#include <algorithm>
#include <cstring>

#include "softgpu/ir/frame.h"
#include "softgpu/ir/memory_codes.h"
#include "softgpu/ir/op_info.h"
#include "softgpu/tier/memory_form.h"

namespace openmps::softgpu::tier {
namespace {

// All lanes take part, whatever runs.
bool names_all(const Code& code, const Op& op) {
  if (!(op.aux & kHasMembers)) return true;
  if (!(op.aux & kSameMembers)) return false;
  uint32_t members = 0;
  std::memcpy(&members, code.image.data() + op.e, sizeof members);
  return members == kFullMask;
}

Role role_of(const Code& code, const Op& op) {
  switch (op.code) {
    case IrOp::k_bra:
    case IrOp::k_bra_back: return Role::kJump;
    case IrOp::k_bra_if:
    case IrOp::k_bra_unless:
    case IrOp::k_bra_if_back:
    case IrOp::k_bra_unless_back: return Role::kBranch;
    case IrOp::k_count: return Role::kCount;
    case IrOp::k_join:
    case IrOp::k_guard:
    case IrOp::k_guard_not:
    case IrOp::k_unguard: return Role::kNothing;
    case IrOp::k_brx:
    case IrOp::k_exit:
    case IrOp::k_trap:
    case IrOp::k_unsupported:
    case IrOp::k_ret:
    case IrOp::k_call_indirect: return Role::kLeave;
    case IrOp::k_barrier_sync: return Role::kBarrier;
    case IrOp::k_barrier_arrive:
    case IrOp::k_barrier_red:
    case IrOp::k_barrier_group:
    case IrOp::k_cluster_arrive:
    case IrOp::k_cluster_wait:
    case IrOp::k_mbarrier:
    case IrOp::k_bulk_copy:
    case IrOp::k_tensor_copy:
    case IrOp::k_group_multiply:
    case IrOp::k_yield:
    case IrOp::k_set_rounding:
    case IrOp::k_call:
    case IrOp::k_call_printf:
    case IrOp::k_call_malloc:
    case IrOp::k_call_free:
    case IrOp::k_call_assertfail:
    case IrOp::k_call_set_condition:
    case IrOp::k_call_runtime: return Role::kSuspend;
    case IrOp::k_load_param: return op.aux & kUniformAddress ? Role::kParam : Role::kHandler;
    case IrOp::k_shuffle_up:
    case IrOp::k_shuffle_down:
    case IrOp::k_shuffle_butterfly:
    case IrOp::k_shuffle_index: return names_all(code, op) ? Role::kShuffle : Role::kHandler;
    case IrOp::k_vote_all:
    case IrOp::k_vote_any:
    case IrOp::k_vote_uni:
    case IrOp::k_vote_ballot: return names_all(code, op) ? Role::kVote : Role::kHandler;
    default: break;
  }
  MemoryForm form;
  if (memory_form(op, &form) && form.space != MemorySpace::kLocal && form.register_bytes <= 8) {
    return form.is_store ? Role::kStore : Role::kLoad;
  }
  return can_compute(op.code) ? Role::kCompute : Role::kHandler;
}

bool is_collective(IrOp op) {
  return op >= IrOp::k_shuffle_up && op <= IrOp::k_warp_barrier && op != IrOp::k_activemask;
}

}  // namespace

Graph::Graph(const Code& kernel) : code(kernel) {
  const auto constants = static_cast<int32_t>(code.image.size());
  fixed.assign(code.slots.size(), 0);
  for (size_t s = 0; s < code.slots.size(); ++s) {
    const int32_t offset = code.slots[s].offset;
    fixed[s] = offset == kTrueOffset || (offset >= kFirstPredicateOffset && offset < constants);
  }
  for (const SpecialSlot& special : code.specials) {
    fixed[static_cast<size_t>(slot_at(special.offset))] = 1;
  }
  find_facts();
  find_blocks();
  find_order();
  find_liveness(*this);
}

int32_t Graph::slot_at(int32_t offset) const {
  const auto at =
      std::lower_bound(code.slots.begin(), code.slots.end(), offset,
                       [](const FrameSlot& slot, int32_t wanted) { return slot.offset < wanted; });
  return at != code.slots.end() && at->offset == offset
             ? static_cast<int32_t>(at - code.slots.begin())
             : -1;
}

void Graph::find_accesses(uint32_t i) {
  const Op& op = code.ops[i];
  OpFacts& made = facts[i];
  const auto read = [&](int32_t offset) { made.reads.push_back(slot_at(offset)); };
  const auto write = [&](int32_t offset) { made.writes.push_back(slot_at(offset)); };
  const ir::OpInfo& info = ir::op_info(op.code);
  MemoryForm form;
  if (made.role == Role::kJump || made.role == Role::kCount || made.role == Role::kNothing) return;
  if (memory_form(op, &form)) {
    read(op.a);
    for (uint32_t e = 0; e < form.count; ++e) {
      const int32_t at = form.count > 1 ? op.extra[e] : form.is_store ? op.b : op.d;
      form.is_store ? read(at) : write(at);
    }
  } else if (op.code < IrOp::k_ld_shared_keep) {  // of the tables of plain computations
    const int32_t operands[] = {op.a, op.b, op.c, op.e};
    for (int k = 0; k < info.operand_count(); ++k) read(operands[k]);
    write(op.d);
    if (is_carry(op.code)) {
      read(kCarryOffset);
      write(kCarryOffset);
    }
  } else if (made.role == Role::kBranch) {
    read(op.a);
  } else {
    for (int32_t offset : {op.a, op.b, op.c, op.e}) {
      if (slot_at(offset) >= 0 && offset != kCarryOffset) read(offset);
    }
    if (op.d != kCarryOffset) write(op.d);
    const uint32_t results = extra_results(op), values = extra_values(op);
    for (uint32_t e = 0; e < results; ++e) write(op.extra[e]);
    for (uint32_t e = 0; e < values; ++e) read(op.extra[results + e]);
  }
}

void Graph::find_facts() {
  facts.resize(code.ops.size());
  int32_t guard = -1;
  bool negated = false;
  for (uint32_t i = 0; i < code.ops.size(); ++i) {
    const Op& op = code.ops[i];
    if (op.code == IrOp::k_guard || op.code == IrOp::k_guard_not) {
      guard = slot_at(op.a);
      negated = op.code == IrOp::k_guard_not;
    }
    if (op.code == IrOp::k_unguard) guard = -1;
    OpFacts& made = facts[i];
    made.role = role_of(code, op);
    made.together = is_collective(op.code);
    find_accesses(i);
    const bool resident = std::any_of(made.reads.begin(), made.reads.end(),
                                      [this](int32_t s) { return is_resident(s); }) ||
                          std::any_of(made.writes.begin(), made.writes.end(),
                                      [this](int32_t s) { return is_resident(s); });
    if (resident && (made.role == Role::kCompute || made.role == Role::kLoad ||
                     made.role == Role::kStore || made.role == Role::kParam)) {
      made.role = Role::kHandler;
    }
    if (guard >= 0 && made.role != Role::kNothing) {
      made.guard = guard;
      made.guard_not = negated;
      // Lanes that are switched off keep what they had.
      made.reads.insert(made.reads.end(), made.writes.begin(), made.writes.end());
      made.reads.push_back(guard);
    }
  }
}

void Graph::find_blocks() {
  const auto n = static_cast<uint32_t>(code.ops.size());
  std::vector<uint8_t> leads(n + 1, 0);
  const auto index_of = [this](const Op* op) {
    return static_cast<uint32_t>(op - code.ops.data());
  };
  leads[0] = 1;
  for (uint32_t i = 0; i < n; ++i) {
    const Role role = facts[i].role;
    if (role == Role::kJump || role == Role::kBranch) leads[index_of(code.ops[i].target)] = 1;
    if (code.ops[i].code == IrOp::k_join) leads[i] = 1;
    if (role == Role::kJump || role == Role::kBranch || role == Role::kLeave) leads[i + 1] = 1;
  }
  block_at.assign(n + 1, -1);
  for (uint32_t i = 0; i < n; ++i) {
    if (leads[i]) {
      block_at[i] = static_cast<int32_t>(blocks.size());
      blocks.emplace_back().begin = i;
    }
    blocks.back().end = i + 1;
  }
  for (GraphBlock& block : blocks) {
    const uint32_t last = block.end - 1;
    const Op& op = code.ops[last];
    const Role role = facts[last].role;
    if (role == Role::kJump || role == Role::kBranch) {
      block.successors.push_back(block_at[index_of(op.target)]);
    }
    if (role != Role::kJump && role != Role::kLeave && block.end < n) {
      block.successors.push_back(block_at[block.end]);
    }
    if (role == Role::kBranch && op.e != 0) {
      block.meet = block_at[static_cast<size_t>(static_cast<int32_t>(last) + op.e)];
    }
  }
}

void Graph::find_order() {
  std::vector<std::pair<int32_t, size_t>> stack{{0, 0}};
  blocks[0].reachable = true;
  while (!stack.empty()) {
    auto& [b, next] = stack.back();
    const std::vector<int32_t>& successors = blocks[static_cast<size_t>(b)].successors;
    if (next == successors.size()) {
      order.push_back(b);
      stack.pop_back();
      continue;
    }
    const int32_t s = successors[next++];
    if (!blocks[static_cast<size_t>(s)].reachable) {
      blocks[static_cast<size_t>(s)].reachable = true;
      stack.emplace_back(s, 0);
    }
  }
  std::reverse(order.begin(), order.end());
  for (int32_t b : order) {
    for (int32_t s : blocks[static_cast<size_t>(b)].successors) {
      auto& list = blocks[static_cast<size_t>(s)].predecessors;
      if (list.empty() || list.back() != b) list.push_back(b);
    }
  }
}

namespace {

void step_back(const OpFacts& facts, std::vector<uint8_t>& live) {
  if (facts.guard < 0) {
    for (int32_t s : facts.writes) live[static_cast<size_t>(s)] = 0;
  }
  for (int32_t s : facts.reads) live[static_cast<size_t>(s)] = 1;
}

}  // namespace

std::vector<uint8_t> live_out(const Graph& graph, int32_t b) {
  const IrOp last = graph.op(graph.last_of(b)).code;
  // The interpreter goes on from there, anywhere.
  const bool anywhere = last == IrOp::k_brx || last == IrOp::k_call_indirect || last == IrOp::k_ret;
  std::vector<uint8_t> live(graph.code.slots.size(), anywhere ? 1 : 0);
  for (int32_t s : graph.blocks[static_cast<size_t>(b)].successors) {
    const auto& in = graph.live_in[static_cast<size_t>(s)];
    for (size_t k = 0; k < live.size(); ++k) live[k] |= in[k];
  }
  return live;
}

std::vector<uint8_t> live_behind(const Graph& graph, int32_t b, uint32_t i) {
  std::vector<uint8_t> live = live_out(graph, b);
  for (uint32_t k = graph.blocks[static_cast<size_t>(b)].end; k-- > i + 1;) {
    step_back(graph.facts[k], live);
  }
  return live;
}

std::vector<uint8_t> live_before(const Graph& graph, int32_t b, uint32_t i) {
  std::vector<uint8_t> live = live_behind(graph, b, i);
  step_back(graph.facts[i], live);
  return live;
}

void find_liveness(Graph& graph) {
  graph.live_in.assign(graph.blocks.size(), std::vector<uint8_t>(graph.code.slots.size(), 0));
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t k = graph.order.size(); k-- > 0;) {
      const int32_t b = graph.order[k];
      const GraphBlock& block = graph.blocks[static_cast<size_t>(b)];
      std::vector<uint8_t> live = live_out(graph, b);
      for (uint32_t i = block.end; i-- > block.begin;) step_back(graph.facts[i], live);
      for (size_t s = 0; s < live.size(); ++s) live[s] &= !graph.fixed[s];
      if (live != graph.live_in[static_cast<size_t>(b)]) {
        graph.live_in[static_cast<size_t>(b)] = std::move(live);
        changed = true;
      }
    }
  }
}

}  // namespace openmps::softgpu::tier
