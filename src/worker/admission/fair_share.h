// SPDX-License-Identifier: Apache-2.0
// How much each session has used a device recently and how many SMs it keeps busy: the input of the
// policy (policy.h), and the policy's last decision on the session. Without competitors this costs
// a comparison per item. Times are those of Clock::now_ns(). Kernels: as in policy.h.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "worker/admission/policy.h"
#include "worker/admission/share_account.h"
#include "worker/device/background.h"

namespace openmps::worker {

class FairShare;

// The sessions that compete for one device. Thread-safe.
class FairShares {
 public:
  // Sessions of rank `from` or lower ranks (greater values) keep 3/4 of the SMs busy with long
  // kernels (kLongKernelNs). For partitions/demand.h.
  [[nodiscard]] bool is_crowded(Rank from);
  // Kernels of this duration or more are long here: a whole request to another program takes as
  // much, so it is worth keeping them off the few SMs on which such requests run (decision 31).
  static constexpr uint64_t kLongKernelNs = 200'000;

  // To be called before any session has work. Without a policy no kernels are held, and nobody has
  // work as far as others_work() knows.
  void set_policy(Policy policy, uint32_t sms) {
    policy_ = policy;
    sms_ = sms;
  }

  // Owners of work, for partitions/sm_partitions.h: the group of a session, or the session itself.
  // Who has others' SMs (docs/decisions/0051) gives them back when one of these has work.
  // Sessions of a group may also be named one by one.
  using Owners = std::vector<const void*>;
  // Whether that session has unfinished kernels.
  [[nodiscard]] bool works(const void* session);
  // Whether a session of none of these owners has unfinished kernels, or had some at the time
  // `since_ns` or later.
  [[nodiscard]] bool others_work(const Owners& owners, uint64_t since_ns);
  // Some have others' SMs from now on: when an owner that is not named in one of the lists has
  // kernels, `on_work` is called, by any thread, with locks held. Stream budgets are short while
  // there is such a list, or `are_budgets_short`.
  void set_borrowers(std::vector<Owners> borrowers, bool are_budgets_short = false);
  void on_others_work(std::function<void()> call) { on_work_ = std::move(call); }

 private:
  friend class FairShare;

  Policy policy_ = nullptr;
  uint64_t sms_ = 1;
  Mutex mutex_{LockRank::kFairShares};
  // The sessions with unfinished kernels, and those whose kernels are held.
  std::vector<FairShare*> active_ GUARDED_BY(mutex_);
  std::vector<FairShare*> waiting_ GUARDED_BY(mutex_);
  // The sizes of active_ and waiting_, for reading without the lock.
  std::atomic<uint32_t> active_count_{0};
  std::atomic<uint32_t> waiting_count_{0};
  std::atomic<uint64_t> left_ns_{0};  // when a session last ran out of kernels
  struct LastWork {
    const void* owner = nullptr;
    uint64_t ended_ns = 0;
  };
  std::map<const void*, LastWork> last_work_ GUARDED_BY(mutex_);  // by session
  std::vector<Owners> borrowers_ GUARDED_BY(mutex_);
  std::atomic<bool> has_borrowers_{false};
  std::function<void()> on_work_ = [] {};
};

// One session's share of one device. Session's thread only; other threads read the atomics.
class FairShare {
 public:
  // The time between two decisions, the time of a few small kernels; longer from 8 sessions on.
  static constexpr uint64_t kDecideNs = 100'000;
  // A session whose kernels should have ended this long ago is taken to have none left: its thread
  // has not checked its marks yet.
  static constexpr uint64_t kOverdueNs = 2'000'000;
  // With weights a session's kernels may be so late because the others' take their time, too: some
  // of the longest usual kernels.
  static constexpr uint64_t kWeightedOverdueNs = 200'000'000;

  // `group`: the account of the session's group, which has none of its own while that has a weight;
  // null: it is in none. `owner`: see FairShares; null: its own. `session`: by which FairShares
  // knows it beside others of its owner; null: there are none.
  FairShare(FairShares& device, Rank rank, std::shared_ptr<Bell> bell,
            ShareAccount* group = nullptr, const void* owner = nullptr,
            const void* session = nullptr)
      : device_(device),
        owner_(owner != nullptr ? owner : this),
        session_(session != nullptr ? session : owner_),
        group_(group),
        rank_(rank),
        bell_(std::move(bell)) {}
  // To be destroyed when none of the session's streams has work.
  ~FairShare();
  FairShare(const FairShare&) = delete;
  FairShare& operator=(const FairShare&) = delete;

  // The session has submitted a kernel of that expected duration. The longest recent one counts.
  void note_duration(uint64_t ns) {
    const uint64_t known = longest_ns_.load(std::memory_order_relaxed);
    const uint64_t next = ns >= known ? ns : known - (known - ns) / kForget;
    if (next != known) longest_ns_.store(next, std::memory_order_relaxed);
  }
  // Takes effect with the next decision.
  void set_rank(Rank rank) { rank_.store(rank, std::memory_order_relaxed); }
  // The session's own weight; 0: none is stated. As set_rank(), any thread.
  void set_weight(float weight) { own_.set_weight(weight); }

  // A stream that had no unfinished kernels has been given one, which keeps `sms` SMs busy (throws
  // std::bad_alloc); all work of such a stream has ended, but for waits.
  void begin_work(uint32_t sms);
  void end_work(uint64_t now);
  // The session's work is not expected to end before the time `end_ns`.
  void expect_end(uint64_t end_ns) {
    if (end_ns > ends_ns_.load(std::memory_order_relaxed)) {
      ends_ns_.store(end_ns, std::memory_order_relaxed);
    }
  }
  // Work has ended that took `ns` and kept `sms` SMs busy: it is added to the session's use.
  void charge(uint64_t ns, uint64_t sms, uint64_t now);

  // The number of streams with unfinished kernels.
  [[nodiscard]] uint32_t busy_streams() const { return busy_streams_; }
  // Other sessions have unfinished kernels.
  [[nodiscard]] bool is_contested() const {
    const uint32_t own = busy_streams_ != 0 ? 1 : 0;
    return device_.active_count_.load(std::memory_order_relaxed) > own;
  }
  // If kernels of some session are held for its share: the number of sessions with unfinished
  // kernels. These check their marks often then, so that the session that waits soon learns when
  // their work has ended. Else 0.
  [[nodiscard]] uint32_t sessions_waited_for() const {
    if (device_.waiting_count_.load(std::memory_order_relaxed) == 0) return 0;
    return device_.active_count_.load(std::memory_order_relaxed);
  }
  // Which fraction of the SMs that all sessions want the device has (at most 1), at the last
  // decision; 1 if no other session has had kernels since `since_ns`. Below 1 the time that work
  // takes may include time in which it waited for SMs.
  [[nodiscard]] double satisfied_since(uint64_t since_ns) const {
    const bool had_others =
        is_contested() || device_.left_ns_.load(std::memory_order_relaxed) > since_ns;
    return had_others ? satisfied_ : 1;
  }
  // Weights counted at the last decision: parts of time are to be exact.
  [[nodiscard]] bool is_weighted() const { return is_weighted_; }
  // ShareAccount::used_ns() of the session's own account.
  [[nodiscard]] uint64_t used_ns(uint64_t now) const { return own_.used_ns(now); }
  // The time of the budget of each of the session's streams.
  [[nodiscard]] uint64_t budget_ns() const {
    if (device_.has_borrowers_.load(std::memory_order_relaxed)) return kShortBudgetNs;
    return is_contested() ? decision_.budget_ns : kBudgetNs;
  }
  // Whether kernels must be held now, by the decision in force or a new one if that is due. The
  // session then counts as waiting until must_wait() is false or stop_waiting() is called. To be
  // called again at next_decision_ns(). Throws std::bad_alloc.
  [[nodiscard]] bool must_wait(uint64_t now);
  [[nodiscard]] uint64_t next_decision_ns() const { return next_decision_ns_; }
  void stop_waiting();

 private:
  friend class FairShares;
  static constexpr uint64_t kForget = 64;  // longest_ns_ decays to a third in so many kernels

  // What it has submitted and is not charged yet, as the time for which that fills all SMs.
  [[nodiscard]] uint64_t submitted_ns(uint64_t now) const {
    const uint64_t ends_ns = ends_ns_.load(std::memory_order_relaxed);
    const uint64_t sms = std::min<uint64_t>(sms_.load(std::memory_order_relaxed), device_.sms_);
    return ends_ns > now ? (ends_ns - now) * sms / device_.sms_ : 0;
  }
  [[nodiscard]] const ShareAccount& account() const {
    return group_ != nullptr && group_->weight() != 0 ? *group_ : own_;
  }
  [[nodiscard]] PolicyInput input(uint64_t now) const {
    const ShareAccount& account = this->account();
    return {.rank = rank_.load(std::memory_order_relaxed),
            .sms = sms_.load(std::memory_order_relaxed),
            .used_ns = account.used_ns(now),
            .weight = account.weight(),
            .weighed_ns = account.weighed_ns(now) + submitted_ns(now),
            .account = &account};
  }
  [[nodiscard]] PolicyDecision decide_locked(uint64_t now) REQUIRES(device_.mutex_);
  void set_waiting_locked(bool waits) REQUIRES(device_.mutex_);
  void count_locked() REQUIRES(device_.mutex_);

  FairShares& device_;
  const void* const owner_;
  const void* const session_;
  ShareAccount* const group_;
  ShareAccount own_;
  std::atomic<Rank> rank_;
  const std::shared_ptr<Bell> bell_;
  std::atomic<uint32_t> sms_{0};
  std::atomic<uint64_t> longest_ns_{0};  // the longest recent duration
  std::atomic<uint64_t> ends_ns_{0};
  // Another session's kernels have ended since the last decision.
  std::atomic<bool> is_outdated_{false};
  bool waits_ = false;
  bool is_weighted_ = false;
  uint32_t busy_streams_ = 0;
  double satisfied_ = 1;  // at the last decision (satisfied_since())
  uint64_t waiting_since_ns_ = 0;
  uint64_t next_decision_ns_ = 0;
  PolicyDecision decision_;
  std::vector<PolicyInput> others_;  // the other sessions' at the last decision
};

}  // namespace openmps::worker
