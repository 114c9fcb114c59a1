// SPDX-License-Identifier: Apache-2.0
// The addresses that sessions of this worker use: their windows, which the server chooses from the
// bottom of the address range, and their extents, which are chosen here from the top. One per
// worker, any thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "base/function_ref.h"
#include "base/mutex.h"
#include "cuda/status.h"
#include "wire/layout.h"

namespace openmps::worker {

class AddressBook {
 public:
  AddressBook();
  // Extents are chosen from that place (wire::kAddressPlaces) down, since sessions of other workers
  // come with theirs (docs/decisions/0042). Before the first claim.
  void begin_at(uint32_t place);

  // Take exactly [begin, begin + bytes). False: part of it is taken.
  [[nodiscard]] bool claim(uint64_t begin, uint64_t bytes);
  // Take the highest free range of whole granules below `below`. `alignment` is a power of two.
  // Nothing: there is none.
  [[nodiscard]] std::optional<uint64_t> claim_highest(uint64_t bytes, uint64_t alignment,
                                                      uint64_t below = wire::kAddressEnd);
  // Take such a range and have `reserve(begin)` reserve it: memory of the driver or the system may
  // lie in a range that is free here, so some are tried. CUDA_ERROR_OUT_OF_MEMORY: there is none;
  // or the last error of `reserve`.
  Result<uint64_t> claim_reserved(uint64_t bytes, uint64_t alignment,
                                  FunctionRef<Status(uint64_t begin)> reserve);
  void release(uint64_t begin);

 private:
  uint64_t top_ = wire::kAddressEnd;  // claim_reserved() begins below this
  Mutex mutex_{LockRank::kAddressBook};
  std::map<uint64_t, uint64_t> taken_ GUARDED_BY(mutex_);  // begin -> end, disjoint
};

}  // namespace openmps::worker
