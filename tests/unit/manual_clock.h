// SPDX-License-Identifier: Apache-2.0
// A clock whose time a test sets.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace openmps {

class ManualClock final : public Clock {
 public:
  explicit ManualClock(uint64_t now = 1'000'000'000) : now_(now) {}
  [[nodiscard]] uint64_t now_ns() const override { return now_.load(std::memory_order_relaxed); }
  void advance(uint64_t ns) { now_.fetch_add(ns, std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> now_;
};

}  // namespace openmps
