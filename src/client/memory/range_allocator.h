// SPDX-License-Identifier: Apache-2.0
// Best-fit allocation of address ranges with coalescing: device granules, blocks inside slabs, the
// pinned heap. Holds no memory of its own; not thread-safe, the owner's lock protects it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace openmps::client {

class RangeAllocator {
 public:
  // `boundary` (a power of two; 0: none): free ranges never merge across its multiples, so no
  // allocation does either. Slabs are mapped one by one and stay apart that way.
  explicit RangeAllocator(uint64_t boundary = 0) : boundary_(boundary) {}

  // [base, base + bytes) becomes free; also how an allocation is given back.
  void add(uint64_t base, uint64_t bytes);
  // The smallest free range that fits, the lowest of those. The caller keeps sizes in its unit.
  std::optional<uint64_t> allocate(uint64_t bytes);
  // Take exactly [base, base + bytes) out of the free ranges. False if part of it is in use.
  bool take(uint64_t base, uint64_t bytes);
  [[nodiscard]] bool is_free(uint64_t base, uint64_t bytes) const;
  [[nodiscard]] uint64_t free_bytes() const { return free_bytes_; }

 private:
  using ByBase = std::map<uint64_t, uint64_t>;
  [[nodiscard]] ByBase::const_iterator containing(uint64_t base, uint64_t bytes) const;
  [[nodiscard]] bool may_merge_at(uint64_t address) const {
    return boundary_ == 0 || (address & (boundary_ - 1)) != 0;
  }
  void insert(uint64_t base, uint64_t bytes);
  void erase(ByBase::const_iterator range);

  const uint64_t boundary_;
  uint64_t free_bytes_ = 0;
  ByBase by_base_;                                   // base -> bytes
  std::set<std::pair<uint64_t, uint64_t>> by_size_;  // (bytes, base)
};

}  // namespace openmps::client
