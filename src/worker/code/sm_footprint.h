// SPDX-License-Identifier: Apache-2.0
// How many SMs a launch keeps busy: blocks go to SMs that have none first, so a grid that is
// smaller than the device takes as many as it has blocks; a larger one takes all, but for the
// blocks that are left for its last wave. An estimate: neighbours may have the SMs. Session's
// thread only.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>

#include "api/driver_table.h"
#include "wire/commands/stream.h"

namespace openmps::worker {

// Of its grid.
[[nodiscard]] inline uint64_t blocks_of(const wire::Launch& shape) {
  return uint64_t{shape.grid[0]} * shape.grid[1] * shape.grid[2];
}

// Of one of its blocks.
[[nodiscard]] inline uint64_t threads_of(const wire::Launch& shape) {
  return uint64_t{shape.block[0]} * shape.block[1] * shape.block[2];
}

// Of one kernel.
class SmFootprint {
 public:
  // On average while it runs, on a device of so many SMs; `occupancy(threads, shared bytes)` says
  // how many of its blocks an SM has room for, and is asked once for each of a few shapes.
  template <typename Occupancy>
  uint32_t of(const wire::Launch& shape, uint32_t device, uint32_t sms, Occupancy&& occupancy) {
    const uint64_t blocks = blocks_of(shape);
    if (blocks <= sms) return static_cast<uint32_t>(blocks);
    return average(blocks, sms, resident(shape, device, occupancy));
  }
  // The fewest that have room for all its blocks at once.
  template <typename Occupancy>
  uint32_t sms_needed(const wire::Launch& shape, uint32_t device, Occupancy&& occupancy) {
    const uint64_t each = resident(shape, device, occupancy);
    const uint64_t blocks = blocks_of(shape);
    const uint64_t sms = blocks <= each ? 1 : (blocks + each - 1) / each;
    return static_cast<uint32_t>(std::min<uint64_t>(sms, std::numeric_limits<uint32_t>::max()));
  }
  // On so many SMs instead of `all` it takes longer by more than one part in kLoss, since its
  // blocks are spread evenly; or some of its blocks, which may wait for each other, are not there
  // at once.
  template <typename Occupancy>
  bool needs_all_sms(const wire::Launch& shape, uint32_t device, uint32_t all, uint32_t sms,
                     Occupancy&& occupancy) {
    const uint64_t blocks = blocks_of(shape);
    if (blocks <= sms || sms == all) return false;
    const uint64_t on_all = (blocks + all - 1) / all;  // of them each SM has as many
    const uint64_t on_some = (blocks + sms - 1) / sms;
    if (on_some * kLoss > on_all * (kLoss + 1)) return true;
    const uint64_t each = resident(shape, device, occupancy);
    return on_all <= each && on_some > each;
  }
  static constexpr uint64_t kLoss = 16;
  // Rounded. `resident`: blocks that an SM has room for.
  static uint32_t average(uint64_t blocks, uint32_t sms, uint32_t resident) {
    if (blocks <= sms) return static_cast<uint32_t>(blocks);
    const uint64_t wave = uint64_t{sms} * resident;
    const uint64_t whole = blocks / wave;
    const uint64_t last = std::min<uint64_t>(blocks % wave, sms);
    const uint64_t waves = whole + (last != 0 ? 1 : 0);
    return static_cast<uint32_t>((whole * sms + last + waves / 2) / waves);
  }

 private:
  template <typename Occupancy>
  uint32_t resident(const wire::Launch& shape, uint32_t device, Occupancy& occupancy) {
    const uint64_t threads = threads_of(shape);
    const uint64_t key = uint64_t{device} << 48 | threads << 32 | shape.shared_bytes;
    for (const Known& known : known_) {
      if (known.blocks != 0 && known.key == key) return known.blocks;
    }
    const int asked = occupancy(static_cast<int>(threads), shape.shared_bytes);
    const uint32_t blocks = asked > 0 ? static_cast<uint32_t>(asked) : 1;
    known_[next_] = {key, blocks};
    next_ = (next_ + 1) % known_.size();
    return blocks;
  }

  struct Known {
    uint64_t key = 0;
    uint32_t blocks = 0;  // 0: nothing is known
  };
  // A kernel is launched with one or two shapes as a rule.
  std::array<Known, 4> known_;
  uint32_t next_ = 0;
};

}  // namespace openmps::worker
