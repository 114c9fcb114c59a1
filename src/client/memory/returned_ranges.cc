// SPDX-License-Identifier: Apache-2.0
// Address ranges on their way back. See returned_ranges.h.
#include "client/memory/returned_ranges.h"

#include <iterator>

namespace openmps::client {

void ReturnedRanges::add(Range range) {
  range.ticket = ++tickets_;
  ranges_[range.ticket] = range;
  if (range.can_come_back) by_size_.emplace(std::pair(range.device, range.bytes), range.ticket);
}

void ReturnedRanges::erase(std::map<uint64_t, Range>::iterator range) {
  const auto [first, last] = by_size_.equal_range({range->second.device, range->second.bytes});
  for (auto it = first; it != last; ++it) {
    if (it->second != range->first) continue;
    by_size_.erase(it);
    break;
  }
  ranges_.erase(range);
}

bool ReturnedRanges::take(uint64_t bytes, uint32_t device, Range* range) {
  const auto after = by_size_.upper_bound({device, bytes});
  if (after == by_size_.begin()) return false;
  const auto newest = std::prev(after);
  if (newest->first != std::pair(device, bytes)) return false;
  const auto found = ranges_.find(newest->second);
  *range = found->second;
  by_size_.erase(newest);
  ranges_.erase(found);
  return true;
}

void ReturnedRanges::put_back(Range range) {
  range.can_come_back = false;
  ranges_[range.ticket] = range;
}

void ReturnedRanges::collect(uint64_t done, size_t keep, RangeAllocator& addresses) {
  while (ranges_.size() > keep && ranges_.begin()->first <= done) {
    addresses.add(ranges_.begin()->second.base, ranges_.begin()->second.bytes);
    erase(ranges_.begin());
  }
}

}  // namespace openmps::client
