// SPDX-License-Identifier: Apache-2.0
// Clusters: their barrier, and the shared memory of other blocks. See cluster.h. Run by the
// interpreter, on the thread that runs the whole cluster.
#include "softgpu/interp/cluster.h"

#include <algorithm>

#include "softgpu/interp/fragments.h"

namespace openmps::softgpu {

namespace {

void end_phase_if_complete(Cluster& cluster) {
  if (cluster.arrived == 0) return;
  uint32_t alive = 0;
  for (const Block* block : cluster.blocks) alive += block->live_threads;
  if (cluster.arrived != alive) return;
  cluster.arrived = 0;
  for (Block* block : cluster.blocks) {
    for (uint32_t w = 0; w < block->warp_count; ++w) {
      WarpState& warp = *block->warps[w];
      warp.cluster_arrived = 0;
      for (Fragment& fragment : warp.fragments) {
        if (fragment.state == Fragment::State::kCluster) fragment.state = Fragment::State::kReady;
      }
    }
  }
}

}  // namespace

void arrive_at_cluster_barrier(WarpState* warp, uint32_t lanes) {
  Cluster& cluster = *warp->block->cluster;
  cluster.arrived += static_cast<uint32_t>(__builtin_popcount(lanes & ~warp->cluster_arrived));
  warp->cluster_arrived |= lanes;
  end_phase_if_complete(cluster);
}

void leave_cluster_barrier(WarpState* warp, uint32_t lanes) {
  Cluster& cluster = *warp->block->cluster;
  if (cluster.arrived == 0) return;
  cluster.arrived -= static_cast<uint32_t>(__builtin_popcount(lanes & warp->cluster_arrived));
  warp->cluster_arrived &= ~lanes;
  end_phase_if_complete(cluster);
}

std::byte* cluster_pointer(Warp* warp, uint64_t address, uint64_t bytes) {
  const uint64_t at = address & kSharedOffsetMask;
  const uint64_t place = address >> kSharedRankShift;
  const Block* block = place == 0 ? warp->block
                                  : warp->block->cluster->block_at(static_cast<uint32_t>(
                                        std::min<uint64_t>(place - 1, UINT32_MAX)));
  return block && at + bytes <= block->shared_bytes ? block->shared_memory.data() + at : nullptr;
}

namespace {

#define HANDLER(name)                                                            \
  const Op* h_##name([[maybe_unused]] const Op* op, [[maybe_unused]] Warp* warp, \
                     [[maybe_unused]] std::byte* regs, [[maybe_unused]] uint32_t mask)

HANDLER(cluster_arrive) {
  warp->fuel -= 1;
  arrive_at_cluster_barrier(state_of(warp), warp->active);
  return op + 1;
}

HANDLER(cluster_wait) {
  warp->fuel -= 1;
  WarpState* state = state_of(warp);
  if ((state->cluster_arrived & warp->active) == 0) return op + 1;
  Fragment fragment;
  fragment.frame = warp->frame;
  fragment.record = warp->record;
  fragment.pc = op + 1;
  fragment.mask = warp->active;
  fragment.state = Fragment::State::kCluster;
  state->fragments.push_back(fragment);
  return switch_fragment(state);
}

}  // namespace

void add_cluster_handlers(HandlerTable* table) {
#define PUT(name) table->handlers[static_cast<size_t>(IrOp::k_##name)] = h_##name
  PUT(cluster_arrive);
  PUT(cluster_wait);
#undef PUT
}

}  // namespace openmps::softgpu
