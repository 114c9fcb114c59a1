// SPDX-License-Identifier: Apache-2.0
// What NVIDIA's driver keeps for each stream of a context and for each branch of each executable
// graph. It makes some 43 of these at a time, and to make them it waits, inside, for all work of
// the context, while whoever submits there waits with it (decision 33). What is given back it
// keeps. So many are made ahead, when a context is made, and more in quiet moments. Where none is
// left the driver makes some. Of one context. Any thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>

#include "api/driver_table.h"

namespace openmps::worker {

// Some are taken as long as it lives; null: none.
using StreamSlot = std::shared_ptr<const void>;

class StreamSlots : public std::enable_shared_from_this<StreamSlots> {
 public:
  // Made ahead for a shared context, and for the cold lane and a part of a device. On an H200 512
  // take 55 MiB and 7 ms; the memory of a stream itself (0.55 MiB) comes with the stream.
  static constexpr uint32_t kFirst = 512;
  static constexpr uint32_t kFirstOfPart = 128;
  // Made at once, when few are left: so many, or a quarter of what is there, or what is missing for
  // half as many as are taken to be left: of a crowd that has come meanwhile the next ones find
  // room.
  static constexpr uint32_t kMore = 128;

  // Some have been made: they are counted. A driver that can't make any is left to itself.
  [[nodiscard]] bool are_counted() const { return there_.load(std::memory_order_relaxed) != 0; }
  // Null: not so many are left. Throws std::bad_alloc, and then has taken none.
  [[nodiscard]] StreamSlot take(uint32_t count) { return take(count, 0); }
  // The same for who can do without: a quarter is left to others.
  [[nodiscard]] StreamSlot take_spare(uint32_t count) { return take(count, reserve()); }
  // There may be fewer: the driver may wait.
  [[nodiscard]] StreamSlot take_anyhow(uint32_t count);

  // take_spare() has none: no more than a quarter are left.
  [[nodiscard]] bool are_short() const {
    return taken_.load(std::memory_order_relaxed) + reserve() >=
           there_.load(std::memory_order_relaxed);
  }
  // The same, and nobody makes more: the caller does, until end_growing().
  [[nodiscard]] bool begin_to_grow();
  void end_growing() { grows_.store(false, std::memory_order_release); }
  // Make so many more. The driver waits for all work of `context`, whose they are: a quiet moment's
  // call. It is current meanwhile. What the driver says; after an error there are no more.
  CUresult grow(const DriverTable& driver, CUcontext context, uint32_t more);
  // The same, as many as are due when few are left.
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
