// SPDX-License-Identifier: Apache-2.0
// See flow.h.
#include "softgpu/ir/flow.h"

#include <algorithm>
#include <utility>

namespace openmps::softgpu::ir {

bool ends_block(const Draft& draft) {
  switch (draft.op) {
    case IrOp::k_bra:
    case IrOp::k_bra_if:
    case IrOp::k_bra_unless:
    case IrOp::k_brx:
    case IrOp::k_exit:
    case IrOp::k_trap:
    case IrOp::k_unsupported:
    case IrOp::k_ret:
    case IrOp::k_call_indirect: return true;
    default: return false;
  }
}

namespace {

void find_blocks(const DraftFunction& function, Flow& flow) {
  const size_t n = function.drafts.size();
  std::vector<bool> leader(n + 1, false);
  leader[0] = true;
  auto lead = [&](int32_t label) { leader[function.label_positions[label]] = true; };
  for (size_t i = 0; i < n; ++i) {
    const Draft& draft = function.drafts[i];
    if (draft.label >= 0 && draft.op != IrOp::k_guard && draft.op != IrOp::k_guard_not) {
      lead(draft.label);
    }
    if (ends_block(draft)) leader[i + 1] = true;
  }
  for (const std::vector<int32_t>& table : function.tables) {
    for (int32_t label : table) lead(label);
  }
  flow.block_of.assign(n, -1);
  for (size_t i = 0; i < n; ++i) {
    if (leader[i]) flow.blocks.emplace_back().begin = static_cast<uint32_t>(i);
    flow.blocks.back().end = static_cast<uint32_t>(i + 1);
    flow.block_of[i] = static_cast<int32_t>(flow.blocks.size() - 1);
  }
  for (size_t b = 0; b < flow.blocks.size(); ++b) {
    const Draft& last = function.drafts[flow.blocks[b].end - 1];
    auto& successors = flow.blocks[b].successors;
    const bool stops = last.op == IrOp::k_exit || last.op == IrOp::k_trap ||
                       last.op == IrOp::k_unsupported || last.op == IrOp::k_ret;
    if (last.op == IrOp::k_brx) {
      for (int32_t label : function.tables[last.table]) {
        successors.push_back(flow.block_of[function.label_positions[label]]);
      }
    } else if (last.label >= 0 && ends_block(last)) {
      successors.push_back(flow.block_of[function.label_positions[last.label]]);
    }
    if (!stops && last.op != IrOp::k_bra && last.op != IrOp::k_brx && b + 1 < flow.blocks.size()) {
      successors.push_back(static_cast<int32_t>(b + 1));
    }
    std::sort(successors.begin(), successors.end());
    successors.erase(std::unique(successors.begin(), successors.end()), successors.end());
    for (int32_t s : successors) flow.blocks[s].predecessors.push_back(static_cast<int32_t>(b));
  }
}

// Cooper, Harvey and Kennedy's dominance algorithm on the reversed graph with one virtual exit.
void find_meets(const DraftFunction& function, Flow& flow) {
  const auto n = static_cast<int32_t>(flow.blocks.size());
  const int32_t exit = n;
  std::vector<int32_t> order, number(n + 1, -1), meet(n + 1, -1);
  std::vector<std::pair<int32_t, size_t>> stack;
  std::vector<int32_t> exits;
  for (int32_t b = 0; b < n; ++b) {
    if (flow.blocks[b].successors.empty()) exits.push_back(b);
  }
  auto inputs = [&](int32_t b) -> const std::vector<int32_t>& {
    return b == exit ? exits : flow.blocks[b].predecessors;
  };
  std::vector<bool> seen(n + 1, false);
  stack.push_back({exit, 0});
  seen[exit] = true;
  while (!stack.empty()) {
    auto& [b, next] = stack.back();
    if (next < inputs(b).size()) {
      const int32_t p = inputs(b)[next++];
      if (!seen[p]) {
        seen[p] = true;
        stack.push_back({p, 0});
      }
    } else {
      number[b] = static_cast<int32_t>(order.size());
      order.push_back(b);
      stack.pop_back();
    }
  }
  meet[exit] = exit;
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = order.size(); i-- > 0;) {
      const int32_t b = order[i];
      if (b == exit) continue;
      int32_t best = flow.blocks[b].successors.empty() ? exit : -1;
      for (int32_t s : flow.blocks[b].successors) {
        if (meet[s] < 0) continue;
        if (best < 0) {
          best = s;
          continue;
        }
        int32_t x = s, y = best;
        while (x != y) {
          while (number[x] < number[y]) x = meet[x];
          while (number[y] < number[x]) y = meet[y];
        }
        best = x;
      }
      if (best >= 0 && meet[b] != best) {
        meet[b] = best;
        changed = true;
      }
    }
  }
  for (int32_t b = 0; b < n; ++b) {
    const IrOp last = function.drafts[flow.blocks[b].end - 1].op;
    int32_t at = meet[b] == exit ? -1 : meet[b];
    if (last == IrOp::k_call_indirect) at = b + 1 < n ? b + 1 : -1;
    if (at < 0 || (flow.blocks[b].successors.size() < 2 && last != IrOp::k_call_indirect)) continue;
    flow.blocks[b].meet = at;
    flow.blocks[at].is_meet = true;
  }
}

}  // namespace

Flow find_flow(const DraftFunction& function) {
  Flow flow;
  find_blocks(function, flow);
  find_meets(function, flow);
  return flow;
}

}  // namespace openmps::softgpu::ir
