// SPDX-License-Identifier: Apache-2.0
// How much unfinished work of a stream the driver may have. See stream_budget.h.
#include "worker/admission/stream_budget.h"

#include <algorithm>

namespace openmps::worker {
namespace {

using wire::HeldFor;

// Bounds of the time between two looks at a full budget: a few times the cost of a look, and a
// delay that no program notices.
constexpr uint64_t kShortestLookNs = 10'000;
constexpr uint64_t kLongestLookNs = 1'000'000;
// The time between two looks grows with the time that the work has run, so that its end is seen
// late by a small part of that time: a 32nd; or, while it has run for less than its known duration,
// an eighth, or half of what is left of that duration if this is less.
constexpr uint64_t kLookShare = 32;
constexpr uint64_t kExpectedLookShare = 8;
// The pause between two calls of has_come() for a wait without a credit: a sixteenth of the time
// since its first refusal, but at least the time of a few thread wake-ups and at most 1 ms
// (decision 17).
constexpr uint64_t kPollPauseShare = 16;
constexpr uint64_t kShortestPollPauseNs = 20'000;
// With many such waits the longest pause is this time for each, ten times the cost of a call.
constexpr uint64_t kPollNs = 50'000;
// How long a stream may keep its credit while others want one: a few times kBudgetNs.
constexpr uint64_t kTurnNs = 5'000'000;

}  // namespace

StreamBudget::StreamBudget(const ProgressTools& tools, QueueCredits* credits,
                           WaitCredits& wait_credits, std::function<bool()> make_current,
                           CUstream stream, std::atomic<uint64_t>* ends_ns)
    : tools_(tools),
      credits_(credits),
      wait_credits_(wait_credits),
      progress_(tools_, std::move(make_current), stream, ends_ns) {}

StreamBudget::~StreamBudget() { stop_waiting_for_share(); }

// ---- Time and items -----------------------------------------------------------------------------

// A budget that was full counts as full until half of it is free, so that the session's thread
// wakes each millisecond, not for each item. An item longer than the budget is admitted once the
// work before it takes at most half a budget.
bool StreamBudget::is_budget_full(const Cost& cost) {
  const uint64_t now = tools_.clock.now_ns();
  if (full_ && is_too_soon(now)) return true;
  look(now);
  const WorkTotal& total = progress_.total();
  const uint64_t remaining = progress_.is_empty() ? 0 : progress_.remaining_ns(now);
  const uint64_t budget = tools_.share.budget_ns();
  const uint64_t half = budget / 2;
  const bool is_long =
      remaining > half && (full_ || remaining + tools_.durations.of(cost) > budget);
  full_ =
      is_long || total.unknown >= kBudgetUnknown || total.items >= kBudgetItems / (full_ ? 2 : 1);
  if (is_long) claim_.reset();  // with a credit the stream still could not submit
  look_again_in(remaining > half ? remaining - half : 0, now);
  return full_;
}

// ---- The fair share -----------------------------------------------------------------------------

// Work that needs no SMs, as a copy, is not held for a fair share.
void StreamBudget::admit_share(const Cost& cost, Verdict& verdict) {
  if (cost.sms == 0) return;
  const uint64_t now = tools_.clock.now_ns();
  waits_for_share_ = tools_.share.must_wait(now);
  if (!waits_for_share_) return;
  next_look_ns_ = std::max(tools_.share.next_decision_ns(), now + kShortestLookNs);
  verdict.refuse(HeldFor::kFairShare, next_look_ns_);
}

// ---- Credits for hardware queues ----------------------------------------------------------------

// A stream keeps its credit while it has unfinished work, and for a while after that, so that it
// does not take one for each item.
void StreamBudget::admit_queued(const Cost& cost, Verdict& verdict) {
  const bool is_known = !is_learning() && tools_.durations.is_known(cost);
  const bool ends_soon =
      is_known && progress_.total().expected_ns + tools_.durations.of(cost) <= kShortTermNs;
  const CreditTerm term = ends_soon ? CreditTerm::kShort : CreditTerm::kUnknown;
  if (credit_ == nullptr && try_take_credit(term, verdict)) return;
  const uint64_t now = tools_.clock.now_ns();
  if (claim_ == nullptr || !is_too_soon(now)) {
    look(now);
    if (progress_.is_empty() || (take_or_claim_credit(term, verdict) && !yields_)) return;
    look_again_in(progress_.remaining_ns(now), now);
  }
  verdict.refuse(HeldFor::kQueueCredit, next_look_ns_);
}

bool StreamBudget::try_take_credit(CreditTerm term, Verdict& verdict) {
  if (credit_ != nullptr || verdict.admitted.queue_credit != nullptr) return true;
  if (claim_ != nullptr && claim_.term != term) claim_.reset();
  verdict.admitted.queue_credit = credits_->try_take(claim_ != nullptr, term);
  if (verdict.admitted.queue_credit == nullptr) return false;
  claim_.reset();
  return true;
}

bool StreamBudget::take_or_claim_credit(CreditTerm term, Verdict& verdict) {
  if (try_take_credit(term, verdict)) return true;
  if (claim_ == nullptr) claim_ = credits_->claim(term);
  return false;
}

// The end of the wait is unknown, so the queue credit is asked for an unknown term.
bool StreamBudget::take_wait_credit(Verdict& verdict) {
  if (wait_credit_ || verdict.admitted.wait_credit) return true;
  WaitCredit credit = wait_credits_.try_take(*credits_);
  if (!credit || !take_or_claim_credit(CreditTerm::kUnknown, verdict)) return false;
  verdict.admitted.wait_credit = std::move(credit);
  return true;
}

// A wait without a credit is held until has_come(), which makes one or two calls of the driver.
void StreamBudget::admit_wait(const Condition& condition, Verdict& verdict) {
  const bool has_credit =
      credits_ == nullptr ||
      (condition.term == CreditTerm::kShort ? take_or_claim_credit(condition.term, verdict)
                                            : take_wait_credit(verdict));
  if (has_credit) return;
  const uint64_t now = tools_.clock.now_ns();
  if (polling_ == nullptr) {
    polling_ = wait_credits_.count_polling();
    polling_since_ns_ = now;
    polled_ns_ = 0;
  }
  if (now >= polled_ns_ + poll_pause_ns(now)) {
    // If this condition has come, the work's next condition is checked without a pause.
    polled_ns_ = 0;
    if (condition.has_come()) return;
    polled_ns_ = now;
  }
  verdict.refuse(condition.why, polled_ns_ + poll_pause_ns(now));
}

// The longest pause grows with the number of streams that poll, so that all of them cost little.
uint64_t StreamBudget::poll_pause_ns(uint64_t now) const {
  const uint64_t longest = std::max(kLongestLookNs, wait_credits_.polling() * kPollNs);
  return std::clamp((now - polling_since_ns_) / kPollPauseShare, kShortestPollPauseNs, longest);
}

// The stream will wait for the work of its cold stream, so it will occupy a hardware queue even if
// it has no work of its own: that takes a credit. On a device with only one credit it takes none:
// the stream that has the credit may be waiting for this very work.
void StreamBudget::admit_cold(Verdict& verdict) {
  if (progress_.total().outer_waits != 0) {
    const uint64_t now = tools_.clock.now_ns();
    look(now);
    if (progress_.total().outer_waits != 0) {
      look_again_in(kLongestLookNs, now);
      return verdict.refuse(HeldFor::kStreamBudget, next_look_ns_);
    }
  }
  if (credits_ == nullptr || !credits_->reserves_for_short()) return;
  const auto never = [] { return false; };
  admit_wait({HeldFor::kQueueCredit, never, CreditTerm::kShort}, verdict);
}

void StreamBudget::keep(Admitted& taken) {
  if (taken.queue_credit != nullptr) {
    credit_ = std::move(taken.queue_credit);
    credit_since_ns_ = tools_.clock.now_ns();
  }
  if (taken.wait_credit) wait_credit_ = std::move(taken.wait_credit);
}

void StreamBudget::give_back_credits() {
  wait_credit_ = {};
  credit_.reset();
  yields_ = false;
}

// ---- Looks --------------------------------------------------------------------------------------

void StreamBudget::mark() {
  if (credit_ != nullptr && credits_->are_wanted() &&
      tools_.clock.now_ns() - credit_since_ns_ > kTurnNs) {
    yields_ = true;
  }
  progress_.mark();
}

void StreamBudget::look(uint64_t now) {
  mark();
  progress_.look(now);
  if (progress_.total().waits == 0) wait_credit_ = {};
  if (progress_.is_empty()) {
    full_ = false;
    claim_.reset();
    if (credit_ != nullptr && (yields_ || credits_->are_wanted())) give_back_credits();
    return;
  }
  const uint64_t remaining = progress_.remaining_ns(now);
  // Lone work occupies no hardware queue: others need not wait for its credit until the next look.
  if (credit_ != nullptr && progress_.is_lone() && remaining > kShortTermNs) give_back_credits();
  if (tools_.share.is_contested()) tools_.share.expect_end(now + remaining);
}

uint64_t StreamBudget::look_and_release(uint64_t now) {
  // Work held by a full budget has its own next look: one before that is not needed.
  if (!is_learning() && sessions_waited_for() == 0 && is_too_soon(now)) return next_look_ns_ - now;
  look(now);
  if (progress_.is_empty() && !used_) give_back_credits();
  used_ = false;
  return longest_pause_ns(now);
}

void StreamBudget::end(uint64_t now) {
  progress_.end(now);
  give_back_credits();
  claim_.reset();
  full_ = false;
  stop_waiting_for_share();
}

void StreamBudget::look_again_in(uint64_t ns, uint64_t now) {
  next_look_ns_ = now + std::clamp(ns, kShortestLookNs, longest_pause_ns(now));
}

// A stream with a wait is looked at each millisecond: its end is unknown, its credit may be wanted.
uint64_t StreamBudget::longest_pause_ns(uint64_t now) const {
  const WorkTotal& total = progress_.total();
  if (total.items == 0 || total.waits != 0) return kLongestLookNs;
  const uint64_t ran = progress_.ran_ns(now);
  const uint64_t expected = progress_.first_expected_ns();
  const bool as_expected = total.unknown == 0 && ran < expected;
  const uint64_t known = as_expected ? std::min((expected - ran) / 2, ran / kExpectedLookShare) : 0;
  return std::max({kLongestLookNs, ran / kLookShare, known});
}

}  // namespace openmps::worker
