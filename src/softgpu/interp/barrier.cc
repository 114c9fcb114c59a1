// SPDX-License-Identifier: Apache-2.0
// The 16 named barriers of a block, and one for each group of four warps. Arrivals are counted by
// thread; a warp whose living lanes have all arrived counts whole, as on the hardware. Run by the
// interpreter, on its thread.
#include "softgpu/interp/barrier.h"

#include <algorithm>

#include "softgpu/interp/cluster.h"
#include "softgpu/interp/fragments.h"
#include "softgpu/ir/memory_codes.h"

namespace openmps::softgpu {
namespace {

#define HANDLER(name)                                                            \
  const Op* h_##name([[maybe_unused]] const Op* op, [[maybe_unused]] Warp* warp, \
                     [[maybe_unused]] std::byte* regs, [[maybe_unused]] uint32_t mask)

uint32_t* lanes_at(std::byte* regs, int32_t offset) {
  return reinterpret_cast<uint32_t*>(regs + offset);
}

// The state of a barrier that threads have arrived at.
bool is_complete(const Block& block, const Barrier& barrier) {
  if (barrier.expected == 0) return barrier.arrived >= block.live_threads;
  uint32_t arrived = barrier.arrived;
  for (uint32_t w = 0; w < block.warp_count; ++w) {
    const uint32_t here = barrier.arrived_of_warp[w];
    const uint32_t alive = block.warps[w]->alive;
    if (here && (alive & ~here) == 0) {
      arrived += kWarpSize - static_cast<uint32_t>(__builtin_popcount(here));
    }
  }
  return arrived >= barrier.expected;
}

// What bar.red gives, written for the lanes `lanes` that wait at `op`.
void write_red(const Op* op, std::byte* regs, uint32_t lanes, const Barrier& barrier) {
  const auto kind = static_cast<BarrierRed>(op->aux & 0xff);
  if (kind == BarrierRed::kPopc) {
    for (uint32_t i = 0; i < kWarpSize; ++i) {
      if (lanes >> i & 1) lanes_at(regs, op->d)[i] = barrier.popc;
    }
    return;
  }
  const bool value =
      kind == BarrierRed::kAnd ? barrier.popc == barrier.sync_arrived : barrier.popc != 0;
  uint32_t& d = *lanes_at(regs, op->d);
  d = (d & ~lanes) | (value ? lanes : 0);
}

const Op* h_barrier_red(const Op* op, Warp* warp, std::byte* regs, uint32_t mask);

void release(Block& block, uint32_t id) {
  Barrier& barrier = block.barriers[id];
  block.busy_barriers &= ~(1u << id);
  for (uint32_t w = 0; w < block.warp_count; ++w) {
    WarpState& warp = *block.warps[w];
    if (!barrier.arrived_of_warp[w]) continue;
    for (Fragment& fragment : warp.fragments) {
      if (fragment.state != Fragment::State::kBarrier || fragment.barrier != id) continue;
      fragment.state = Fragment::State::kReady;
      if ((fragment.pc - 1)->handler == h_barrier_red) {
        write_red(fragment.pc - 1, fragment.frame->regs, fragment.mask, barrier);
      }
    }
    barrier.arrived_of_warp[w] = 0;
  }
  barrier.arrived = barrier.expected = barrier.popc = barrier.sync_arrived = 0;
}

// The running lanes have come to barrier `id`, at which `count` threads meet; 0: all that live.
void arrive(Warp* warp, uint32_t id, uint32_t count) {
  Block& block = *warp->block;
  Barrier& barrier = block.barriers[id];
  if (barrier.arrived == 0) {
    block.busy_barriers |= 1u << id;
    if (barrier.arrived_of_warp.size() < block.warp_count) {
      barrier.arrived_of_warp.resize(block.warp_count);
    }
  }
  if (count) barrier.expected = count;
  barrier.arrived += warp->active == kFullMask
                         ? kWarpSize
                         : static_cast<uint32_t>(__builtin_popcount(warp->active));
  barrier.arrived_of_warp[warp->index] |= warp->active;
}

// a: barrier, b: thread count if aux bit 8. False: a fault has been recorded.
bool arrive(const Op* op, Warp* warp, std::byte* regs, uint32_t* id) {
  const auto lane = static_cast<uint32_t>(__builtin_ctz(warp->active));
  *id = lanes_at(regs, op->a)[lane];
  const uint32_t count = op->aux & 0x100 ? lanes_at(regs, op->b)[lane] : 0;
  if (*id >= kBarriers ||
      ((op->aux & 0x100) && (count == 0 || count % kWarpSize != 0 || count > 1024))) {
    warp->block->raise(
        warp, op, CUDA_ERROR_ILLEGAL_INSTRUCTION, 0,
        "barrier " + std::to_string(*id) + " with " + std::to_string(count) + " threads");
    return false;
  }
  arrive(warp, *id, count);
  return true;
}

// The running lanes wait at barrier `id`, at which they have arrived.
const Op* wait_at(const Op* op, Warp* warp, uint32_t id) {
  WarpState* state = state_of(warp);
  Fragment fragment;
  fragment.frame = warp->frame;
  fragment.record = warp->record;
  fragment.pc = op + 1;
  fragment.mask = warp->active;
  fragment.state = Fragment::State::kBarrier;
  fragment.barrier = id;
  state->fragments.push_back(fragment);
  return switch_fragment(state);
}

__attribute__((noinline)) const Op* sync(const Op* op, Warp* warp, std::byte* regs, bool red) {
  Block& block = *warp->block;
  warp->fuel -= 1;
  uint32_t id;
  if (!arrive(op, warp, regs, &id)) return nullptr;
  Barrier& barrier = block.barriers[id];
  if (red) {
    barrier.popc +=
        static_cast<uint32_t>(__builtin_popcount(*lanes_at(regs, op->c) & warp->active));
    barrier.sync_arrived += static_cast<uint32_t>(__builtin_popcount(warp->active));
  }
  if (is_complete(block, barrier)) {
    if (red) write_red(op, regs, warp->active, barrier);
    release(block, id);
    return op + 1;
  }
  return wait_at(op, warp, id);
}

HANDLER(barrier_sync) { return sync(op, warp, regs, false); }
// c: predicate.
HANDLER(barrier_red) { return sync(op, warp, regs, true); }

HANDLER(barrier_arrive) {
  uint32_t id;
  if (!arrive(op, warp, regs, &id)) return nullptr;
  if (is_complete(*warp->block, warp->block->barriers[id])) release(*warp->block, id);
  return op + 1;
}

// The warps of a group meet.
HANDLER(barrier_group) {
  Block& block = *warp->block;
  warp->fuel -= 1;
  const uint32_t group = warp->index / kGroupWarps, id = kBarriers + group;
  constexpr uint32_t kThreads = kGroupWarps * kWarpSize;
  arrive(warp, id, std::min(kThreads, block.threads - group * kThreads));
  if (!is_complete(block, block.barriers[id])) return wait_at(op, warp, id);
  release(block, id);
  return op + 1;
}

}  // namespace

void lanes_exited(WarpState* warp, uint32_t lanes) {
  Block& block = *warp->block;
  block.live_threads -= static_cast<uint32_t>(__builtin_popcount(lanes));
  if (warp->alive == 0) --block.live_warps;
  for (Fragment& fragment : warp->fragments) {
    if (fragment.state == Fragment::State::kSync) fragment.state = Fragment::State::kReady;
  }
  for (uint32_t busy = block.busy_barriers; busy; busy &= busy - 1) {
    const auto id = static_cast<uint32_t>(__builtin_ctz(busy));
    if (is_complete(block, block.barriers[id])) release(block, id);
  }
  leave_cluster_barrier(warp, lanes);
}

void add_barrier_handlers(HandlerTable* table) {
#define PUT(name) table->handlers[static_cast<size_t>(IrOp::k_##name)] = h_##name
  PUT(barrier_sync);
  PUT(barrier_arrive);
  PUT(barrier_red);
  PUT(barrier_group);
#undef PUT
}

}  // namespace openmps::softgpu
