// SPDX-License-Identifier: Apache-2.0
// Address ranges that the worker has been told to unmap or to unregister. It does so when nothing
// uses them any more, and says how far it has come by a counter in the channel; until then their
// addresses are not free. Device memory may be had back before, exactly as it was. Not thread-safe:
// the lock of the owner of the addresses protects it.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "client/memory/range_allocator.h"

namespace openmps::client {

// While memory or addresses are short a caller waits this long at most for what is freed but in
// use: what frees it may wait for what this thread does next.
inline constexpr uint64_t kLongestReclaimWaitNs = 1'000'000'000;

class ReturnedRanges {
 public:
  struct Range {
    uint64_t base = 0;
    uint64_t bytes = 0;
    uint32_t device = 0;
    bool can_come_back = false;
    uint64_t ticket = 0;  // set by add()
  };

  // The command that gives the range back has been pushed, in the order of these calls.
  void add(Range range);
  // The range of exactly this size that was returned last. False: there is none.
  bool take(uint64_t bytes, uint32_t device, Range* range);
  // It does not come back: wait for its addresses.
  void put_back(Range range);
  // The worker has carried out `done` commands: their addresses are free, but for the `keep` ranges
  // that were returned last.
  void collect(uint64_t done, size_t keep, RangeAllocator& addresses);
  // All addresses are free once the worker has carried out this many.
  [[nodiscard]] uint64_t last_ticket() const {
    return ranges_.empty() ? 0 : ranges_.rbegin()->first;
  }

 private:
  using BySize = std::multimap<std::pair<uint32_t, uint64_t>, uint64_t>;
  void erase(std::map<uint64_t, Range>::iterator range);

  uint64_t tickets_ = 0;
  std::map<uint64_t, Range> ranges_;  // by ticket
  BySize by_size_;  // (device, bytes) -> ticket, of those that the worker may map again
};

}  // namespace openmps::client
