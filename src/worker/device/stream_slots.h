// SPDX-License-Identifier: Apache-2.0
// Stream slots of one context: what NVIDIA's driver keeps for each stream and for each branch of
// each executable graph. The driver makes some 43 slots at a time. To make them it waits for all
// work of the context, and every session that submits work there waits with it (decision 33). It
// keeps slots that are given back. So slots are made ahead, when a context is made, and more in
// quiescence; where none is left the driver makes some. Any thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>

#include "api/driver_table.h"

namespace openmps::worker {

// Slots that are taken until the last copy of this is gone; null: none.
using StreamSlot = std::shared_ptr<const void>;

class StreamSlots : public std::enable_shared_from_this<StreamSlots> {
 public:
  // Slots that are made ahead: of a shared context; of a cold context or a green context. On an
  // H200 512 slots take 55 MiB and 7 ms. The memory of a stream itself (0.55 MiB) comes with the
  // stream.
  static constexpr uint32_t kFirst = 512;
  static constexpr uint32_t kFirstOfPart = 128;
  // When few slots are left, so many are made in one step; more if a quarter of all slots is more,
  // or if more are needed to leave half as many free as are taken, for many sessions that come at
  // once.
  static constexpr uint32_t kMore = 128;

  // Slots have been made, so slots are counted. With a driver that can't make any they are not.
  [[nodiscard]] bool are_counted() const { return there_.load(std::memory_order_relaxed) != 0; }
  // Null: fewer are left. Throws std::bad_alloc, and then has taken none.
  [[nodiscard]] StreamSlot take(uint32_t count) { return take(count, 0); }
  // Take slots of which the caller can do without; a quarter of all slots is left to other
  // sessions.
  [[nodiscard]] StreamSlot take_spare(uint32_t count) { return take(count, reserve()); }
  // Take slots even if fewer are left, so that the driver may wait to make them.
  [[nodiscard]] StreamSlot take_anyhow(uint32_t count);

  // At most a quarter of the slots is left, so take_spare() has none.
  [[nodiscard]] bool are_short() const {
    return taken_.load(std::memory_order_relaxed) + reserve() >=
           there_.load(std::memory_order_relaxed);
  }
  // Slots are short and no other thread makes more. The caller makes more, until end_growing().
  [[nodiscard]] bool begin_to_grow() {
    return are_short() && !grows_.exchange(true, std::memory_order_acquire);
  }
  void end_growing() { grows_.store(false, std::memory_order_release); }
  // Make so many more slots of `context`, which is current meanwhile. The driver waits for all work
  // of the context, so the call is made in quiescence. Returns what the driver says; after an error
  // there are no more slots than before.
  CUresult grow(const DriverTable& driver, CUcontext context, uint32_t more);
  // Make as many as are due when few are left.
  CUresult grow(const DriverTable& driver, CUcontext context) {
    return grow(driver, context, more());
  }

 private:
  static constexpr uint32_t kReserved = 4;
  [[nodiscard]] uint32_t reserve() const {
    return there_.load(std::memory_order_relaxed) / kReserved;
  }
  [[nodiscard]] uint32_t more() const {
    const uint32_t there = there_.load(std::memory_order_relaxed);
    const uint32_t taken = taken_.load(std::memory_order_relaxed);
    const uint32_t wanted = taken + taken / 2;
    return std::max({kMore, reserve(), wanted > there ? wanted - there : 0});
  }
  StreamSlot take(uint32_t count, uint32_t reserve);
  StreamSlot note_taken(uint32_t count);

  std::atomic<uint32_t> there_{0};
  std::atomic<uint32_t> taken_{0};
  std::atomic<bool> grows_{false};
};

}  // namespace openmps::worker
