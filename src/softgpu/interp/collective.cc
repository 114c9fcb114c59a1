// SPDX-License-Identifier: Apache-2.0
// What the lanes of a warp do together, but for shfl (shuffle.cc): vote, match, redux, elect,
// bar.warp.sync. A *.sync waits until the lanes that its mask names have come. Run by the
// interpreter, on its thread.
#include <algorithm>
#include <cstring>

#include "softgpu/interp/block.h"
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
  for (uint32_t i = 0; i < kWarpSize; ++i)
    if (mask >> i & 1) d[i] = value;
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

// True: the running fragment holds every living lane of `members`. False: it has been put aside.
__attribute__((noinline)) bool wait_for(WarpState* warp, const Op* op, uint32_t members) {
  if (warp->force_sync) {
    warp->force_sync = false;
    return true;
  }
  for (size_t i = 0; i < warp->fragments.size();) {
    const Fragment& fragment = warp->fragments[i];
    if (fragment.state == Fragment::State::kSync && fragment.pc == op &&
        fragment.frame == warp->frame) {
      absorb(warp, i);
      i = 0;
    } else {
      ++i;
    }
  }
  update_mask(warp);
  if ((members & warp->alive & ~warp->active) == 0) return true;
  Fragment fragment;
  fragment.frame = warp->frame;
  fragment.record = warp->record;
  fragment.pc = op;
  fragment.mask = warp->active;
  fragment.state = Fragment::State::kSync;
  warp->fragments.push_back(fragment);
  warp->active = 0;
  return false;
}

// aux bit 8: e holds the member mask; without it the old, unsynchronised form.
inline bool gathered(Warp* warp, const Op* op, std::byte* regs) {
  if (!(op->aux & 0x100)) return true;
  const uint32_t members = lanes_at(regs, op->e)[__builtin_ctz(warp->active)];
  if ((members & warp->alive & ~warp->active) == 0) return true;
  return wait_for(state_of(warp), op, members);
}
#define GATHER()                                                           \
  do {                                                                     \
    if (!gathered(warp, op, regs)) return switch_fragment(state_of(warp)); \
    mask = warp->mask;                                                     \
    (void)mask;                                                            \
  } while (false)

// a: predicate.
HANDLER(vote_all) {
  GATHER();
  const bool all = (~word_at(regs, op->a) & warp->active) == 0;
  assign(&word_at(regs, op->d), all ? kFullMask : 0, mask);
  return op + 1;
}
HANDLER(vote_any) {
  GATHER();
  const bool any = (word_at(regs, op->a) & warp->active) != 0;
  assign(&word_at(regs, op->d), any ? kFullMask : 0, mask);
  return op + 1;
}
HANDLER(vote_uni) {
  GATHER();
  const uint32_t yes = word_at(regs, op->a) & warp->active;
  assign(&word_at(regs, op->d), yes == 0 || yes == warp->active ? kFullMask : 0, mask);
  return op + 1;
}
HANDLER(vote_ballot) {
  GATHER();
  splat(lanes_at(regs, op->d), word_at(regs, op->a) & warp->active, mask);
  return op + 1;
}

template <class T>
const Op* match_any(const Op* op, Warp* warp, std::byte* regs, uint32_t mask) {
  GATHER();
  T values[kWarpSize];
  std::memcpy(values, regs + op->a, sizeof values);
  uint32_t* d = lanes_at(regs, op->d);
  for (uint32_t left = warp->active; left;) {
    const T value = values[__builtin_ctz(left)];
    uint32_t same = 0;
    for (uint32_t i = 0; i < kWarpSize; ++i)
      if ((left >> i & 1) && values[i] == value) same |= 1u << i;
    splat(d, same, same);
    left &= ~same;
  }
  return op + 1;
}
template <class T>
const Op* match_all(const Op* op, Warp* warp, std::byte* regs, uint32_t mask) {
  GATHER();
  T values[kWarpSize];
  std::memcpy(values, regs + op->a, sizeof values);
  const T first = values[__builtin_ctz(warp->active)];
  bool all = true;
  for (uint32_t left = warp->active; left; left &= left - 1)
    all &= values[__builtin_ctz(left)] == first;
  splat(lanes_at(regs, op->d), all ? warp->active : 0, mask);
  if (op->aux & 0x200) assign(&word_at(regs, op->extra[0]), all ? kFullMask : 0, mask);
  return op + 1;
}
HANDLER(match_any_b32) { return match_any<uint32_t>(op, warp, regs, mask); }
HANDLER(match_any_b64) { return match_any<uint64_t>(op, warp, regs, mask); }
HANDLER(match_all_b32) { return match_all<uint32_t>(op, warp, regs, mask); }
HANDLER(match_all_b64) { return match_all<uint64_t>(op, warp, regs, mask); }

HANDLER(redux) {
  GATHER();
  const uint32_t* a = lanes_at(regs, op->a);
  const auto kind = static_cast<ReduxOp>(op->aux & 0xff);
  uint32_t r = a[__builtin_ctz(warp->active)];
  for (uint32_t left = warp->active & (warp->active - 1); left; left &= left - 1) {
    const uint32_t v = a[__builtin_ctz(left)];
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
  splat(lanes_at(regs, op->d), r, mask);
  return op + 1;
}

HANDLER(activemask) {
  splat(lanes_at(regs, op->d), warp->active, mask);
  return op + 1;
}

// The first lane is the leader.
HANDLER(elect) {
  GATHER();
  const auto leader = static_cast<uint32_t>(__builtin_ctz(warp->active));
  splat(lanes_at(regs, op->d), leader, mask);
  if (op->aux & 0x200) assign(&word_at(regs, op->extra[0]), 1u << leader, mask);
  return op + 1;
}

// Lanes may come to different bar.warp.sync of one mask.
HANDLER(warp_barrier) {
  WarpState* state = state_of(warp);
  const uint32_t members = lanes_at(regs, op->e)[__builtin_ctz(warp->active)];
  const uint32_t wanted = members & warp->alive;
  if ((wanted & ~warp->active) == 0) SOFTGPU_NEXT(op + 1);
  uint32_t here = warp->active;
  for (const Fragment& fragment : state->fragments)
    if (fragment.state == Fragment::State::kSync && fragment.pc->handler == op->handler)
      here |= fragment.mask;
  if ((wanted & ~here) == 0 && !state->force_sync) {
    for (Fragment& fragment : state->fragments)
      if (fragment.state == Fragment::State::kSync && fragment.pc != op &&
          (fragment.mask & wanted) && fragment.pc->handler == op->handler) {
        fragment.state = Fragment::State::kReady;
        ++fragment.pc;
      }
    while (true) {
      size_t i = 0;
      for (; i < state->fragments.size(); ++i)
        if (state->fragments[i].state == Fragment::State::kSync && state->fragments[i].pc == op &&
            state->fragments[i].frame == warp->frame)
          break;
      if (i == state->fragments.size()) break;
      absorb(state, i);
    }
    update_mask(warp);
    return op + 1;
  }
  if (!wait_for(state, op, members)) return switch_fragment(state);
  return op + 1;
}

}  // namespace

bool gather_lanes(Warp* warp, const Op* op, uint32_t members, const Op** next) {
  if (wait_for(state_of(warp), op, members)) return true;
  *next = switch_fragment(state_of(warp));
  return false;
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
