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

  // Take exactly [begin, begin + bytes). False: part of it is taken; not by what `session` had when
  // it left.
  [[nodiscard]] bool claim(uint64_t begin, uint64_t bytes, uint32_t session = 0);
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
  // The session leaves for another worker with the range that it has taken: nobody else gets it
  // here, as they could meet in one worker again. Until forget(), when the session has ended or is
  // back.
  void leave(uint64_t begin, uint32_t session);
  void forget(uint32_t session);

 private:
  struct Taken {
    uint64_t end = 0;
    uint32_t left_by = 0;  // session; 0: it is used here
  };
  uint64_t top_ = wire::kAddressEnd;  // claim_reserved() begins below this
  Mutex mutex_{LockRank::kAddressBook};
  std::map<uint64_t, Taken> taken_ GUARDED_BY(mutex_);  // by their begin, disjoint
};

}  // namespace openmps::worker
