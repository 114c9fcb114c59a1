// SPDX-License-Identifier: Apache-2.0
// Disjoint address ranges with a value each: "which allocation does this pointer lie in?" Not
// thread-safe, the owner's lock protects it.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>
#include <utility>

namespace openmps::client {

template <typename Value>
class IntervalMap {
 public:
  struct Entry {
    uint64_t base;
    uint64_t bytes;
    Value value;
  };

  // False, and nothing changed, if the range is empty, wraps, or overlaps one that is there.
  bool insert(uint64_t base, uint64_t bytes, Value value) {
    if (bytes == 0 || base + bytes < base || overlaps(base, bytes)) return false;
    entries_.emplace(base, Entry{base, bytes, std::move(value)});
    return true;
  }
  // Some of [base, base + bytes), which does not wrap and is not empty, is in an entry.
  [[nodiscard]] bool overlaps(uint64_t base, uint64_t bytes) const {
    const Entry* last = find_below(base + (bytes - 1));
    return last != nullptr && last->base + (last->bytes - 1) >= base;
  }

  // The entry that contains `address`; nullptr if none does.
  [[nodiscard]] const Entry* find(uint64_t address) const {
    auto entry = entries_.upper_bound(address);
    if (entry == entries_.begin()) return nullptr;
    --entry;
    return address - entry->first < entry->second.bytes ? &entry->second : nullptr;
  }
  // The last entry that begins at or below `address`; nullptr if none does.
  [[nodiscard]] const Entry* find_below(uint64_t address) const {
    const auto entry = entries_.upper_bound(address);
    return entry == entries_.begin() ? nullptr : &std::prev(entry)->second;
  }
  [[nodiscard]] Entry* find(uint64_t address) {
    return const_cast<Entry*>(static_cast<const IntervalMap*>(this)->find(address));
  }

  // Removes the entry that begins exactly at `base`. False if there is none.
  bool erase(uint64_t base) { return entries_.erase(base) != 0; }

  template <typename Visit>
  void for_each(Visit&& visit) const {
    for (const auto& [base, entry] : entries_) visit(entry);
  }
  template <typename Visit>
  void for_each(Visit&& visit) {
    for (auto& [base, entry] : entries_) visit(entry);
  }
  [[nodiscard]] bool empty() const { return entries_.empty(); }

 private:
  std::map<uint64_t, Entry> entries_;
};

}  // namespace openmps::client
