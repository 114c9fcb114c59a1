// SPDX-License-Identifier: Apache-2.0
// See allocate.h.
#include "softgpu/ir/allocate.h"

#include <algorithm>
#include <cstring>
#include <queue>

#include "softgpu/ir/frame.h"

namespace openmps::softgpu::ir {
namespace {

constexpr uint32_t kFrameAlignment = 64;  // a cache line and the widest vector register

uint32_t slot_bytes(uint32_t value_bytes) { return value_bytes == 0 ? 4 : value_bytes * kWarpSize; }

void lay_out_constants(DraftFunction& function) {
  Code& code = *function.code;
  uint32_t at = kFrameAlignment;  // the carry flag, "true"
  for (Value& value : function.values) {
    if (value.kind != Value::Kind::kConstant && value.kind != Value::Kind::kGlobal) continue;
    value.offset = static_cast<int32_t>(at);
    at += slot_bytes(value.bytes);
    if (value.kind == Value::Kind::kGlobal) {
      code.references.push_back({value.offset, value.bytes, value.global, value.bits});
    }
  }
  code.image.resize(at);
  const uint32_t yes = kFullMask;
  std::memcpy(code.image.data() + kTrueOffset, &yes, sizeof yes);
  for (const Value& value : function.values) {
    if (value.kind != Value::Kind::kConstant) continue;
    uint64_t words[2] = {value.bits, value.high_bits};
    for (uint32_t lane = 0; lane < kWarpSize; ++lane) {
      std::memcpy(code.image.data() + value.offset + lane * value.bytes, words, value.bytes);
    }
  }
  for (Value& value : function.values) {
    if (value.kind != Value::Kind::kSpecial) continue;
    value.offset = static_cast<int32_t>(at);
    at += slot_bytes(value.bytes);
    code.specials.push_back({value.what, value.special, value.offset, value.bytes});
  }
  code.frame_bytes = at;
}

bool is_register(const DraftFunction& function, int32_t value) {
  return function.values[value].kind == Value::Kind::kRegister;
}

// Which registers are live where basic blocks begin and end, by backward dataflow. Registers that
// live within one block, as most do, are in no set.
class Liveness {
 public:
  Liveness(const DraftFunction& function, const Flow& flow) : function_(function), flow_(flow) {
    find_crossing();
    words_ = (crossing_.size() + 63) / 64;
    for (Sets* sets : {&in_, &used_, &killed_}) sets->resize(flow.blocks.size() * words_);
    out_.resize(words_);
    for (size_t b = 0; b < flow.blocks.size(); ++b) scan(b);
    solve();
  }

  // visit(value) for each register that is live at the begin of block b, or at the end.
  template <typename Visitor>
  void at_begin(size_t b, Visitor&& visit) const {
    for_each(in_.data() + b * words_, visit);
  }
  template <typename Visitor>
  void at_end(size_t b, Visitor&& visit) {
    join_successors(b);
    for_each(out_.data(), visit);
  }

 private:
  using Sets = std::vector<uint64_t>;  // a bit for each crossing register, block by block

  // Registers that several blocks mention.
  void find_crossing() {
    std::vector<int32_t> first_block(function_.values.size(), -1), list;
    index_.assign(function_.values.size(), -1);
    const auto crosses = [&](int32_t v) {
      if (index_[v] >= 0) return;
      index_[v] = static_cast<int32_t>(crossing_.size());
      crossing_.push_back(v);
    };
    for (size_t b = 0; b < flow_.blocks.size(); ++b) {
      const auto block = static_cast<int32_t>(b);
      for (uint32_t i = flow_.blocks[b].begin; i < flow_.blocks[b].end; ++i) {
        uses_of(function_.drafts[i], &list);
        for (int32_t v : list) {
          if (is_register(function_, v) && first_block[v] != block) crosses(v);
        }
        results_of(function_.drafts[i], &list);
        for (int32_t v : list) {
          if (!is_register(function_, v)) continue;
          if (first_block[v] < 0) first_block[v] = block;
          if (first_block[v] != block) crosses(v);
        }
      }
    }
  }

  // What block b reads before it writes it, and what it writes.
  void scan(size_t b) {
    std::vector<int32_t> list;
    const auto word = [&](Sets& sets, int32_t id) -> uint64_t& {
      return sets[b * words_ + static_cast<size_t>(id) / 64];
    };
    for (uint32_t i = flow_.blocks[b].begin; i < flow_.blocks[b].end; ++i) {
      uses_of(function_.drafts[i], &list);
      for (int32_t v : list) {
        const int32_t id = index_[v];
        if (id >= 0 && !(word(killed_, id) >> (id % 64) & 1)) {
          word(used_, id) |= uint64_t{1} << (id % 64);
        }
      }
      results_of(function_.drafts[i], &list);
      for (int32_t v : list) {
        if (int32_t id = index_[v]; id >= 0) word(killed_, id) |= uint64_t{1} << (id % 64);
      }
    }
  }

  void solve() {
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t b = flow_.blocks.size(); b-- > 0;) {
        join_successors(b);
        for (size_t w = 0; w < words_; ++w) {
          const size_t at = b * words_ + w;
          const uint64_t now = used_[at] | (out_[w] & ~killed_[at]);
          changed |= now != in_[at];
          in_[at] = now;
        }
      }
    }
  }

  void join_successors(size_t b) {
    std::fill(out_.begin(), out_.end(), 0);
    for (int32_t s : flow_.blocks[b].successors) {
      for (size_t w = 0; w < words_; ++w) out_[w] |= in_[static_cast<size_t>(s) * words_ + w];
    }
  }

  template <typename Visitor>
  void for_each(const uint64_t* set, Visitor&& visit) const {
    for (size_t w = 0; w < words_; ++w) {
      for (uint64_t left = set[w]; left != 0; left &= left - 1) {
        visit(crossing_[w * 64 + static_cast<size_t>(__builtin_ctzll(left))]);
      }
    }
  }

  const DraftFunction& function_;
  const Flow& flow_;
  std::vector<int32_t> crossing_;
  std::vector<int32_t> index_;  // by value, in crossing_; -1: not there
  size_t words_ = 0;            // of a set
  Sets in_, used_, killed_;
  Sets out_;  // of one block
};

// From the first to the last place, in text order, at which a register is live.
struct Interval {
  static constexpr uint32_t kNever = UINT32_MAX;
  uint32_t begin = kNever, end = 0;
  void cover(uint32_t at) {
    begin = std::min(begin, at);
    end = std::max(end, at);
  }
};

std::vector<Interval> find_intervals(const DraftFunction& function, const Flow& flow) {
  Liveness live(function, flow);
  std::vector<Interval> intervals(function.values.size());
  std::vector<int32_t> list;
  for (size_t b = 0; b < flow.blocks.size(); ++b) {
    live.at_begin(b, [&](int32_t v) { intervals[v].cover(2 * flow.blocks[b].begin); });
    live.at_end(b, [&](int32_t v) { intervals[v].cover(2 * flow.blocks[b].end); });
    for (uint32_t i = flow.blocks[b].begin; i < flow.blocks[b].end; ++i) {
      // Handlers of their own may write results before they have read everything.
      const bool careful =
          is_plain(function.drafts[i].op) || !function.drafts[i].extra_results.empty();
      uses_of(function.drafts[i], &list);
      for (int32_t v : list) intervals[v].cover(2 * i + (careful ? 2 : 0));
      results_of(function.drafts[i], &list);
      for (int32_t v : list) intervals[v].cover(2 * i + 1);
    }
  }
  return intervals;
}

// A scan over the intervals that reuses slots of one size.
void allocate_registers(DraftFunction& function, const Flow& flow, bool reuse) {
  Code& code = *function.code;
  const std::vector<Interval> intervals = find_intervals(function, flow);
  std::vector<int32_t> order;
  for (size_t v = 0; v < intervals.size(); ++v) {
    if (is_register(function, static_cast<int32_t>(v)) && intervals[v].begin != Interval::kNever) {
      order.push_back(static_cast<int32_t>(v));
    }
  }
  std::sort(order.begin(), order.end(),
            [&](int32_t x, int32_t y) { return intervals[x].begin < intervals[y].begin; });
  for (uint32_t size : {2u, 4u, 8u, 16u, 0u}) {
    using Busy = std::pair<uint32_t, int32_t>;  // end, offset
    std::priority_queue<Busy, std::vector<Busy>, std::greater<>> busy;
    std::vector<int32_t> idle;
    for (int32_t v : order) {
      if (function.values[v].bytes != size) continue;
      while (reuse && !busy.empty() && busy.top().first < intervals[v].begin) {
        idle.push_back(busy.top().second);
        busy.pop();
      }
      int32_t offset;
      if (idle.empty()) {
        offset = static_cast<int32_t>(code.frame_bytes);
        code.frame_bytes += slot_bytes(size);
        code.registers += size == 0 ? 0 : std::max(1u, size / 4);
      } else {
        offset = idle.back();
        idle.pop_back();
      }
      function.values[v].offset = offset;
      busy.push({intervals[v].end, offset});
    }
  }
  code.frame_bytes = (code.frame_bytes + kFrameAlignment - 1) & ~(kFrameAlignment - 1);
}

void list_slots(DraftFunction& function) {
  std::vector<FrameSlot>& slots = function.code->slots;
  slots = {{kCarryOffset, 0}, {kTrueOffset, 0}};
  for (const Value& value : function.values) {
    if (value.offset >= 0) slots.push_back({value.offset, value.bytes});
  }
  const auto order = [](const FrameSlot& x, const FrameSlot& y) { return x.offset < y.offset; };
  const auto same = [](const FrameSlot& x, const FrameSlot& y) { return x.offset == y.offset; };
  std::sort(slots.begin(), slots.end(), order);
  slots.erase(std::unique(slots.begin(), slots.end(), same), slots.end());
}

}  // namespace

void allocate(DraftFunction& function, const Flow& flow, bool reuse) {
  lay_out_constants(function);
  allocate_registers(function, flow, reuse);
  list_slots(function);
}

}  // namespace openmps::softgpu::ir
