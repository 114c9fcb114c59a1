// SPDX-License-Identifier: Apache-2.0
// How much a session, or the sessions of a group together, have used a device recently, and their
// weight: what the policy compares (policy.h). Any thread.
#pragma once

#include <atomic>
#include <cmath>
#include <cstdint>

namespace openmps::worker {

// Time that counts less the longer it is ago.
class RecentUse {
 public:
  explicit RecentUse(uint64_t half_ns) : half_ns_(half_ns) {}

  // Of two threads at the same moment one may lose what it adds, which is one piece of work.
  void add(uint64_t ns, uint64_t now) {
    ns_.store(at(now) + ns, std::memory_order_relaxed);
    at_ns_.store(now, std::memory_order_relaxed);
  }
  [[nodiscard]] uint64_t at(uint64_t now) const {
    const uint64_t since = at_ns_.load(std::memory_order_relaxed);
    const double halves =
        now > since ? static_cast<double>(now - since) / static_cast<double>(half_ns_) : 0;
    const auto used = static_cast<double>(ns_.load(std::memory_order_relaxed));
    return static_cast<uint64_t>(used * std::exp2(-halves));
  }

 private:
  const uint64_t half_ns_;
  // at() at the time at_ns_. A thread that reads one of the two between their changes is wrong by
  // one piece of work.
  std::atomic<uint64_t> ns_{0};
  std::atomic<uint64_t> at_ns_{0};
};

class ShareAccount {
 public:
  // The half-life of past use: about the time of the longest usual kernels. So no session has much
  // to catch up on, and one that has little work now and then comes first.
  static constexpr uint64_t kHalfNs = 100'000'000;
  // And where there are weights: a session that may run its next kernel once it has used its part
  // gets half a kernel more than that, which has to be little beside what it has used.
  static constexpr uint64_t kWeighedHalfNs = 400'000'000;

  // 0: none is stated.
  void set_weight(float weight) { weight_.store(weight, std::memory_order_relaxed); }
  [[nodiscard]] float weight() const { return weight_.load(std::memory_order_relaxed); }

  // Work that would have filled the device for `ns` has ended.
  void charge(uint64_t ns, uint64_t now) {
    used_.add(ns, now);
    weighed_.add(ns, now);
  }
  // The recent use, as the time for which it would have filled all SMs.
  [[nodiscard]] uint64_t used_ns(uint64_t now) const { return used_.at(now); }
  [[nodiscard]] uint64_t weighed_ns(uint64_t now) const { return weighed_.at(now); }

 private:
  std::atomic<float> weight_{0};
  RecentUse used_{kHalfNs};
  RecentUse weighed_{kWeighedHalfNs};
};

}  // namespace openmps::worker
