// SPDX-License-Identifier: Apache-2.0
// Memory that was freed in the order of a stream. See deferred_frees.h.
#include "client/memory/deferred_frees.h"

namespace openmps::client {

void DeferredFrees::add(const AllocationEntry& entry, FencePoint point) {
  Queue& queue = queues_[point.slot()];
  Item& item = queue.items.emplace_back();
  item.entry = entry;
  item.point = point;
  item.self = std::prev(queue.items.end());
  SizeQueue& size = queue.sizes[{entry.value.arena, entry.value.reserved}];
  (size.first == nullptr ? size.first : size.last->next_of_size) = &item;
  size.last = &item;
  // Several threads free in one stream: their points may come in any order.
  if (point.value() > queue.newest.value()) queue.newest = point;
}

AllocationEntry DeferredFrees::remove(Queue& queue, Item& item) {
  const auto size = queue.sizes.find({item.entry.value.arena, item.entry.value.reserved});
  size->second.first = item.next_of_size;
  if (size->second.first == nullptr) queue.sizes.erase(size);
  const AllocationEntry entry = item.entry;
  queue.items.erase(item.self);
  return entry;
}

bool DeferredFrees::take(uint32_t slot, const Arena& arena, uint64_t bytes,
                         AllocationEntry* entry) {
  const auto found = queues_.find(slot);
  if (found == queues_.end()) return false;
  Queue& queue = found->second;
  const auto size = queue.sizes.lower_bound({&arena, bytes});
  // What has granules of its own counts against the client's limit, all of it.
  const uint64_t most = bytes < kOwnGranuleBytes ? bytes + bytes / 8 : bytes;
  if (size == queue.sizes.end() || size->first.first != &arena || size->first.second > most) {
    return false;
  }
  *entry = remove(queue, *size->second.first);
  if (queue.items.empty()) queues_.erase(found);
  return true;
}

std::vector<FencePoint> DeferredFrees::newest() const {
  std::vector<FencePoint> points;
  points.reserve(queues_.size());
  for (const auto& [slot, queue] : queues_) points.push_back(queue.newest);
  return points;
}

}  // namespace openmps::client
