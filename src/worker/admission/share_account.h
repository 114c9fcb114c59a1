// SPDX-License-Identifier: Apache-2.0
// How much a session, or the sessions of a group together, have used a device recently, and their
// weight: what the policy compares (policy.h). Any thread.
#pragma once

#include <atomic>
#include <cmath>
#include <cstdint>

namespace openmps::worker {

class ShareAccount {
 public:
  // The half-life of past use: about the time of the longest usual kernels. So no session has much
  // to catch up on, and one that has little work now and then comes first.
  static constexpr uint64_t kHalfNs = 100'000'000;

  // 0: none is stated.
  void set_weight(float weight) { weight_.store(weight, std::memory_order_relaxed); }
  [[nodiscard]] float weight() const { return weight_.load(std::memory_order_relaxed); }

  // Work that would have filled the device for `ns` has ended. Of two threads at the same moment
  // one may lose what it adds, which is one piece of work.
  void charge(uint64_t ns, uint64_t now) {
    used_ns_.store(used_ns(now) + ns, std::memory_order_relaxed);
    used_at_ns_.store(now, std::memory_order_relaxed);
  }
  // The recent use, as the time for which it would have filled all SMs.
  [[nodiscard]] uint64_t used_ns(uint64_t now) const {
    const uint64_t at = used_at_ns_.load(std::memory_order_relaxed);
    const double halves = now > at ? static_cast<double>(now - at) / kHalfNs : 0;
    const auto used = static_cast<double>(used_ns_.load(std::memory_order_relaxed));
    return static_cast<uint64_t>(used * std::exp2(-halves));
  }

 private:
  std::atomic<float> weight_{0};
  // used_ns() at the time used_at_ns_. A thread that reads one of the two between their changes is
  // wrong by one piece of work.
  std::atomic<uint64_t> used_ns_{0};
  std::atomic<uint64_t> used_at_ns_{0};
};

}  // namespace openmps::worker
