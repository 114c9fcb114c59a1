// SPDX-License-Identifier: Apache-2.0
// Which addresses the sessions of this worker use: windows, which the server chooses from the
// bottom, and extents, which are chosen here from the top. One per worker, any thread.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

#include "wire/layout.h"

namespace openmps::worker {

class AddressBook {
 public:
  AddressBook();

  // Take exactly [begin, begin + bytes). False if part of it is taken.
  [[nodiscard]] bool claim(uint64_t begin, uint64_t bytes);
  // The highest free range below `below` of whole granules. `alignment` is a power of two. Nothing
  // if there is none.
  [[nodiscard]] std::optional<uint64_t> claim_highest(uint64_t bytes, uint64_t alignment,
                                                      uint64_t below = wire::kAddressEnd);
  void release(uint64_t begin);

 private:
  std::mutex mutex_;
  std::map<uint64_t, uint64_t> taken_;  // begin -> end, disjoint
};

}  // namespace openmps::worker
