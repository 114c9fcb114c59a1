// SPDX-License-Identifier: Apache-2.0
// Best-fit range allocation over two ordered indices of the same free ranges.
#include "client/memory/range_allocator.h"

#include <iterator>

namespace openmps::client {

void RangeAllocator::insert(uint64_t base, uint64_t bytes) {
  by_base_.emplace(base, bytes);
  by_size_.emplace(bytes, base);
}

void RangeAllocator::erase(ByBase::const_iterator range) {
  by_size_.erase({range->second, range->first});
  by_base_.erase(range);
}

void RangeAllocator::add(uint64_t base, uint64_t bytes) {
  free_bytes_ += bytes;
  const auto next = by_base_.lower_bound(base);
  if (next != by_base_.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == base && may_merge_at(base)) {
      base = previous->first;
      bytes += previous->second;
      erase(previous);
    }
  }
  if (next != by_base_.end() && base + bytes == next->first && may_merge_at(next->first)) {
    bytes += next->second;
    erase(next);
  }
  insert(base, bytes);
}

std::optional<uint64_t> RangeAllocator::allocate(uint64_t bytes) {
  const auto best = by_size_.lower_bound({bytes, 0});
  if (best == by_size_.end()) return std::nullopt;
  const auto [found, base] = *best;
  erase(by_base_.find(base));
  if (found > bytes) insert(base + bytes, found - bytes);
  free_bytes_ -= bytes;
  return base;
}

RangeAllocator::ByBase::const_iterator RangeAllocator::containing(uint64_t base,
                                                                  uint64_t bytes) const {
  auto range = by_base_.upper_bound(base);
  if (range == by_base_.begin()) return by_base_.end();
  --range;
  const bool inside = base - range->first + bytes <= range->second;
  return inside ? range : by_base_.end();
}

bool RangeAllocator::is_free(uint64_t base, uint64_t bytes) const {
  return containing(base, bytes) != by_base_.end();
}

bool RangeAllocator::take(uint64_t base, uint64_t bytes) {
  const auto range = containing(base, bytes);
  if (range == by_base_.end()) return false;
  const auto [start, length] = *range;
  erase(range);
  if (start < base) insert(start, base - start);
  if (start + length > base + bytes) insert(base + bytes, start + length - base - bytes);
  free_bytes_ -= bytes;
  return true;
}

}  // namespace openmps::client
