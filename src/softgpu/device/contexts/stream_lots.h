// SPDX-License-Identifier: Apache-2.0
// What a context keeps for its streams, and for the branches of the executable graphs that are made
// in it: made in lots, each of which is a standstill of the context (as measured on an H200,
// docs/decisions/0033-stream-slots.md), and never given back. API threads.
#pragma once

#include <cstdint>

#include "base/mutex.h"

namespace openmps::softgpu {

class StreamLots {
 public:
  // Of a context, and those made at once.
  static constexpr uint32_t kFirst = 34;
  static constexpr uint32_t kLot = 43;

  // True: some have to be made for it.
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
