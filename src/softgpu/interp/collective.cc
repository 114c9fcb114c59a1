// SPDX-License-Identifier: Apache-2.0
// What the lanes of a warp do together, but for shfl (shuffle.cc): vote, match, redux, elect,
// bar.warp.sync. A *.sync waits until the lanes that its mask names have come. Run by the
// interpreter, on its thread.
#include <algorithm>
#include <cstring>

#include "softgpu/interp/block.h"
#include "softgpu/interp/fragments.h"
#include "softgpu/ir/memory_codes.h"

namespace openmps::softgpu {
namespace {

#define HANDLER(name)                                                            \
  const Op* h_##name([[maybe_unused]] const Op* op, [[maybe_unused]] Warp* warp, \
                     [[maybe_unused]] std::byte* regs, [[maybe_unused]] uint32_t mask)

uint32_t& word_at(std::byte* regs, int32_t offset) {
  return *reinterpret_cast<uint32_t*>(regs + offset);
}
uint32_t* lanes_at(std::byte* regs, int32_t offset) {
  return reinterpret_cast<uint32_t*>(regs + offset);
}
void assign(uint32_t* d, uint32_t value, uint32_t mask) { *d = (*d & ~mask) | (value & mask); }
void splat(uint32_t* d, uint32_t value, uint32_t mask) {
  for (uint32_t i = 0; i < kWarpSize; ++i) {
    if (mask >> i & 1) d[i] = value;
  }
}

bool has_ancestor(const Record* record, const Record* ancestor) {
  while (record && record != ancestor) record = record->parent;
  return record == ancestor;
}

// Make the waiting fragment `i` part of the running one, which is at the same op.
void absorb(WarpState* warp, size_t i) {
  const Fragment fragment = warp->fragments[i];
  warp->fragments.erase(warp->fragments.begin() + static_cast<ptrdiff_t>(i));
  Record* common = warp->record;
  while (common && !has_ancestor(fragment.record, common)) common = common->parent;
  leave_record(warp, fragment.record, common, fragment.mask);
  leave_record(warp, warp->record, common, warp->active);
  warp->record = common;
  warp->active |= fragment.mask;
}

// The lanes among `lanes` that name the same living lanes as the first of them.
uint32_t same_members(const uint32_t* masks, uint32_t alive, uint32_t lanes) {
  const uint32_t wanted = masks[__builtin_ctz(lanes)] & alive;
  uint32_t same = 0;
  for (uint32_t left = lanes; left; left &= left - 1) {
    if ((masks[__builtin_ctz(left)] & alive) == wanted) same |= left & -left;
  }
  return same;
}

// A fragment that waits where the running one has come to.
bool waits_here(const WarpState* warp, const Op* op, const Fragment& fragment) {
  return fragment.state == Fragment::State::kSync && fragment.pc == op &&
         fragment.frame == warp->frame;
}

void put_aside(WarpState* warp, const Op* op, uint32_t lanes) {
  if (lanes == 0) return;
  Fragment fragment;
  fragment.frame = warp->frame;
  fragment.record = warp->record;
  fragment.pc = op;
  fragment.mask = lanes;
  fragment.state = Fragment::State::kSync;
  warp->fragments.push_back(fragment);
  warp->active &= ~lanes;
  update_mask(warp);
}

// Make the running fragment all whole groups, of lanes here and waiting at the same op, that one of
// its lanes belongs to; its other lanes are put aside. False: there is none.
__attribute__((noinline)) bool gather_groups(WarpState* warp, const Op* op) {
  if (warp->force_sync) {
    warp->force_sync = false;
    return true;
  }
  const uint32_t* masks = lanes_at(warp->frame->regs, op->e);
  uint32_t here = warp->active;
  for (const Fragment& fragment : warp->fragments) {
    if (waits_here(warp, op, fragment)) here |= fragment.mask;
  }
  uint32_t whole = 0;
  for (uint32_t left = here; left;) {
    const uint32_t group = same_members(masks, warp->alive, left);
    const uint32_t wanted = masks[__builtin_ctz(group)] & warp->alive;
    if ((wanted & ~group) == 0 && (group & warp->active)) whole |= group;
    left &= ~group;
  }
  for (size_t i = 0; i < warp->fragments.size();) {
    if (waits_here(warp, op, warp->fragments[i]) && (warp->fragments[i].mask & whole)) {
      absorb(warp, i);
      i = 0;
    } else {
      ++i;
    }
  }
  update_mask(warp);
  put_aside(warp, op, warp->active & ~whole);
  return warp->active != 0;
}

bool masks_differ(const uint32_t* masks, uint32_t lanes) {
  const uint32_t first = masks[__builtin_ctz(lanes)];
  uint32_t different = 0;
  for (uint32_t i = 0; i < kWarpSize; ++i) different |= (masks[i] ^ first) & (0 - (lanes >> i & 1));
  return different != 0;
}

inline Gathered gather(Warp* warp, const Op* op, std::byte* regs, const Op** next) {
  if (!(op->aux & kHasMembers)) return Gathered::kOneGroup;
  const uint32_t* masks = lanes_at(regs, op->e);
  const uint32_t members = masks[__builtin_ctz(warp->active)];
  if ((members & warp->alive & ~warp->active) == 0 &&
      ((op->aux & kSameMembers) || !masks_differ(masks, warp->active))) {
    return Gathered::kOneGroup;
  }
  return gather_lanes(warp, op, next);
}

// Runs `body(lanes, writable)` for each group of lanes that are here; see Handler for what is
// writable. Gives the next op.
template <class F>
inline const Op* for_groups(const Op* op, Warp* warp, std::byte* regs, F body) {
  const Op* next = nullptr;
  const Gathered gathered = gather(warp, op, regs, &next);
  if (gathered == Gathered::kWait) return next;
  if (gathered == Gathered::kOneGroup) {
    body(warp->active, warp->mask);
    return op + 1;
  }
  for (uint32_t left = warp->active; left;) {
    const uint32_t group = first_group(warp, op, left);
    body(group, group);
    left &= ~group;
  }
  return op + 1;
}

// a: predicate.
HANDLER(vote_all) {
  return for_groups(op, warp, regs, [&](uint32_t lanes, uint32_t writable) {
    const bool all = (~word_at(regs, op->a) & lanes) == 0;
    assign(&word_at(regs, op->d), all ? kFullMask : 0, writable);
  });
}
HANDLER(vote_any) {
  return for_groups(op, warp, regs, [&](uint32_t lanes, uint32_t writable) {
    const bool any = (word_at(regs, op->a) & lanes) != 0;
    assign(&word_at(regs, op->d), any ? kFullMask : 0, writable);
  });
}
HANDLER(vote_uni) {
  return for_groups(op, warp, regs, [&](uint32_t lanes, uint32_t writable) {
    const uint32_t yes = word_at(regs, op->a) & lanes;
    assign(&word_at(regs, op->d), yes == 0 || yes == lanes ? kFullMask : 0, writable);
  });
}
HANDLER(vote_ballot) {
  const uint32_t votes = word_at(regs, op->a);
  return for_groups(op, warp, regs, [&](uint32_t lanes, uint32_t writable) {
    splat(lanes_at(regs, op->d), votes & lanes, writable);
  });
}

template <class T>
const Op* match_any(const Op* op, Warp* warp, std::byte* regs) {
  T values[kWarpSize];
  std::memcpy(values, regs + op->a, sizeof values);
  return for_groups(op, warp, regs, [&](uint32_t lanes, uint32_t) {
    for (uint32_t left = lanes; left;) {
      const T value = values[__builtin_ctz(left)];
      uint32_t same = 0;
      for (uint32_t i = 0; i < kWarpSize; ++i) {
        if ((left >> i & 1) && values[i] == value) same |= 1u << i;
      }
      splat(lanes_at(regs, op->d), same, same);
      left &= ~same;
    }
  });
}
template <class T>
const Op* match_all(const Op* op, Warp* warp, std::byte* regs) {
  T values[kWarpSize];
  std::memcpy(values, regs + op->a, sizeof values);
  return for_groups(op, warp, regs, [&](uint32_t lanes, uint32_t writable) {
    const T first = values[__builtin_ctz(lanes)];
    bool all = true;
    for (uint32_t left = lanes; left; left &= left - 1) all &= values[__builtin_ctz(left)] == first;
    splat(lanes_at(regs, op->d), all ? lanes : 0, writable);
    if (op->aux & kHasPredicate) {
      assign(&word_at(regs, op->extra[0]), all ? kFullMask : 0, writable);
    }
  });
}
HANDLER(match_any_b32) { return match_any<uint32_t>(op, warp, regs); }
HANDLER(match_any_b64) { return match_any<uint64_t>(op, warp, regs); }
HANDLER(match_all_b32) { return match_all<uint32_t>(op, warp, regs); }
HANDLER(match_all_b64) { return match_all<uint64_t>(op, warp, regs); }

uint32_t reduce(ReduxOp kind, const uint32_t* values, uint32_t lanes) {
  uint32_t r = values[__builtin_ctz(lanes)];
  for (uint32_t left = lanes & (lanes - 1); left; left &= left - 1) {
    const uint32_t v = values[__builtin_ctz(left)];
    const auto sr = static_cast<int32_t>(r), sv = static_cast<int32_t>(v);
    switch (kind) {
      case ReduxOp::kAdd: r += v; break;
      case ReduxOp::kMinU: r = std::min(r, v); break;
      case ReduxOp::kMinS: r = static_cast<uint32_t>(std::min(sr, sv)); break;
      case ReduxOp::kMaxU: r = std::max(r, v); break;
      case ReduxOp::kMaxS: r = static_cast<uint32_t>(std::max(sr, sv)); break;
      case ReduxOp::kAnd: r &= v; break;
      case ReduxOp::kOr: r |= v; break;
      case ReduxOp::kXor: r ^= v; break;
    }
  }
  return r;
}
HANDLER(redux) {
  uint32_t values[kWarpSize];
  std::memcpy(values, regs + op->a, sizeof values);
  const auto kind = static_cast<ReduxOp>(op->aux & 0xff);
  return for_groups(op, warp, regs, [&](uint32_t lanes, uint32_t writable) {
    splat(lanes_at(regs, op->d), reduce(kind, values, lanes), writable);
  });
}

HANDLER(activemask) {
  splat(lanes_at(regs, op->d), warp->active, mask);
  return op + 1;
}

// The first lane is the leader.
HANDLER(elect) {
  return for_groups(op, warp, regs, [&](uint32_t lanes, uint32_t writable) {
    const auto leader = static_cast<uint32_t>(__builtin_ctz(lanes));
    splat(lanes_at(regs, op->d), leader, writable);
    if (op->aux & kHasPredicate) assign(&word_at(regs, op->extra[0]), 1u << leader, writable);
  });
}

// A fragment that waits at a bar.warp.sync, this one or another: which lanes of it name just
// `wanted`.
uint32_t waiting_for(const WarpState* warp, const Op* op, const Fragment& fragment,
                     uint32_t wanted) {
  if (fragment.state != Fragment::State::kSync || fragment.pc->handler != op->handler) return 0;
  const uint32_t* masks = lanes_at(fragment.frame->regs, fragment.pc->e);
  uint32_t lanes = 0;
  for (uint32_t left = fragment.mask; left; left &= left - 1) {
    if ((masks[__builtin_ctz(left)] & warp->alive) == wanted) lanes |= left & -left;
  }
  return lanes;
}

// The lanes of the group `wanted` that wait at other barriers go on behind them.
void release_elsewhere(WarpState* warp, const Op* op, uint32_t wanted) {
  for (size_t i = 0; i < warp->fragments.size(); ++i) {
    Fragment& fragment = warp->fragments[i];
    const uint32_t lanes = waiting_for(warp, op, fragment, wanted);
    if (lanes == 0 || waits_here(warp, op, fragment)) continue;
    Fragment released = fragment;
    released.state = Fragment::State::kReady;
    ++released.pc;
    released.mask = lanes;
    fragment.mask &= ~lanes;
    if (fragment.mask == 0) {
      fragment = released;
    } else {
      warp->fragments.push_back(released);
    }
  }
}

// Lanes may come to different bar.warp.sync of one mask.
HANDLER(warp_barrier) {
  WarpState* state = state_of(warp);
  const uint32_t* masks = lanes_at(regs, op->e);
  const uint32_t members = masks[__builtin_ctz(warp->active)];
  if ((members & warp->alive & ~warp->active) == 0 &&
      ((op->aux & kSameMembers) || !masks_differ(masks, warp->active))) {
    SOFTGPU_NEXT(op + 1);
  }
  if (state->force_sync) {
    state->force_sync = false;
    return op + 1;
  }
  uint32_t whole = 0;
  for (uint32_t left = warp->active; left;) {
    const uint32_t group = same_members(masks, warp->alive, left);
    const uint32_t wanted = masks[__builtin_ctz(group)] & warp->alive;
    uint32_t here = group;
    for (const Fragment& fragment : state->fragments) {
      here |= waiting_for(state, op, fragment, wanted);
    }
    if ((wanted & ~here) == 0) {
      whole |= here;
      release_elsewhere(state, op, wanted);
    }
    left &= ~group;
  }
  for (size_t i = 0; i < state->fragments.size();) {
    if (waits_here(state, op, state->fragments[i]) && (state->fragments[i].mask & whole)) {
      absorb(state, i);
      i = 0;
    } else {
      ++i;
    }
  }
  update_mask(warp);
  put_aside(state, op, warp->active & ~whole);
  if (warp->active == 0) return switch_fragment(state);
  return op + 1;
}

}  // namespace

Gathered gather_lanes(Warp* warp, const Op* op, const Op** next) {
  if (!gather_groups(state_of(warp), op)) {
    *next = switch_fragment(state_of(warp));
    return Gathered::kWait;
  }
  return first_group(warp, op, warp->active) == warp->active ? Gathered::kOneGroup
                                                             : Gathered::kSeveralGroups;
}

uint32_t first_group(const Warp* warp, const Op* op, uint32_t lanes) {
  return same_members(lanes_at(warp->regs, op->e), warp->alive, lanes);
}

void add_collective_handlers(HandlerTable* table) {
#define PUT(name) table->handlers[static_cast<size_t>(IrOp::k_##name)] = h_##name
  PUT(vote_all);
  PUT(vote_any);
  PUT(vote_uni);
  PUT(vote_ballot);
  PUT(match_any_b32);
  PUT(match_any_b64);
  PUT(match_all_b32);
  PUT(match_all_b64);
  PUT(redux);
  PUT(activemask);
  PUT(elect);
  PUT(warp_barrier);
#undef PUT
}

}  // namespace openmps::softgpu
