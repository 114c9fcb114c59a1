// SPDX-License-Identifier: Apache-2.0
// Memory that was freed in the order of a stream which has not come so far. It waits by fence slot:
// the points of a slot are reached in turn, so only the oldest of each needs a look, and what is
// freed in a stream may be had again in that stream at once. Every operation costs the same with
// one free outstanding as with a million, but for the logarithm of the number of different sizes
// and of slots. Not thread-safe: the lock of DeviceMemory protects it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <list>
#include <map>
#include <utility>
#include <vector>

#include "client/link/fence.h"
#include "client/memory/arena.h"

namespace openmps::client {

class DeferredFrees {
 public:
  // Slots that one reap() looks at. An allocation reaps, so all get their turn.
  static constexpr size_t kSlotsPerReap = 8;

  // The entry's memory is free once the point is reached. The stream of its slot may use it again
  // behind all that it has been given.
  void add(const AllocationEntry& entry, FencePoint point);
  // The oldest that was freed in the order of the slot's stream, is of the arena, and has `bytes`
  // or, below kOwnGranuleBytes, up to an eighth more. False: there is none.
  bool take(uint32_t slot, const Arena& arena, uint64_t bytes, AllocationEntry* entry);
  // release(entry) for up to `most` whose point is reached(point). How many there were.
  template <typename Reached, typename Release>
  size_t reap(size_t most, Reached&& reached, Release&& release);
  // Once these are reached, all are.
  [[nodiscard]] std::vector<FencePoint> newest() const;
  [[nodiscard]] bool empty() const { return queues_.empty(); }

 private:
  struct Item {
    AllocationEntry entry;
    FencePoint point;
    Item* next_of_size = nullptr;
    std::list<Item>::iterator self;
  };
  struct SizeQueue {  // oldest first
    Item* first = nullptr;
    Item* last = nullptr;
  };
  using Size = std::pair<const Arena*, uint64_t>;
  struct Queue {  // of a slot, oldest first
    std::list<Item> items;
    std::map<Size, SizeQueue> sizes;
    FencePoint newest;
  };
  using Queues = std::map<uint32_t, Queue>;
  // The item is the oldest of its size.
  static AllocationEntry remove(Queue& queue, Item& item);

  Queues queues_;  // none is empty
  uint32_t last_looked_ = 0;
};

template <typename Reached, typename Release>
size_t DeferredFrees::reap(size_t most, Reached&& reached, Release&& release) {
  size_t reaped = 0;
  for (size_t looks = std::min(queues_.size(), kSlotsPerReap); looks != 0; --looks) {
    auto it = queues_.upper_bound(last_looked_);
    if (it == queues_.end()) it = queues_.begin();
    last_looked_ = it->first;
    Queue& queue = it->second;
    while (reaped < most && !queue.items.empty() && reached(queue.items.front().point)) {
      release(remove(queue, queue.items.front()));
      ++reaped;
    }
    if (queue.items.empty()) queues_.erase(it);
  }
  return reaped;
}

}  // namespace openmps::client
