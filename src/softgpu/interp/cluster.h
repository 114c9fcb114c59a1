// SPDX-License-Identifier: Apache-2.0
// The blocks of a cluster, which reach each other's shared memory and meet at one barrier. One
// thread runs them all in turn, so nothing that they share needs atomics. A block that was launched
// without clusters is one by itself.
#pragma once

#include <cstdint>

#include "softgpu/interp/block.h"

namespace openmps::softgpu {

// The barrier that the blocks of a cluster meet at.
// `lanes` arrive; those that had done so before this phase ended count once.
void arrive_at_cluster_barrier(WarpState* warp, uint32_t lanes);
// `lanes` have exited: no thread waits for them, and their arrivals at the barrier are undone.
void leave_cluster_barrier(WarpState* warp, uint32_t lanes);

// `bytes` at a .shared::cluster address (warp.h), which are `warp`'s own block's or a neighbour's;
// null: out of range.
std::byte* cluster_pointer(Warp* warp, uint64_t address, uint64_t bytes);

// The places that an address in the shared window means: one, or with a mask of ranks the same
// offset in each of those blocks.
class SharedPlaces {
 public:
  SharedPlaces(uint64_t address, const uint16_t* ranks)
      : address_(address), ranks_(ranks ? *ranks : 1u), single_(!ranks) {}
  bool next(uint64_t* address) {
    if (ranks_ == 0) return false;
    const auto rank = static_cast<uint64_t>(__builtin_ctz(ranks_));
    ranks_ &= ranks_ - 1;
    constexpr uint64_t kPlace = kWindowMask & ~kSharedOffsetMask;
    *address = single_ ? address_ : (address_ & ~kPlace) | (rank + 1) << kSharedRankShift;
    return true;
  }

 private:
  const uint64_t address_;
  uint32_t ranks_;
  const bool single_;
};

}  // namespace openmps::softgpu
