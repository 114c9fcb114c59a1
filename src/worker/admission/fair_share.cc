// SPDX-License-Identifier: Apache-2.0
// See fair_share.h.
#include "worker/admission/fair_share.h"

#include <algorithm>

#include "base/mutex.h"

namespace openmps::worker {

bool FairShares::is_crowded(Rank from) {
  const MutexLock lock(mutex_);
  uint64_t busy = 0;
  for (const FairShare* share : active_) {
    const bool is_long = share->longest_ns_.load(std::memory_order_relaxed) >= kLongKernelNs;
    const bool is_below = share->rank_.load(std::memory_order_relaxed) >= from;
    if (is_long && is_below) busy += share->sms_.load(std::memory_order_relaxed);
  }
  return busy * 4 >= sms_ * 3;
}

namespace {

bool names(const FairShares::Owners& owners, const void* owner, const void* session) {
  return std::ranges::any_of(owners,
                             [=](const void* one) { return one == owner || one == session; });
}

}  // namespace

bool FairShares::works(const void* session) {
  const MutexLock lock(mutex_);
  return std::ranges::find(active_, session, &FairShare::session_) != active_.end();
}

bool FairShares::others_work(const Owners& owners, uint64_t since_ns) {
  const MutexLock lock(mutex_);
  for (const FairShare* share : active_) {
    if (!names(owners, share->owner_, share->session_)) return true;
  }
  return std::ranges::any_of(last_work_, [&owners, since_ns](const auto& entry) {
    const auto& [session, last] = entry;
    return last.ended_ns >= since_ns && !names(owners, last.owner, session);
  });
}

void FairShares::set_borrowers(std::vector<Owners> borrowers, bool are_budgets_short) {
  const MutexLock lock(mutex_);
  borrowers_ = std::move(borrowers);
  has_borrowers_.store(are_budgets_short || !borrowers_.empty(), std::memory_order_relaxed);
}

FairShare::~FairShare() {
  stop_waiting();
  const MutexLock lock(device_.mutex_);
  device_.last_work_.erase(session_);
}

void FairShare::begin_work(uint32_t sms) {
  if (sms_.load(std::memory_order_relaxed) == 0) sms_.store(sms, std::memory_order_relaxed);
  if (++busy_streams_ != 1 || device_.policy_ == nullptr) return;
  const MutexLock lock(device_.mutex_);
  device_.active_.push_back(this);
  count_locked();
  for (const FairShares::Owners& borrower : device_.borrowers_) {
    if (!names(borrower, owner_, session_)) return device_.on_work_();
  }
}

void FairShare::end_work(uint64_t now) {
  if (--busy_streams_ != 0 || device_.policy_ == nullptr) return;
  const MutexLock lock(device_.mutex_);
  std::erase(device_.active_, this);
  count_locked();
  device_.left_ns_.store(now, std::memory_order_relaxed);
  device_.last_work_[session_] = {owner_, now};
  ends_ns_.store(0, std::memory_order_relaxed);
  for (FairShare* other : device_.waiting_) {
    other->is_outdated_.store(true, std::memory_order_relaxed);
    if (other != this) other->bell_->ring();
  }
}

void FairShare::charge(uint64_t ns, uint64_t sms, uint64_t now) {
  const uint64_t kept = std::min(sms, device_.sms_);
  if (kept == 0) return;
  const uint32_t before = sms_.load(std::memory_order_relaxed);
  sms_.store(static_cast<uint32_t>((3 * before + kept + 3) / 4), std::memory_order_relaxed);
  const uint64_t of_device = ns * kept / device_.sms_;
  own_.charge(of_device, now);
  if (group_ != nullptr) group_->charge(of_device, now);
}

bool FairShare::must_wait(uint64_t now) {
  const bool outdated = is_outdated_.load(std::memory_order_relaxed) &&
                        is_outdated_.exchange(false, std::memory_order_relaxed);
  if (now < next_decision_ns_ && !outdated) return decision_.holds_kernels;
  const MutexLock lock(device_.mutex_);
  decision_ = decide_locked(now);
  const uint64_t quarter = std::max<uint64_t>(1, device_.active_.size() / 4);
  next_decision_ns_ = now + quarter * kDecideNs;
  if (waits_ && now - waiting_since_ns_ > decision_.longest_wait_ns) {
    decision_.holds_kernels = false;
  }
  if (decision_.holds_kernels && !waits_) {
    waiting_since_ns_ = now;
    // The others look rarely while nobody needs to know when their work ends.
    for (const FairShare* other : device_.active_) {
      if (other != this) other->bell_->ring();
    }
  }
  set_waiting_locked(decision_.holds_kernels);
  return decision_.holds_kernels;
}

PolicyDecision FairShare::decide_locked(uint64_t now) {
  others_.clear();
  uint64_t wanted = sms_.load(std::memory_order_relaxed);
  is_weighted_ =
      account().weight() != 0 || std::ranges::any_of(device_.active_, [](const FairShare* other) {
        return other->account().weight() != 0;
      });
  const uint64_t overdue_ns = is_weighted_ ? kWeightedOverdueNs : kOverdueNs;
  for (const FairShare* other : device_.active_) {
    const uint64_t ends_ns = other->ends_ns_.load(std::memory_order_relaxed);
    if (other == this || ends_ns + overdue_ns < now) continue;
    others_.push_back(other->input(now));
    wanted += others_.back().sms;
  }
  satisfied_ =
      wanted <= device_.sms_ ? 1 : static_cast<double>(device_.sms_) / static_cast<double>(wanted);
  return device_.policy_(input(now), others_, static_cast<uint32_t>(device_.sms_));
}

void FairShare::stop_waiting() {
  const MutexLock lock(device_.mutex_);
  set_waiting_locked(false);
}

void FairShare::count_locked() {
  const auto active = static_cast<uint32_t>(device_.active_.size());
  const auto waiting = static_cast<uint32_t>(device_.waiting_.size());
  device_.active_count_.store(active, std::memory_order_relaxed);
  device_.waiting_count_.store(waiting, std::memory_order_relaxed);
}

void FairShare::set_waiting_locked(bool waits) {
  if (std::exchange(waits_, waits) == waits) return;
  if (waits) {
    device_.waiting_.push_back(this);
  } else {
    std::erase(device_.waiting_, this);
  }
  count_locked();
}

}  // namespace openmps::worker
