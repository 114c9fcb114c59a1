// SPDX-License-Identifier: Apache-2.0
// What the driver has answered about how many blocks of a kernel fit an SM. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/mutex.h"

namespace openmps::client {

class KnownOccupancy {
 public:
  struct Shape {
    int threads;  // of a block
    unsigned int flags;
    size_t dynamic_shared_bytes;
    bool operator==(const Shape&) const = default;
  };

  // More shapes than warps in a block, which cuOccupancyMaxPotentialBlockSize tries in turn.
  static constexpr size_t kMost = 64;

  // The answer, or under which settings of the kernel one may be remembered.
  [[nodiscard]] bool find(const Shape& shape, uint64_t* blocks, uint32_t* settings) const {
    const MutexLock lock(lock_);
    *settings = settings_;
    for (const Answer& answer : answers_) {
      if (answer.shape != shape) continue;
      *blocks = answer.blocks;
      return true;
    }
    return false;
  }
  // The answer to what find() has not known. Another thread may have changed settings meanwhile.
  void remember(const Shape& shape, uint64_t blocks, uint32_t settings) {
    const MutexLock lock(lock_);
    if (settings != settings_) return;
    if (answers_.size() == kMost) answers_.clear();
    answers_.push_back({shape, blocks});
  }
  // Settings of the kernel have changed, or may have.
  void forget() {
    const MutexLock lock(lock_);
    ++settings_;
    answers_.clear();
  }

 private:
  struct Answer {
    Shape shape;
    uint64_t blocks;
  };

  mutable Mutex lock_{LockRank::kClientOccupancy};
  std::vector<Answer> answers_ GUARDED_BY(lock_);
  uint32_t settings_ GUARDED_BY(lock_) = 0;  // how often they have changed
};

}  // namespace openmps::client
