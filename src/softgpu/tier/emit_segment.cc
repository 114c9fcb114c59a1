// SPDX-License-Identifier: Apache-2.0
// Runs of ops of one block whose memory accesses are checked together, before the first of them:
// code without branches follows if all are good, else each is checked by itself. What the addresses
// are computed from comes first; accesses to one base are checked as one. See emitter.h.
#include <algorithm>
#include <map>

#include "softgpu/tier/emitter.h"

namespace openmps::softgpu::tier {
namespace {

// A run is emitted up to three times.
constexpr uint32_t kMostOps = 256;

}  // namespace

struct Emitter::Segment {
  uint32_t first = 0, last = 0;  // ops, `last` not among them
  std::vector<uint32_t> early;   // do not depend on what is loaded
  std::vector<uint32_t> late;
  std::vector<uint32_t> accesses;  // of those, loads and stores
  bool has_windows = false;        // some may be of one vector register or of two
};

bool Emitter::find_segment(int32_t b, uint32_t first, Segment* segment) const {
  const uint32_t end = ssa_.graph.blocks[static_cast<size_t>(b)].end;
  std::set<int32_t> late;  // values
  segment->first = first;
  uint32_t i = first;
  for (; i < end && i - first < kMostOps; ++i) {
    const OpFacts& facts = ssa_.graph.facts[i];
    const IrOp code = ssa_.graph.op(i).code;
    if (code == IrOp::k_guard || code == IrOp::k_guard_not) break;
    if (facts.role == Role::kNothing) continue;
    if (facts.guard >= 0) break;
    const auto is_late = [&](int32_t use) { return late.contains(ssa_.find(use)); };
    if (facts.role == Role::kLoad || facts.role == Role::kStore) {
      Operand address;
      const int32_t use = ssa_.uses[i][0];
      address.form = ssa_.form(use);
      address.bytes = ssa_.graph.bytes_of(ssa_.value(use).slot);
      Access access;
      Way way = Way::kHandler;
      if (is_late(use) || !describe(i, &address, nullptr, &access, &way)) break;
      if (way == Way::kShape && late.contains(address.form.id)) break;
      segment->has_windows |= way == Way::kShape && access.form.count == 1 && !access.form.is_store;
      segment->accesses.push_back(i);
    } else if (facts.role != Role::kCompute && facts.role != Role::kParam) {
      break;
    }
    const bool depends = facts.role != Role::kCompute && facts.role != Role::kParam;
    if (depends || std::any_of(ssa_.uses[i].begin(), ssa_.uses[i].end(), is_late)) {
      segment->late.push_back(i);
      for (int32_t v : ssa_.made[i]) {
        if (v >= 0) late.insert(ssa_.find(v));
      }
    } else {
      segment->early.push_back(i);
    }
  }
  segment->last = i;
  return segment->accesses.size() > 1;
}

void Emitter::emit_plain(uint32_t i) {
  const OpFacts& facts = ssa_.graph.facts[i];
  std::vector<Operand> operands;
  for (int32_t use : ssa_.uses[i]) operands.push_back(use < 0 ? Operand{} : operand_of(use));
  define(i, facts.guard < 0 ? run_op(i, operands, nullptr) : run_guarded(i, operands, nullptr));
}

// i1: all may go their ways.
Val Emitter::check_segment(const Segment& segment, bool two_windows) {
  struct Group {
    Access access;
    Operand address;
    Way way;
    uint64_t least, most;  // offsets
  };
  std::vector<Group> groups;
  for (uint32_t i : segment.accesses) {
    const int32_t value = ssa_.find(ssa_.uses[i][0]);
    Operand address = operand_of(value);
    Access access;
    Way way = Way::kHandler;
    describe(i, &address, nullptr, &access, &way);
    access.two_windows = two_windows || access.form.count > 1;
    const auto same = [&](const Group& group) {
      return ssa_.find(ssa_.uses[group.access.op][0]) == value &&
             group.access.form.space == access.form.space &&
             group.access.form.is_store == access.form.is_store &&
             group.access.form.bytes() == access.form.bytes() &&
             group.access.form.count == access.form.count &&
             (access.offset - group.access.offset) % access.form.bytes() == 0;
    };
    const auto found = std::find_if(groups.begin(), groups.end(), same);
    const auto distance = [](uint64_t x, uint64_t y) { return static_cast<int64_t>(x - y); };
    if (found == groups.end()) {
      groups.push_back({access, address, way, access.offset, access.offset});
    } else if (distance(access.offset, found->least) < 0) {
      found->least = access.offset;
    } else if (distance(access.offset, found->most) > 0) {
      found->most = access.offset;
    }
  }
  Val good = nullptr;
  for (Group& group : groups) {
    group.access.address = &group.address;
    group.access.offset = group.least;
    group.access.more = group.most - group.least;
    const Val one = check(group.access, group.way);
    good = good == nullptr ? one : lanes_.and_(good, one);
  }
  return good;
}

void Emitter::emit_unchecked(const Segment& segment, bool two_windows) {
  for (uint32_t i : segment.late) {
    const Role role = ssa_.graph.facts[i].role;
    if (role != Role::kLoad && role != Role::kStore) {
      emit_plain(i);
      continue;
    }
    std::vector<Operand> operands;
    for (int32_t use : ssa_.uses[i]) operands.push_back(operand_of(use));
    Access access;
    Way way = Way::kHandler;
    describe(i, operands.data(), nullptr, &access, &way);
    access.two_windows = two_windows || access.form.count > 1;
    std::vector<Operand> results;
    if (role == Role::kStore) {
      store(access, way, {operands.begin() + 1, operands.end()}, nullptr);
    } else {
      for (Val value : load(access, way)) {
        results.push_back(way == Way::kScalar ? uniform(value, access.form.register_bytes)
                                              : general(value, access.form.register_bytes));
      }
    }
    define(i, results);
  }
}

// The op behind the run that begins at `first`; 0: there is none.
uint32_t Emitter::emit_segment(int32_t b, uint32_t first) {
  Segment segment;
  if (!find_segment(b, first, &segment)) return 0;
  const std::vector<int32_t> before = now_;
  for (uint32_t i : segment.early) emit_plain(i);
  const BlockRef done = block("together");
  const auto version = [&](bool two_windows) {
    const BlockRef good = block("good"), other = block("other");
    llvm_.BuildCondBr(lanes_.builder, check_segment(segment, two_windows), good, other);
    start(good);
    emit_unchecked(segment, two_windows);
    llvm_.BuildBr(lanes_.builder, done);
    start(other);
  };
  version(false);
  if (segment.has_windows) version(true);
  // One by one; the values in the slots are those by the order of the text.
  now_ = before;
  for (uint32_t i = first; i < segment.last; ++i) {
    if (std::find(segment.late.begin(), segment.late.end(), i) != segment.late.end()) {
      emit_plain(i);
      continue;
    }
    for (size_t k = 0; k < ssa_.made[i].size(); ++k) {
      if (ssa_.made[i][k] < 0) continue;
      now_[static_cast<size_t>(ssa_.graph.facts[i].writes[k])] = ssa_.made[i][k];
    }
  }
  llvm_.BuildBr(lanes_.builder, done);
  start(done);
  return segment.last;
}

}  // namespace openmps::softgpu::tier
