// SPDX-License-Identifier: Apache-2.0
// A clock whose time a test sets. A sleep lets the time pass at once.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

#include "base/clock.h"

namespace openmps {

class ManualClock final : public Clock {
 public:
  explicit ManualClock(uint64_t now = 1'000'000'000) : now_(now) {}
  [[nodiscard]] uint64_t now_ns() const override { return now_.load(std::memory_order_relaxed); }
  void sleep(uint64_t ns) const override {
    now_.fetch_add(ns, std::memory_order_relaxed);
    std::this_thread::yield();
  }
  void advance(uint64_t ns) { now_.fetch_add(ns, std::memory_order_relaxed); }

 private:
  mutable std::atomic<uint64_t> now_;
};

}  // namespace openmps
