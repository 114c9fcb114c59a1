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

// Live intervals in text order, then a scan that reuses slots of one size.
void allocate_registers(DraftFunction& function, const Flow& flow, bool reuse) {
  Code& code = *function.code;
  const size_t count = function.values.size();
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
  auto allocatable = [&](int32_t v) { return function.values[v].kind == Value::Kind::kRegister; };
  // Values that live within one block need no dataflow.
  std::vector<bool> defined(count, false);
  auto crosses = [&](int32_t v) {
    if (dense[v] >= 0) return;
    dense[v] = static_cast<int32_t>(crossing.size());
    crossing.push_back(v);
  };
  for (size_t b = 0; b < flow.blocks.size(); ++b) {
    for (uint32_t i = flow.blocks[b].begin; i < flow.blocks[b].end; ++i) {
      uses_of(function.drafts[i], &list);
      for (int32_t v : list) {
        if (allocatable(v) && (first_block[v] != static_cast<int32_t>(b))) crosses(v);
      }
      results_of(function.drafts[i], &list);
      for (int32_t v : list) {
        if (!allocatable(v)) continue;
        if (first_block[v] < 0) {
          first_block[v] = static_cast<int32_t>(b);
        } else if (first_block[v] != static_cast<int32_t>(b)) {
          crosses(v);
        }
      }
    }
  }
  const size_t words = (crossing.size() + 63) / 64;
  std::vector<uint64_t> in(flow.blocks.size() * words), used(in.size()), killed(in.size());
  auto bit = [&](std::vector<uint64_t>& set, size_t b, int32_t id) -> uint64_t& {
    return set[b * words + static_cast<size_t>(id) / 64];
  };
  for (size_t b = 0; b < flow.blocks.size(); ++b) {
    for (uint32_t i = flow.blocks[b].begin; i < flow.blocks[b].end; ++i) {
      uses_of(function.drafts[i], &list);
      for (int32_t v : list) {
        const int32_t id = dense[v];
        if (id >= 0 && !(bit(killed, b, id) >> (id % 64) & 1)) {
          bit(used, b, id) |= uint64_t{1} << (id % 64);
        }
      }
      results_of(function.drafts[i], &list);
      for (int32_t v : list) {
        if (int32_t id = dense[v]; id >= 0) bit(killed, b, id) |= uint64_t{1} << (id % 64);
      }
    }
  }
  std::vector<uint64_t> out(words);
  auto live_out = [&](size_t b) {
    std::fill(out.begin(), out.end(), 0);
    for (int32_t s : flow.blocks[b].successors) {
      for (size_t w = 0; w < words; ++w) out[w] |= in[static_cast<size_t>(s) * words + w];
    }
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t b = flow.blocks.size(); b-- > 0;) {
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
  for (size_t b = 0; b < flow.blocks.size(); ++b) {
    live_out(b);
    for (size_t w = 0; w < words; ++w) {
      for (uint64_t left = in [b * words + w]; left; left &= left - 1) {
        intervals[crossing[w * 64 + static_cast<size_t>(__builtin_ctzll(left))]].cover(
            2 * flow.blocks[b].begin);
      }
      for (uint64_t left = out[w]; left; left &= left - 1) {
        intervals[crossing[w * 64 + static_cast<size_t>(__builtin_ctzll(left))]].cover(
            2 * flow.blocks[b].end);
      }
    }
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
  std::vector<int32_t> order;
  for (size_t v = 0; v < count; ++v) {
    if (allocatable(static_cast<int32_t>(v)) && intervals[v].begin != kNever) {
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

}  // namespace

void allocate(DraftFunction& function, const Flow& flow, bool reuse) {
  lay_out_constants(function);
  allocate_registers(function, flow, reuse);
}

}  // namespace openmps::softgpu::ir
