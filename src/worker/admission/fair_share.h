// SPDX-License-Identifier: Apache-2.0
// What each session has had of a device and wants of it, for the policy (policy.h), and what that
// has said. A session that nobody competes with pays a comparison per item for it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "worker/admission/policy.h"
#include "worker/device/background.h"

namespace openmps::worker {

class FairShare;

// Of one device, all sessions. Thread-safe.
class FairShares {
 public:
  // Sessions of that rank or below fill the device with kernels that others would have to wait for
  // (kLongNs). Any thread.
  [[nodiscard]] bool is_crowded(Rank from);
  // What takes so long is worth to be kept off some SMs: the kernels of a whole request take as
  // much.
  static constexpr uint64_t kLongNs = 200'000;

  // Before anybody has work. Without a policy nobody waits.
  void set(std::unique_ptr<Policy> policy, uint32_t sms) {
    policy_ = std::move(policy);
    sms_ = sms;
  }

 private:
  friend class FairShare;

  std::unique_ptr<Policy> policy_;
  uint64_t sms_ = 1;
  std::mutex mutex_;
  // Guarded by mutex_: those with unfinished work, and those that wait.
  std::vector<FairShare*> active_;
  std::vector<FairShare*> waiting_;
  // How many these are.
  std::atomic<uint32_t> active_count_{0};
  std::atomic<uint32_t> waiting_count_{0};
  std::atomic<uint64_t> left_ns_{0};  // when one of them was last done, by now_ns()
};

// Of one session on one device. Session's thread, but for what the others read.
class FairShare {
 public:
  // What a session has had counts half after so long: some of the longest kernels that are usual.
  // So nobody has much to make up for, and who asks for little now and then comes first.
  static constexpr uint64_t kHalfNs = 100'000'000;
  // Between two decisions, times a quarter of the sessions that compete: a few small kernels.
  static constexpr uint64_t kDecideNs = 100'000;
  // So long does a session wait at most before something of it goes, whatever the others do: what
  // they run may need it.
  static constexpr uint64_t kLongestWaitNs = 50'000'000;
  // Work that should have ended so long ago has, and its session has not looked.
  static constexpr uint64_t kOverdueNs = 2'000'000;

  FairShare(FairShares& device, Rank rank, std::shared_ptr<Bell> bell)
      : device_(device), rank_(rank), bell_(std::move(bell)) {}
  // None of its streams has work.
  ~FairShare() { stop_waiting(); }
  FairShare(const FairShare&) = delete;
  FairShare& operator=(const FairShare&) = delete;

  // It has been given something that is expected to take so long.
  void note_length(uint64_t ns) {
    const uint64_t known = length_ns_.load(std::memory_order_relaxed);
    const uint64_t next = ns >= known ? ns : known - (known - ns) / kForget;
    if (next != known) length_ns_.store(next, std::memory_order_relaxed);
  }
  // From the next decision on.
  void set_rank(Rank rank) { rank_.store(rank, std::memory_order_relaxed); }

  // One of its streams has been given something that keeps so many SMs busy, and had nothing of the
  // kind; or has nothing left. Throws std::bad_alloc.
  void begin_work(uint32_t sms);
  void end_work(uint64_t now);
  // What it has been given should have ended by then, by now_ns().
  void expect_end(uint64_t ns) {
    if (ns > ends_ns_.load(std::memory_order_relaxed)) {
      ends_ns_.store(ns, std::memory_order_relaxed);
    }
  }
  // Work that kept so many SMs busy took so long, until now.
  void use(uint64_t ns, uint64_t sms, uint64_t now);

  // Of its streams so many have such work.
  [[nodiscard]] uint32_t busy_streams() const { return busy_streams_; }
  // Other sessions have unfinished work.
  [[nodiscard]] bool is_contested() const {
    const uint32_t own = busy_streams_ != 0 ? 1 : 0;
    return device_.active_count_.load(std::memory_order_relaxed) > own;
  }
  // Another one waits, and should learn soon that this one has nothing left: how many sessions have
  // unfinished work then, else 0.
  [[nodiscard]] uint32_t waited_for() const {
    if (device_.waiting_count_.load(std::memory_order_relaxed) == 0) return 0;
    return device_.active_count_.load(std::memory_order_relaxed);
  }
  // The part of the SMs that the sessions want together which the device has, at most 1: the least
  // since then, as far as the last decision knew. How long work takes says less about it below 1.
  [[nodiscard]] double part_since(uint64_t since_ns) const {
    const bool still =
        is_contested() || device_.left_ns_.load(std::memory_order_relaxed) > since_ns;
    return still ? part_ : 1;
  }
  // What it has had of the device of late, in nanoseconds of all SMs together: what was kHalfNs ago
  // counts half.
  [[nodiscard]] uint64_t used_ns(uint64_t now) const;
  // How much of a stream's work may be with the driver.
  [[nodiscard]] uint64_t window_ns() const { return is_contested() ? grant_.window_ns : kWindowNs; }
  // No work for SMs may be submitted now. If so, ask again at look_ns(). Throws std::bad_alloc.
  [[nodiscard]] bool must_wait(uint64_t now);
  [[nodiscard]] uint64_t look_ns() const { return next_decision_ns_; }
  // What waited has been submitted all the same, or there is nothing any more.
  void stop_waiting();

 private:
  [[nodiscard]] Claim claim(uint64_t now) const {
    return {rank_.load(std::memory_order_relaxed), sms_.load(std::memory_order_relaxed),
            used_ns(now)};
  }
  [[nodiscard]] Grant decide_locked(uint64_t now);
  void set_waiting_locked(bool waits);
  void count_active_locked();

  FairShares& device_;
  std::atomic<Rank> rank_;
  static constexpr uint64_t kForget = 64;  // items after which a long one counts a third

  friend class FairShares;
  const std::shared_ptr<Bell> bell_;
  std::atomic<uint32_t> sms_{0};
  std::atomic<uint64_t> length_ns_{0};  // of the longest of late
  // As of that time. Who reads one of them before the other changes is wrong by one piece of work.
  std::atomic<uint64_t> used_ns_{0};
  std::atomic<uint64_t> used_at_ns_{0};
  std::atomic<uint64_t> ends_ns_{0};
  std::atomic<bool> is_outdated_{false};  // others have ended since the last decision
  bool waits_ = false;
  uint32_t busy_streams_ = 0;
  double part_ = 1;
  uint64_t waiting_since_ns_ = 0;
  uint64_t next_decision_ns_ = 0;
  Grant grant_;
  std::vector<Claim> others_;  // of the last decision
};

}  // namespace openmps::worker
