// SPDX-License-Identifier: Apache-2.0
// What each session has had of a device and wants of it: the figures that the policy (policy.h)
// decides by, and its last decision. A session without competitors pays a comparison per item.
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

// Of one device, all sessions. Thread-safe.
class FairShares {
 public:
  // Sessions of that rank or below fill the device with long kernels (kLongNs). Any thread.
  [[nodiscard]] bool is_crowded(Rank from);
  // A kernel of this duration or more is long: a whole request of another session takes as much, so
  // it is worth keeping such kernels off some SMs.
  static constexpr uint64_t kLongNs = 200'000;

  // Before any session has work. Without a policy no session waits.
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
  // The sizes of these.
  std::atomic<uint32_t> active_count_{0};
  std::atomic<uint32_t> waiting_count_{0};
  std::atomic<uint64_t> left_ns_{0};  // when the work of a session last ended, by the clock
};

// Of one session on one device. The session's thread; other sessions' threads read the atomics.
class FairShare {
 public:
  // After this time what a session has had counts half: about the longest usual kernel. So no
  // session has much to catch up on, and one that asks for little now and then comes first.
  static constexpr uint64_t kHalfNs = 100'000'000;
  // The time between two decisions, for each four competing sessions: a few small kernels.
  static constexpr uint64_t kDecideNs = 100'000;
  // Work of another session that should have ended this long ago has ended, and that session has
  // not looked.
  static constexpr uint64_t kOverdueNs = 2'000'000;

  FairShare(FairShares& device, Rank rank, std::shared_ptr<Bell> bell)
      : device_(device), rank_(rank), bell_(std::move(bell)) {}
  // None of the session's streams has work.
  ~FairShare() { stop_waiting(); }
  FairShare(const FairShare&) = delete;
  FairShare& operator=(const FairShare&) = delete;

  // The session has been given work of that expected duration.
  void note_length(uint64_t ns) {
    const uint64_t known = length_ns_.load(std::memory_order_relaxed);
    const uint64_t next = ns >= known ? ns : known - (known - ns) / kForget;
    if (next != known) length_ns_.store(next, std::memory_order_relaxed);
  }
  // In force from the next decision on.
  void set_rank(Rank rank) { rank_.store(rank, std::memory_order_relaxed); }

  // A stream has its first work that keeps SMs busy, so many; or all such work of it has ended.
  // Throws std::bad_alloc.
  void begin_work(uint32_t sms);
  void end_work(uint64_t now);
  // The session's work should have ended by then.
  void expect_end(uint64_t ns) {
    if (ns > ends_ns_.load(std::memory_order_relaxed)) {
      ends_ns_.store(ns, std::memory_order_relaxed);
    }
  }
  // Work that kept so many SMs busy has taken so long, until now.
  void use(uint64_t ns, uint64_t sms, uint64_t now);

  // The number of streams with work that keeps SMs busy.
  [[nodiscard]] uint32_t busy_streams() const { return busy_streams_; }
  // Other sessions have unfinished work.
  [[nodiscard]] bool is_contested() const {
    const uint32_t own = busy_streams_ != 0 ? 1 : 0;
    return device_.active_count_.load(std::memory_order_relaxed) > own;
  }
  // Another session waits, and should learn soon when this one's work has ended: the number of
  // sessions with unfinished work, else 0.
  [[nodiscard]] uint32_t waited_for() const {
    if (device_.waiting_count_.load(std::memory_order_relaxed) == 0) return 0;
    return device_.active_count_.load(std::memory_order_relaxed);
  }
  // The part (at most 1) of the SMs wanted by all sessions that the device has, as of the last
  // decision, if others have competed since that time; else 1. Below 1 the time that work takes
  // says less about the work.
  [[nodiscard]] double part_since(uint64_t since_ns) const {
    const bool still =
        is_contested() || device_.left_ns_.load(std::memory_order_relaxed) > since_ns;
    return still ? part_ : 1;
  }
  // What the session has had of the device of late, in nanoseconds of all SMs together (kHalfNs).
  [[nodiscard]] uint64_t used_ns(uint64_t now) const;
  // How much of a stream's work the driver may have.
  [[nodiscard]] uint64_t window_ns() const { return is_contested() ? grant_.window_ns : kWindowNs; }
  // Whether the session comes behind others now: the decision in force, or a new one if it is due.
  // A session that must wait is listed as waiting until it need not or stop_waiting() is called; it
  // asks again at look_ns(). Throws std::bad_alloc.
  [[nodiscard]] bool must_wait(uint64_t now);
  [[nodiscard]] uint64_t look_ns() const { return next_decision_ns_; }
  void stop_waiting();

 private:
  friend class FairShares;
  static constexpr uint64_t kForget = 64;  // after so many items a long one counts a third

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
  std::atomic<uint64_t> length_ns_{0};  // of the longest work of late
  // Used nanoseconds as of a time. A thread that reads one of them before the other changes is
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
  std::vector<Claim> others_;  // of the last decision
};

}  // namespace openmps::worker
