// SPDX-License-Identifier: Apache-2.0
// The memory that a context keeps for streams, and for branches of the executable graphs made in
// the context. The driver makes it in lots of many streams, each of which takes quiescence of the
// context (measured on an H200, docs/decisions/0033-stream-slots.md), and never gives it back. API
// threads.
#pragma once

#include <cstdint>

#include "base/mutex.h"

namespace openmps::softgpu {

class StreamLots {
 public:
  // Streams that a new context has memory for, and those that a lot adds.
  static constexpr uint32_t kFirst = 34;
  static constexpr uint32_t kLot = 43;

  // True: a lot has to be made, which the caller waits for.
  [[nodiscard]] bool take(uint32_t count) {
    const MutexLock lock(mutex_);
    taken_ += count;
    if (taken_ <= there_) return false;
    there_ += (taken_ - there_ + kLot - 1) / kLot * kLot;
    return true;
  }
  void give(uint32_t count) {
    const MutexLock lock(mutex_);
    taken_ -= count;
  }
  [[nodiscard]] uint32_t left() const {
    const MutexLock lock(mutex_);
    return there_ - taken_;
  }

 private:
  mutable Mutex mutex_{LockRank::kSoftStreamLots};
  uint32_t there_ GUARDED_BY(mutex_) = kFirst;
  uint32_t taken_ GUARDED_BY(mutex_) = 0;
};

}  // namespace openmps::softgpu
