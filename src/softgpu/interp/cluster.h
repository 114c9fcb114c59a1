// SPDX-License-Identifier: Apache-2.0
// The blocks of a cluster, which reach each other's shared memory and meet at one barrier. One
// thread runs them all in turn, so nothing that they share needs atomics. A block that was launched
// without clusters is one by itself.
#pragma once

#include <cstdint>
#include <vector>

#include "softgpu/interp/warp.h"

namespace openmps::softgpu {

struct Block;
struct WarpState;

struct Cluster {
  // `lanes` arrive at the barrier; those that had done so before this phase ended count once.
  void arrive(WarpState* warp, uint32_t lanes);
  // `lanes` have exited: nobody waits for them, and what they brought to the barrier is gone.
  void lanes_exited(WarpState* warp, uint32_t lanes);
  // Of the block with that rank; null: there is none.
  [[nodiscard]] Block* block_at(uint32_t rank) const {
    return rank < blocks.size() ? blocks[rank] : nullptr;
  }

  std::vector<Block*> blocks;  // by rank
  uint32_t arrived = 0;        // living threads that have arrived in this phase

 private:
  void end_phase_if_complete();
};

// `bytes` at a .shared::cluster address (warp.h), which are `warp`'s own block's or a neighbour's;
// null: out of range.
std::byte* cluster_pointer(Warp* warp, uint64_t address, uint64_t bytes);

}  // namespace openmps::softgpu
