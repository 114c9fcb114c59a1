// SPDX-License-Identifier: Apache-2.0
// Branches, divergence and reconvergence; guards; exit. Run by the interpreter, on its thread.
#include <algorithm>

#include "softgpu/interp/barrier.h"
#include "softgpu/interp/fragments.h"
#include "softgpu/interp/frames.h"

namespace openmps::softgpu {

namespace {

uint32_t& word_at(std::byte* regs, int32_t offset) {
  return *reinterpret_cast<uint32_t*>(regs + offset);
}

#define HANDLER(name)                                                            \
  const Op* h_##name([[maybe_unused]] const Op* op, [[maybe_unused]] Warp* warp, \
                     [[maybe_unused]] std::byte* regs, [[maybe_unused]] uint32_t mask)

// The lanes `taken` go to `target`, the others of the fragment to `other`.
__attribute__((noinline)) const Op* diverge(WarpState* warp, const Op* op, uint32_t taken,
                                            const Op* target, const Op* other) {
  const Op* meet = op->e ? op + op->e : nullptr;
  const uint32_t rest = warp->active & ~taken;
  Record* record = open_record(warp, meet);
  if (meet && target == meet) {
    record->arrived |= taken;
    warp->active = rest;
    update_mask(warp);
    return other;
  }
  if (meet && other == meet) {
    record->arrived |= rest;
    warp->active = taken;
    update_mask(warp);
    return target;
  }
  Fragment fragment;
  fragment.frame = warp->frame;
  fragment.record = warp->record;
  fragment.pc = target;
  fragment.mask = taken;
  warp->fragments.insert(warp->fragments.begin(), fragment);
  warp->active = rest;
  update_mask(warp);
  return other;
}

// Before going back to `target`: account, and let others have the processor now and then.
inline bool must_poll(const Op* op, WarpState* warp) {
  warp->fuel -= op->aux;
  warp->spins += op->sync ? kWaitWeight : 1;
  return warp->fuel <= 0 || warp->spins >= kSpinLimit ||
         warp->stop->load(std::memory_order_relaxed);
}
__attribute__((noinline)) const Op* poll(WarpState* warp, const Op* target) {
  if (warp->spins >= kSpinLimit) return give_way(warp, target);
  warp->pc = target;
  return nullptr;
}

HANDLER(bra) {
  warp->fuel -= op->aux;
  SOFTGPU_NEXT(op->target);
}

HANDLER(bra_back) {
  if (__builtin_expect(must_poll(op, state_of(warp)), 0)) return poll(state_of(warp), op->target);
  SOFTGPU_NEXT(op->target);
}

HANDLER(bra_if) {
  warp->fuel -= op->aux;
  const uint32_t taken = word_at(regs, op->a) & warp->active;
  if (taken == 0) SOFTGPU_NEXT(op + 1);
  if (taken == warp->active) SOFTGPU_NEXT(op->target);
  return diverge(state_of(warp), op, taken, op->target, op + 1);
}

HANDLER(bra_unless) {
  warp->fuel -= op->aux;
  const uint32_t taken = ~word_at(regs, op->a) & warp->active;
  if (taken == 0) SOFTGPU_NEXT(op + 1);
  if (taken == warp->active) SOFTGPU_NEXT(op->target);
  return diverge(state_of(warp), op, taken, op->target, op + 1);
}

// A back edge under divergence: the lanes that go round again run on, the others wait or follow.
__attribute__((noinline)) const Op* diverge_back(const Op* op, WarpState* warp, uint32_t taken) {
  const uint32_t rest = warp->active & ~taken;
  const Op* next = diverge(warp, op, rest, op + 1, op->target);
  if (must_poll(op, warp)) return poll(warp, next);
  return next;
}

HANDLER(bra_if_back) {
  const uint32_t taken = word_at(regs, op->a) & warp->active;
  if (taken == 0) {
    warp->fuel -= op->aux;
    SOFTGPU_NEXT(op + 1);
  }
  if (taken != warp->active) return diverge_back(op, state_of(warp), taken);
  if (__builtin_expect(must_poll(op, state_of(warp)), 0)) return poll(state_of(warp), op->target);
  SOFTGPU_NEXT(op->target);
}

HANDLER(bra_unless_back) {
  const uint32_t taken = ~word_at(regs, op->a) & warp->active;
  if (taken == 0) {
    warp->fuel -= op->aux;
    SOFTGPU_NEXT(op + 1);
  }
  if (taken != warp->active) return diverge_back(op, state_of(warp), taken);
  if (__builtin_expect(must_poll(op, state_of(warp)), 0)) return poll(state_of(warp), op->target);
  SOFTGPU_NEXT(op->target);
}

HANDLER(count) {
  warp->fuel -= op->aux;
  SOFTGPU_NEXT(op + 1);
}

__attribute__((noinline)) const Op* meet_at(WarpState* warp, const Op* op) {
  while (warp->record && warp->record->meet == op && warp->record->frame == warp->frame) {
    Record* record = warp->record;
    record->arrived |= warp->active;
    if (record->arrived != record->expected) return switch_fragment(warp);
    warp->active = record->arrived;
    warp->record = record->parent;
    warp->free_records.push_back(record);
  }
  update_mask(warp);
  return op + 1;
}

HANDLER(join) {
  if (warp->record && warp->record->meet == op) return meet_at(state_of(warp), op);
  SOFTGPU_NEXT(op + 1);
}

// imm: index of the jump table; lanes with an index past its end are undefined and trap.
__attribute__((noinline)) const Op* jump(const Op* op, WarpState* warp, const uint32_t* indices) {
  const auto& table = warp->frame->code->jump_tables[op->imm];
  warp->fuel -= op->aux;
  uint32_t left = warp->active;
  uint32_t groups = 0, first_lanes = 0;
  const Op* first = nullptr;
  const Op* meet = op->e ? op + op->e : nullptr;
  while (left) {
    const uint32_t index = indices[__builtin_ctz(left)];
    if (index >= table.size()) {
      return warp->block->raise(warp, op, CUDA_ERROR_LAUNCH_FAILED, 0, "brx.idx out of its targets",
                                left);
    }
    uint32_t lanes = 0;
    for (uint32_t i = 0; i < kWarpSize; ++i) {
      if ((left >> i & 1) && indices[i] == index) lanes |= 1u << i;
    }
    left &= ~lanes;
    if (groups++ == 0) {
      first = table[index];
      first_lanes = lanes;
      if (left == 0) break;
      open_record(warp, meet);
      continue;
    }
    Fragment fragment;
    fragment.frame = warp->frame;
    fragment.record = warp->record;
    fragment.pc = table[index];
    fragment.mask = lanes;
    warp->fragments.insert(warp->fragments.begin(), fragment);
  }
  warp->active = first_lanes;
  update_mask(warp);
  if (warp->fuel <= 0 || warp->stop->load(std::memory_order_relaxed)) return poll(warp, first);
  return first;
}

HANDLER(brx) { return jump(op, state_of(warp), reinterpret_cast<const uint32_t*>(regs + op->a)); }

// a: predicate; imm: distance to the matching unguard.
HANDLER(guard) {
  const uint32_t active = warp->active;
  const uint32_t chosen = word_at(regs, op->a) & active;
  if (chosen == 0) SOFTGPU_NEXT(op + op->imm + 1);
  warp->unguarded = active;
  if (chosen != active) {
    warp->active = chosen;
    mask = (mask & ~active) | chosen;
    warp->mask = mask;
  }
  SOFTGPU_NEXT(op + 1);
}

HANDLER(guard_not) {
  const uint32_t active = warp->active;
  const uint32_t chosen = ~word_at(regs, op->a) & active;
  if (chosen == 0) SOFTGPU_NEXT(op + op->imm + 1);
  warp->unguarded = active;
  if (chosen != active) {
    warp->active = chosen;
    mask = (mask & ~active) | chosen;
    warp->mask = mask;
  }
  SOFTGPU_NEXT(op + 1);
}

HANDLER(unguard) {
  warp->active = warp->unguarded;
  mask |= warp->active;
  warp->mask = mask;
  SOFTGPU_NEXT(op + 1);
}

HANDLER(exit) {
  WarpState* state = state_of(warp);
  warp->fuel -= op->aux;
  const uint32_t lanes = warp->active;
  warp->alive &= ~lanes;
  warp->active = 0;
  leave_frames(state, warp->frame, lanes);
  leave_record(state, warp->record, nullptr, lanes);
  lanes_exited(state, lanes);
  return switch_fragment(state);
}

HANDLER(unsupported) {
  return warp->block->raise(warp, op, CUDA_ERROR_ILLEGAL_INSTRUCTION, 0,
                            warp->frame->code->unsupported[op->imm]);
}
HANDLER(trap) { return warp->block->raise(warp, op, CUDA_ERROR_LAUNCH_FAILED, 0, "trap"); }

HANDLER(yield) {
  warp->fuel -= 1;
  return give_way(state_of(warp), op + 1);
}

// aux: the rounding field of MXCSR.
HANDLER(set_rounding) {
#if defined(__x86_64__)
  unsigned csr = __builtin_ia32_stmxcsr();
  __builtin_ia32_ldmxcsr((csr & ~0x6000u) | op->aux << 13);
#endif
  SOFTGPU_NEXT(op + 1);
}

}  // namespace

void add_control_handlers(HandlerTable* table) {
#define PUT(name) table->handlers[static_cast<size_t>(IrOp::k_##name)] = h_##name
  PUT(bra);
  PUT(bra_back);
  PUT(bra_if);
  PUT(bra_unless);
  PUT(bra_if_back);
  PUT(bra_unless_back);
  PUT(count);
  PUT(join);
  PUT(brx);
  PUT(guard);
  PUT(guard_not);
  PUT(unguard);
  PUT(exit);
  PUT(trap);
  PUT(unsupported);
  PUT(yield);
  PUT(set_rounding);
#undef PUT
}

}  // namespace openmps::softgpu
