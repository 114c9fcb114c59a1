// SPDX-License-Identifier: Apache-2.0
// Values and their phis; forms.cc finds how they lie over the lanes. See ssa.h.
#include "softgpu/tier/ssa.h"

#include <algorithm>
#include <cstring>

#include "softgpu/ir/op_info.h"

namespace openmps::softgpu::tier {

Ssa::Ssa(const Graph& kernel, std::vector<Region> parts, const LaunchShape& shape)
    : graph(kernel), regions(std::move(parts)), shape_(shape) {
  const size_t cells = graph.blocks.size() * graph.code.slots.size();
  in_.assign(cells, -1);
  out_.assign(cells, -1);
  region_of_.assign(graph.blocks.size(), -1);
  for (size_t r = 0; r < regions.size(); ++r) {
    region_of_[static_cast<size_t>(regions[r].branch)] = static_cast<int32_t>(r);
  }
  make_fixed();
  number_values();
  fill_phis();
  simplify_phis();
  find_unsettled();
  find_forms();
}

int32_t Ssa::add(Value::Kind kind, int32_t slot, int32_t place) {
  Value made;
  made.kind = kind;
  made.slot = slot;
  made.at = place;
  values.push_back(std::move(made));
  same_as_.push_back(-1);
  return static_cast<int32_t>(values.size() - 1);
}

int32_t Ssa::find(int32_t value) const {
  while (same_as_[static_cast<size_t>(value)] >= 0) value = same_as_[static_cast<size_t>(value)];
  return value;
}

void Ssa::make_fixed() {
  const auto slots = static_cast<int32_t>(graph.code.slots.size());
  fixed.assign(static_cast<size_t>(slots), -1);
  for (int32_t s = 0; s < slots; ++s) {
    if (!graph.is_fixed(s) || graph.is_resident(s)) continue;
    fixed[static_cast<size_t>(s)] = add(Value::Kind::kFixed, s, -1);
  }
}

// Every live slot of every block begins with a phi.
void Ssa::number_values() {
  const auto slots = static_cast<int32_t>(graph.code.slots.size());
  phis.resize(graph.blocks.size());
  uses.resize(graph.code.ops.size());
  made.resize(graph.code.ops.size());
  for (int32_t b : graph.order) {
    const GraphBlock& block = graph.blocks[static_cast<size_t>(b)];
    std::vector<int32_t> now(static_cast<size_t>(slots), -1);
    for (int32_t s = 0; s < slots; ++s) {
      if (fixed[static_cast<size_t>(s)] >= 0) {
        now[static_cast<size_t>(s)] = fixed[static_cast<size_t>(s)];
      } else if (graph.live_in[static_cast<size_t>(b)][static_cast<size_t>(s)] &&
                 !graph.is_resident(s)) {
        const int32_t phi = add(Value::Kind::kPhi, s, b);
        phis[static_cast<size_t>(b)].push_back(phi);
        now[static_cast<size_t>(s)] = phi;
      }
    }
    std::copy(now.begin(), now.end(), in_.begin() + static_cast<ptrdiff_t>(at(b, 0)));
    for (uint32_t i = block.begin; i < block.end; ++i) {
      const OpFacts& facts = graph.facts[i];
      for (int32_t s : facts.reads) uses[i].push_back(now[static_cast<size_t>(s)]);
      for (int32_t s : facts.writes) {
        const bool kept = graph.is_resident(s) || graph.is_fixed(s);
        const int32_t v = kept ? -1 : add(Value::Kind::kOp, s, static_cast<int32_t>(i));
        made[i].push_back(v);
        if (!kept) now[static_cast<size_t>(s)] = v;
      }
    }
    std::copy(now.begin(), now.end(), out_.begin() + static_cast<ptrdiff_t>(at(b, 0)));
  }
  for (size_t r = 0; r < regions.size(); ++r) {
    Region& region = regions[r];
    const auto& live = graph.live_in[static_cast<size_t>(region.meet)];
    region.outputs.clear();
    for (int32_t s : region.writes) {
      region.outputs.push_back(live[static_cast<size_t>(s)] && !graph.is_resident(s)
                                   ? add(Value::Kind::kRegion, s, static_cast<int32_t>(r))
                                   : -1);
    }
  }
}

void Ssa::fill_phis() {
  for (int32_t b : graph.order) {
    for (int32_t phi : phis[static_cast<size_t>(b)]) {
      const int32_t slot = values[static_cast<size_t>(phi)].slot;
      std::vector<int32_t> inputs;
      for (int32_t p : graph.blocks[static_cast<size_t>(b)].predecessors) {
        inputs.push_back(out(p, slot));
      }
      for (const Region& region : regions) {
        if (region.meet != b) continue;
        const auto written = std::find(region.writes.begin(), region.writes.end(), slot);
        inputs.push_back(
            written == region.writes.end()
                ? out(region.branch, slot)
                : region.outputs[static_cast<size_t>(written - region.writes.begin())]);
      }
      if (b == 0) inputs.push_back(add(Value::Kind::kEntry, slot, -1));
      values[static_cast<size_t>(phi)].inputs = std::move(inputs);
    }
  }
}

// A phi whose inputs are itself and one other value is that value.
void Ssa::simplify_phis() {
  for (bool changed = true; changed;) {
    changed = false;
    for (int32_t b : graph.order) {
      auto& list = phis[static_cast<size_t>(b)];
      for (size_t k = 0; k < list.size();) {
        const int32_t phi = list[k];
        int32_t only = -1;
        bool several = false;
        for (int32_t input : values[static_cast<size_t>(phi)].inputs) {
          const int32_t v = find(input);
          if (v == phi || v == only) continue;
          several |= only >= 0;
          only = v;
        }
        if (several || only < 0) {
          ++k;
          continue;
        }
        same_as_[static_cast<size_t>(phi)] = only;
        list.erase(list.begin() + static_cast<ptrdiff_t>(k));
        changed = true;
      }
    }
  }
}

bool Ssa::is_neutral(int32_t v) const {
  const Value& from = value(v);
  const int32_t offset = graph.code.slots[static_cast<size_t>(from.slot)].offset;
  if (from.kind != Value::Kind::kFixed || offset < kFirstPredicateOffset ||
      offset >= static_cast<int32_t>(graph.code.image.size())) {
    return false;
  }
  for (const GlobalReference& reference : graph.code.references) {
    if (reference.offset == offset) return false;
  }
  float number = 0;
  std::memcpy(&number, graph.code.image.data() + offset, sizeof number);
  return number == number;
}

// f32 results that are NaNs have one pattern in the interpreter. What computes on with f32 does not
// see another one, so compiled code mends them where something else may (Emitter::settled()). What
// may be any bits, such as what was loaded, must not be mended, so values are merged either all
// unsettled, but for constants, or all mended.
void Ssa::find_unsettled() {
  const auto may_be = [this](const Value& v) {
    const auto unsettled = [this](int32_t u) {
      return u >= 0 && (value(u).unsettled || is_neutral(u));
    };
    if (v.kind == Value::Kind::kPhi) {
      return std::all_of(v.inputs.begin(), v.inputs.end(), unsettled);
    }
    const auto i = static_cast<size_t>(v.at);
    const OpFacts& facts = graph.facts[i];
    if (facts.role != Role::kCompute) return false;
    const IrOp op = graph.op(static_cast<uint32_t>(v.at)).code;
    if (facts.guard >= 0) return false;
    if (op == IrOp::k_mov_b32) return unsettled(uses[i][0]);
    if (op == IrOp::k_selp_b32) return unsettled(uses[i][0]) && unsettled(uses[i][1]);
    return ir::op_info(op).d == ir::Lane::f32;
  };
  for (size_t k = 0; k < values.size(); ++k) {
    Value& v = values[k];
    v.unsettled = same_as_[k] < 0 && graph.bytes_of(v.slot) == 4 &&
                  (v.kind == Value::Kind::kPhi || v.kind == Value::Kind::kOp);
  }
  for (bool changed = true; changed;) {
    changed = false;
    for (Value& v : values) {
      if (!v.unsettled || may_be(v)) continue;
      v.unsettled = false;
      changed = true;
    }
  }
}

namespace {

// A region is compiled for each branch that may part lanes, so code that is deep in branches is
// compiled several times; together at most as much again as the kernel, at least this many ops.
constexpr uint32_t kLeastRegionOps = 2000;
constexpr uint32_t kRegionOpsLimit = 1000;  // of one

bool may_be_masked(const Graph& graph, uint32_t i) {
  const OpFacts& facts = graph.facts[i];
  switch (facts.role) {
    case Role::kSuspend:
    case Role::kBarrier:
    case Role::kLeave: return false;
    case Role::kBranch:
    case Role::kJump: return graph.op(i).sync == 0;
    default: return !facts.together;
  }
}

}  // namespace

bool find_region(const Graph& graph, int32_t b, Region* region) {
  const GraphBlock& from = graph.blocks[static_cast<size_t>(b)];
  region->branch = b;
  region->meet = from.meet;
  if (from.meet < 0 || graph.op(graph.last_of(b)).sync != 0) return false;
  region->contains.assign(graph.blocks.size(), 0);
  std::vector<int32_t> todo(from.successors);
  uint32_t ops = 0;
  while (!todo.empty()) {
    const int32_t at = todo.back();
    todo.pop_back();
    if (at == region->meet || region->contains[static_cast<size_t>(at)]) continue;
    region->contains[static_cast<size_t>(at)] = 1;
    const GraphBlock& block = graph.blocks[static_cast<size_t>(at)];
    ops += block.end - block.begin;
    if (ops > kRegionOpsLimit) return false;
    for (uint32_t i = block.begin; i < block.end; ++i) {
      if (!may_be_masked(graph, i)) return false;
      const OpFacts& facts = graph.facts[i];
      region->writes.insert(region->writes.end(), facts.writes.begin(), facts.writes.end());
    }
    todo.insert(todo.end(), block.successors.begin(), block.successors.end());
  }
  for (size_t k = 0; k < graph.blocks.size(); ++k) {
    if (region->contains[k]) region->blocks.push_back(static_cast<int32_t>(k));
  }
  std::sort(region->writes.begin(), region->writes.end());
  region->writes.erase(std::unique(region->writes.begin(), region->writes.end()),
                       region->writes.end());
  return true;
}

Ssa analyse(const Graph& graph, const LaunchShape& shape) {
  std::vector<Region> regions;
  std::vector<uint8_t> tried(graph.blocks.size(), 0);
  uint32_t ops = 0;
  const uint32_t most = std::max(kLeastRegionOps, static_cast<uint32_t>(graph.code.ops.size()));
  for (;;) {
    Ssa ssa(graph, regions, shape);
    bool grown = false;
    for (int32_t b : graph.order) {
      const uint32_t last = graph.last_of(b);
      if (graph.facts[last].role != Role::kBranch || tried[static_cast<size_t>(b)] ||
          ssa.is_uniform(ssa.uses[last][0])) {
        continue;
      }
      tried[static_cast<size_t>(b)] = 1;
      Region region;
      if (!find_region(graph, b, &region)) continue;
      uint32_t size = 0;
      for (int32_t k : region.blocks) {
        size +=
            graph.blocks[static_cast<size_t>(k)].end - graph.blocks[static_cast<size_t>(k)].begin;
      }
      if (ops + size > most) continue;
      ops += size;
      regions.push_back(std::move(region));
      grown = true;
    }
    if (!grown) return ssa;
  }
}

}  // namespace openmps::softgpu::tier
