// SPDX-License-Identifier: Apache-2.0
// How much each session has used a device of late and how many SMs it wants: the input of the
// policy (policy.h), and its last decision. Without competitors this costs a comparison per item.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "worker/admission/policy.h"
#include "worker/device/background.h"

namespace openmps::worker {

class FairShare;

// The shares of all sessions on one device. Thread-safe.
class FairShares {
 public:
  // Sessions of rank `from` or lower ranks keep 3/4 of the SMs busy with long kernels (kLongNs).
  [[nodiscard]] bool is_crowded(Rank from);
  // Kernels of this duration or more are long: a whole request to another program takes as much, so
  // it is worth keeping long kernels off some SMs.
  static constexpr uint64_t kLongNs = 200'000;

  // To be called before any session has work. Without a policy no session waits.
  void set(std::unique_ptr<Policy> policy, uint32_t sms) {
    policy_ = std::move(policy);
    sms_ = sms;
  }

 private:
  friend class FairShare;

  std::unique_ptr<Policy> policy_;
  uint64_t sms_ = 1;
  Mutex mutex_{LockRank::kFairShares};
  // The sessions with unfinished work, and those that wait for others.
  std::vector<FairShare*> active_ GUARDED_BY(mutex_);
  std::vector<FairShare*> waiting_ GUARDED_BY(mutex_);
  // The sizes of active_ and waiting_, for reading without the lock.
  std::atomic<uint32_t> active_count_{0};
  std::atomic<uint32_t> waiting_count_{0};
  std::atomic<uint64_t> left_ns_{0};  // when a session last ran out of work, by the clock
};

// One session's share of one device. Session's thread only; other threads read the atomics.
class FairShare {
 public:
  // The half-life of past use in used_ns(): about the time of the longest usual kernels. So no
  // session has much to catch up on, and one that has little work now and then comes first.
  static constexpr uint64_t kHalfNs = 100'000'000;
  // The time between two decisions, the time of a few small kernels; longer from 8 sessions on.
  static constexpr uint64_t kDecideNs = 100'000;
  // A session whose work is overdue by this time is taken to have none left: its thread has not
  // looked yet.
  static constexpr uint64_t kOverdueNs = 2'000'000;

  FairShare(FairShares& device, Rank rank, std::shared_ptr<Bell> bell)
      : device_(device), rank_(rank), bell_(std::move(bell)) {}
  // To be destroyed when none of the session's streams has work.
  ~FairShare() { stop_waiting(); }
  FairShare(const FairShare&) = delete;
  FairShare& operator=(const FairShare&) = delete;

  // The session has submitted work of that expected duration.
  void note_length(uint64_t ns) {
    const uint64_t known = length_ns_.load(std::memory_order_relaxed);
    const uint64_t next = ns >= known ? ns : known - (known - ns) / kForget;
    if (next != known) length_ns_.store(next, std::memory_order_relaxed);
  }
  // Takes effect with the next decision.
  void set_rank(Rank rank) { rank_.store(rank, std::memory_order_relaxed); }

  // A stream without work that keeps SMs busy now has some, on `sms` SMs (throws std::bad_alloc);
  // all such work of a stream has ended.
  void begin_work(uint32_t sms);
  void end_work(uint64_t now);
  // The session's work is expected to end by the time `ns`.
  void expect_end(uint64_t ns) {
    if (ns > ends_ns_.load(std::memory_order_relaxed)) {
      ends_ns_.store(ns, std::memory_order_relaxed);
    }
  }
  // Work that kept `sms` SMs busy has ended after `ns`.
  void use(uint64_t ns, uint64_t sms, uint64_t now);

  // The number of streams with work that keeps SMs busy.
  [[nodiscard]] uint32_t busy_streams() const { return busy_streams_; }
  // Other sessions have unfinished work.
  [[nodiscard]] bool is_contested() const {
    const uint32_t own = busy_streams_ != 0 ? 1 : 0;
    return device_.active_count_.load(std::memory_order_relaxed) > own;
  }
  // If a session waits for its share: the number of sessions with unfinished work, which look often
  // then, so that it soon learns when theirs has ended. Else 0.
  [[nodiscard]] uint32_t waited_for() const {
    if (device_.waiting_count_.load(std::memory_order_relaxed) == 0) return 0;
    return device_.active_count_.load(std::memory_order_relaxed);
  }
  // The device's SMs divided by the SMs that all sessions want (at most 1), at the last decision; 1
  // if no other session has had work since `since_ns`. Below 1 the time that work takes may include
  // time in which it waited for SMs.
  [[nodiscard]] double part_since(uint64_t since_ns) const {
    const bool still =
        is_contested() || device_.left_ns_.load(std::memory_order_relaxed) > since_ns;
    return still ? part_ : 1;
  }
  // The session's use of late, as the time for which it would have filled all SMs (kHalfNs).
  [[nodiscard]] uint64_t used_ns(uint64_t now) const;
  // The time in the window of each of the session's streams (kWindowNs in policy.h).
  [[nodiscard]] uint64_t window_ns() const { return is_contested() ? grant_.window_ns : kWindowNs; }
  // Whether work for SMs must be held now, by the decision in force or a new one if that is due.
  // The session then counts as waiting until must_wait() is false or stop_waiting() is called. To
  // be called again at look_ns(). Throws std::bad_alloc.
  [[nodiscard]] bool must_wait(uint64_t now);
  [[nodiscard]] uint64_t look_ns() const { return next_decision_ns_; }
  void stop_waiting();

 private:
  friend class FairShares;
  static constexpr uint64_t kForget = 64;  // length_ns_ decays to a third in so many items

  [[nodiscard]] Claim claim(uint64_t now) const {
    return {rank_.load(std::memory_order_relaxed), sms_.load(std::memory_order_relaxed),
            used_ns(now)};
  }
  [[nodiscard]] Grant decide_locked(uint64_t now) REQUIRES(device_.mutex_);
  void set_waiting_locked(bool waits) REQUIRES(device_.mutex_);
  void count_active_locked() REQUIRES(device_.mutex_);

  FairShares& device_;
  std::atomic<Rank> rank_;
  const std::shared_ptr<Bell> bell_;
  std::atomic<uint32_t> sms_{0};
  std::atomic<uint64_t> length_ns_{0};  // the longest duration of late
  // used_ns() at the time used_at_ns_. A thread that reads one of the two between their changes is
  // wrong by one piece of work.
  std::atomic<uint64_t> used_ns_{0};
  std::atomic<uint64_t> used_at_ns_{0};
  std::atomic<uint64_t> ends_ns_{0};
  std::atomic<bool> is_outdated_{
      false};  // another session's work has ended since the last decision
  bool waits_ = false;
  uint32_t busy_streams_ = 0;
  double part_ = 1;
  uint64_t waiting_since_ns_ = 0;
  uint64_t next_decision_ns_ = 0;
  Grant grant_;
  std::vector<Claim> others_;  // the other sessions' claims at the last decision
};

}  // namespace openmps::worker
