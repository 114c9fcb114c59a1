// SPDX-License-Identifier: Apache-2.0
// The second half of the lowering: basic blocks, where divergent lanes meet (immediate
// post-dominators), register allocation over live intervals, the frame's layout, the final ops.
// Part of Builder, see builder.h.
#include <algorithm>
#include <cstring>
#include <queue>

#include "softgpu/interp/handlers.h"
#include "softgpu/interp/warp.h"
#include "softgpu/ir/builder.h"
#include "softgpu/ir/lower.h"

namespace openmps::softgpu::ir {
namespace {

constexpr uint32_t kFrameAlignment = 64;  // a cache line and the widest vector register

uint32_t slot_bytes(uint32_t value_bytes) { return value_bytes == 0 ? 4 : value_bytes * kWarpSize; }

}  // namespace

bool Builder::ends_block(const Draft& draft) const {
  switch (draft.op) {
    case IrOp::k_bra:
    case IrOp::k_bra_if:
    case IrOp::k_bra_unless:
    case IrOp::k_brx:
    case IrOp::k_exit:
    case IrOp::k_trap:
    case IrOp::k_ret:
    case IrOp::k_call_indirect: return true;
    default: return false;
  }
}

void Builder::uses_of(const Draft& draft, std::vector<int32_t>* out) const {
  out->clear();
  if (draft.folded) return;
  for (int32_t value : {draft.a, draft.b, draft.c, draft.e})
    if (value >= 0) out->push_back(value);
  out->insert(out->end(), draft.extra_values.begin(), draft.extra_values.end());
  if (draft.partial) {  // lanes that are not written keep what they had
    if (draft.d >= 0) out->push_back(draft.d);
    out->insert(out->end(), draft.extra_results.begin(), draft.extra_results.end());
  }
}

void Builder::results_of(const Draft& draft, std::vector<int32_t>* out) const {
  out->clear();
  if (draft.folded) return;
  if (draft.d >= 0) out->push_back(draft.d);
  out->insert(out->end(), draft.extra_results.begin(), draft.extra_results.end());
}

// A branch may name the label of a .branchtargets, which is no place.
bool Builder::labels_are_placed() {
  auto placed = [this](int32_t label) {
    return static_cast<size_t>(label) < label_positions_.size() && label_positions_[label] >= 0;
  };
  bool good = true;
  for (const Draft& draft : drafts_) good &= draft.label < 0 || placed(draft.label);
  for (const std::vector<int32_t>& table : tables_)
    for (int32_t label : table) good &= placed(label);
  return good || unusable("branch to something that is no label");
}

void Builder::find_blocks() {
  const size_t n = drafts_.size();
  std::vector<bool> leader(n + 1, false);
  leader[0] = true;
  auto lead = [&](int32_t label) { leader[label_positions_[label]] = true; };
  for (size_t i = 0; i < n; ++i) {
    const Draft& draft = drafts_[i];
    if (draft.label >= 0 && draft.op != IrOp::k_guard && draft.op != IrOp::k_guard_not)
      lead(draft.label);
    if (ends_block(draft)) leader[i + 1] = true;
  }
  for (const std::vector<int32_t>& table : tables_)
    for (int32_t label : table) lead(label);
  block_of_.assign(n, -1);
  for (size_t i = 0; i < n; ++i) {
    if (leader[i]) blocks_.emplace_back().begin = static_cast<uint32_t>(i);
    blocks_.back().end = static_cast<uint32_t>(i + 1);
    block_of_[i] = static_cast<int32_t>(blocks_.size() - 1);
  }
  for (size_t b = 0; b < blocks_.size(); ++b) {
    const Draft& last = drafts_[blocks_[b].end - 1];
    auto& successors = blocks_[b].successors;
    const bool stops = last.op == IrOp::k_exit || last.op == IrOp::k_trap || last.op == IrOp::k_ret;
    if (last.op == IrOp::k_brx)
      for (int32_t label : tables_[last.table])
        successors.push_back(block_of_[label_positions_[label]]);
    else if (last.label >= 0 && ends_block(last))
      successors.push_back(block_of_[label_positions_[last.label]]);
    if (!stops && last.op != IrOp::k_bra && last.op != IrOp::k_brx && b + 1 < blocks_.size())
      successors.push_back(static_cast<int32_t>(b + 1));
    std::sort(successors.begin(), successors.end());
    successors.erase(std::unique(successors.begin(), successors.end()), successors.end());
    for (int32_t s : successors) blocks_[s].predecessors.push_back(static_cast<int32_t>(b));
  }
}

// Cooper, Harvey and Kennedy's dominance algorithm on the reversed graph with one virtual exit.
void Builder::find_meets() {
  const auto n = static_cast<int32_t>(blocks_.size());
  const int32_t exit = n;
  std::vector<int32_t> order, number(n + 1, -1), meet(n + 1, -1);
  std::vector<std::pair<int32_t, size_t>> stack;
  std::vector<int32_t> exits;
  for (int32_t b = 0; b < n; ++b)
    if (blocks_[b].successors.empty()) exits.push_back(b);
  auto inputs = [&](int32_t b) -> const std::vector<int32_t>& {
    return b == exit ? exits : blocks_[b].predecessors;
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
      int32_t best = blocks_[b].successors.empty() ? exit : -1;
      for (int32_t s : blocks_[b].successors) {
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
    const IrOp last = drafts_[blocks_[b].end - 1].op;
    int32_t at = meet[b] == exit ? -1 : meet[b];
    if (last == IrOp::k_call_indirect) at = b + 1 < n ? b + 1 : -1;
    if (at < 0 || (blocks_[b].successors.size() < 2 && last != IrOp::k_call_indirect)) continue;
    blocks_[b].meet = at;
    blocks_[at].is_meet = true;
  }
}

// Live intervals in text order, then a scan that reuses slots of one size.
void Builder::allocate() {
  const size_t count = values_.size();
  constexpr uint32_t kNever = UINT32_MAX;
  struct Interval {
    uint32_t begin = kNever, end = 0;
    void cover(uint32_t at) {
      begin = std::min(begin, at);
      end = std::max(end, at);
    }
  };
  std::vector<Interval> intervals(count);
  std::vector<int32_t> first_block(count, -1), dense(count, -1), list;
  std::vector<int32_t> crossing;
  auto allocatable = [&](int32_t v) { return values_[v].kind == Value::Kind::kRegister; };
  // Values that live within one block need no dataflow.
  std::vector<bool> defined(count, false);
  auto crosses = [&](int32_t v) {
    if (dense[v] >= 0) return;
    dense[v] = static_cast<int32_t>(crossing.size());
    crossing.push_back(v);
  };
  for (size_t b = 0; b < blocks_.size(); ++b)
    for (uint32_t i = blocks_[b].begin; i < blocks_[b].end; ++i) {
      uses_of(drafts_[i], &list);
      for (int32_t v : list)
        if (allocatable(v) && (first_block[v] != static_cast<int32_t>(b))) crosses(v);
      results_of(drafts_[i], &list);
      for (int32_t v : list) {
        if (!allocatable(v)) continue;
        if (first_block[v] < 0)
          first_block[v] = static_cast<int32_t>(b);
        else if (first_block[v] != static_cast<int32_t>(b))
          crosses(v);
      }
    }
  const size_t words = (crossing.size() + 63) / 64;
  std::vector<uint64_t> in(blocks_.size() * words), used(in.size()), killed(in.size());
  auto bit = [&](std::vector<uint64_t>& set, size_t b, int32_t id) -> uint64_t& {
    return set[b * words + static_cast<size_t>(id) / 64];
  };
  for (size_t b = 0; b < blocks_.size(); ++b)
    for (uint32_t i = blocks_[b].begin; i < blocks_[b].end; ++i) {
      uses_of(drafts_[i], &list);
      for (int32_t v : list) {
        const int32_t id = dense[v];
        if (id >= 0 && !(bit(killed, b, id) >> (id % 64) & 1))
          bit(used, b, id) |= uint64_t{1} << (id % 64);
      }
      results_of(drafts_[i], &list);
      for (int32_t v : list)
        if (int32_t id = dense[v]; id >= 0) bit(killed, b, id) |= uint64_t{1} << (id % 64);
    }
  std::vector<uint64_t> out(words);
  auto live_out = [&](size_t b) {
    std::fill(out.begin(), out.end(), 0);
    for (int32_t s : blocks_[b].successors)
      for (size_t w = 0; w < words; ++w) out[w] |= in[static_cast<size_t>(s) * words + w];
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t b = blocks_.size(); b-- > 0;) {
      live_out(b);
      for (size_t w = 0; w < words; ++w) {
        const uint64_t now = used[b * words + w] | (out[w] & ~killed[b * words + w]);
        if (now != in[b * words + w]) {
          in[b * words + w] = now;
          changed = true;
        }
      }
    }
  }
  for (size_t b = 0; b < blocks_.size(); ++b) {
    live_out(b);
    for (size_t w = 0; w < words; ++w) {
      for (uint64_t left = in [b * words + w]; left; left &= left - 1)
        intervals[crossing[w * 64 + static_cast<size_t>(__builtin_ctzll(left))]].cover(
            2 * blocks_[b].begin);
      for (uint64_t left = out[w]; left; left &= left - 1)
        intervals[crossing[w * 64 + static_cast<size_t>(__builtin_ctzll(left))]].cover(
            2 * blocks_[b].end);
    }
    for (uint32_t i = blocks_[b].begin; i < blocks_[b].end; ++i) {
      // Handlers of their own may write results before they have read everything.
      const bool careful = is_plain(drafts_[i].op) || !drafts_[i].extra_results.empty();
      uses_of(drafts_[i], &list);
      for (int32_t v : list) intervals[v].cover(2 * i + (careful ? 2 : 0));
      results_of(drafts_[i], &list);
      for (int32_t v : list) intervals[v].cover(2 * i + 1);
    }
  }
  const bool reuse = perf_allows("register_reuse");
  std::vector<int32_t> order;
  for (size_t v = 0; v < count; ++v)
    if (allocatable(static_cast<int32_t>(v)) && intervals[v].begin != kNever)
      order.push_back(static_cast<int32_t>(v));
  std::sort(order.begin(), order.end(),
            [&](int32_t x, int32_t y) { return intervals[x].begin < intervals[y].begin; });
  for (uint32_t size : {2u, 4u, 8u, 16u, 0u}) {
    using Busy = std::pair<uint32_t, int32_t>;  // end, offset
    std::priority_queue<Busy, std::vector<Busy>, std::greater<>> busy;
    std::vector<int32_t> idle;
    for (int32_t v : order) {
      if (values_[v].bytes != size) continue;
      while (reuse && !busy.empty() && busy.top().first < intervals[v].begin) {
        idle.push_back(busy.top().second);
        busy.pop();
      }
      int32_t offset;
      if (idle.empty()) {
        offset = static_cast<int32_t>(code_->frame_bytes);
        code_->frame_bytes += slot_bytes(size);
        code_->registers += size == 0 ? 0 : std::max(1u, size / 4);
      } else {
        offset = idle.back();
        idle.pop_back();
      }
      values_[v].offset = offset;
      busy.push({intervals[v].end, offset});
    }
  }
  code_->frame_bytes = (code_->frame_bytes + kFrameAlignment - 1) & ~(kFrameAlignment - 1);
}

void Builder::lay_out_constants() {
  uint32_t at = kFrameAlignment;  // the carry flag, "true"
  for (Value& value : values_) {
    if (value.kind != Value::Kind::kConstant && value.kind != Value::Kind::kGlobal) continue;
    value.offset = static_cast<int32_t>(at);
    at += slot_bytes(value.bytes);
    if (value.kind == Value::Kind::kGlobal)
      code_->references.push_back({value.offset, value.bytes, value.global, value.bits});
  }
  code_->image.resize(at);
  const uint32_t yes = kFullMask;
  std::memcpy(code_->image.data() + kTrueOffset, &yes, sizeof yes);
  for (const Value& value : values_) {
    if (value.kind != Value::Kind::kConstant) continue;
    uint64_t words[2] = {value.bits, value.high_bits};
    for (uint32_t lane = 0; lane < kWarpSize; ++lane)
      std::memcpy(code_->image.data() + value.offset + lane * value.bytes, words, value.bytes);
  }
  for (Value& value : values_) {
    if (value.kind != Value::Kind::kSpecial) continue;
    value.offset = static_cast<int32_t>(at);
    at += slot_bytes(value.bytes);
    code_->specials.push_back({value.what, value.special, value.offset, value.bytes});
  }
  code_->frame_bytes = at;
}

void Builder::emit_block(int32_t index, std::vector<uint32_t>* starts) {
  const BasicBlock& block = blocks_[index];
  const HandlerTable& handlers = active_handlers();
  auto handler = [&](IrOp op) { return handlers.handlers[static_cast<size_t>(op)]; };
  auto offset = [&](int32_t value, int32_t otherwise) {
    return value < 0 ? otherwise : values_[value].offset;
  };
  std::vector<Op>& ops = code_->ops;
  starts->push_back(static_cast<uint32_t>(ops.size()));
  if (block.is_meet) {
    Op join;
    join.handler = handler(IrOp::k_join);
    join.line = drafts_[block.begin].line;
    ops.push_back(join);
  }
  uint32_t instructions = 0;
  for (uint32_t i = block.begin; i < block.end; ++i) {
    const Draft& draft = drafts_[i];
    const bool counted = draft.op != IrOp::k_guard && draft.op != IrOp::k_guard_not &&
                         draft.op != IrOp::k_unguard && draft.op != IrOp::k_set_rounding;
    instructions += counted;
    if (draft.folded) continue;
    IrOp op = draft.op;
    Op made;
    made.imm = draft.imm;
    made.aux = draft.aux;
    made.line = draft.line;
    made.d = offset(draft.d, 0);
    made.a = offset(draft.a, kTrueOffset);
    made.b = offset(draft.b, 0);
    made.c = offset(draft.c, 0);
    made.e = offset(draft.e, 0);
    if (draft.window >= 0) {
      made.b = draft.window;
      made.c = draft.lowest;
      made.e = draft.highest;
    }
    if (draft.op == IrOp::k_guard || draft.op == IrOp::k_guard_not)
      made.imm = static_cast<uint64_t>(label_positions_[draft.label]) - i;  // ops to skip
    if (ends_block(draft)) {
      made.aux = instructions;
      if (op == IrOp::k_brx) made.imm = static_cast<uint64_t>(draft.table);
      if (draft.label >= 0 && op != IrOp::k_call_indirect) {
        const int32_t target = block_of_[label_positions_[draft.label]];
        made.imm = static_cast<uint64_t>(target);
        if (target <= index) {
          op = op == IrOp::k_bra      ? IrOp::k_bra_back
               : op == IrOp::k_bra_if ? IrOp::k_bra_if_back
                                      : IrOp::k_bra_unless_back;
          for (uint32_t w = blocks_[target].begin; w < block.end; ++w)
            made.sync |= drafts_[w].waits;
        }
      }
      made.e = block.meet;  // becomes the distance to the join
    }
    made.handler = handler(op);
    // Where the offsets of the extras begin; a pointer once the storage does not move any more.
    if (!draft.extra_results.empty() || !draft.extra_values.empty()) {
      made.extra = reinterpret_cast<const int32_t*>(code_->extras.size() + 1);
      for (int32_t v : draft.extra_results) code_->extras.push_back(values_[v].offset);
      for (int32_t v : draft.extra_values) code_->extras.push_back(values_[v].offset);
    }
    ops.push_back(made);
  }
  const IrOp last = drafts_[block.end - 1].op;
  if (!ends_block(drafts_[block.end - 1]) || last == IrOp::k_call_indirect) {
    Op count;
    count.handler = handler(IrOp::k_count);
    count.aux = last == IrOp::k_call_indirect ? 0 : instructions;
    ops.push_back(count);
  }
}

void Builder::emit_ops() {
  std::vector<uint32_t> starts;
  for (size_t b = 0; b < blocks_.size(); ++b) emit_block(static_cast<int32_t>(b), &starts);
  for (const std::vector<int32_t>& table : tables_) {
    auto& made = code_->jump_tables.emplace_back();
    for (int32_t label : table)
      made.push_back(code_->ops.data() + starts[block_of_[label_positions_[label]]]);
  }
  const HandlerTable& handlers = active_handlers();
  auto is = [&](const Op& op, IrOp kind) {
    return op.handler == handlers.handlers[static_cast<size_t>(kind)];
  };
  for (size_t i = 0; i < code_->ops.size(); ++i) {
    Op& op = code_->ops[i];
    if (op.extra) op.extra = code_->extras.data() + (reinterpret_cast<size_t>(op.extra) - 1);
    const bool conditional = is(op, IrOp::k_bra_if) || is(op, IrOp::k_bra_unless) ||
                             is(op, IrOp::k_bra_if_back) || is(op, IrOp::k_bra_unless_back);
    const bool branch = conditional || is(op, IrOp::k_bra) || is(op, IrOp::k_bra_back);
    if (conditional || is(op, IrOp::k_brx) || is(op, IrOp::k_call_indirect))
      op.e = op.e < 0 ? 0 : static_cast<int32_t>(starts[op.e]) - static_cast<int32_t>(i);
    if (branch) op.target = code_->ops.data() + starts[op.imm];
  }
}

std::unique_ptr<Code> Builder::build() {
  if (function_.uses_register_parameters) {
    line_ = function_.line;
    unusable("parameters in registers");
    return std::move(code_);
  }
  if (!function_.is_kernel) epilogue_ = new_label();
  for (const ptx::Statement& statement : function_.body) {
    lower_statement(statement);
    if (!code_->unusable.empty()) return std::move(code_);
  }
  // Falling off the end returns.
  if (function_.is_kernel) {
    emit(IrOp::k_exit);
  } else {
    place(epilogue_);
    emit(IrOp::k_ret);
  }
  if (!labels_are_placed()) return std::move(code_);
  find_blocks();
  find_meets();
  if (perf_allows("fusion")) fuse();
  lay_out_constants();
  allocate();
  emit_ops();
  return std::move(code_);
}

std::unique_ptr<Code> lower(const ptx::Module& module, int32_t function,
                            const std::vector<uint32_t>& shared_offsets) {
  return Builder(module, function, shared_offsets).build();
}

}  // namespace openmps::softgpu::ir
