// SPDX-License-Identifier: Apache-2.0
// What of a stream's work the driver may have. See stream_budget.h.
#include "worker/admission/stream_budget.h"

#include <algorithm>

namespace openmps::worker {
namespace {

using wire::HeldFor;

// Between two looks at a full window: from the cost of a look, with some work between, to a delay
// that no program notices.
constexpr uint64_t kShortestLookNs = 10'000;
constexpr uint64_t kLongestLookNs = 1'000'000;
// Work that has run for long is looked at less often: its end is seen late by so small a part of
// its time. While it is not longer than such work was before, after a greater part of that time or
// half of what is left.
constexpr uint64_t kLookShare = 32;
constexpr uint64_t kExpectedLookShare = 8;
// Between two looks whether a refused wait is over: a sixteenth of the time that it has been
// refused, from a few wake-ups of a thread to a look each millisecond (decision 17).
constexpr uint64_t kWaitPauseShare = 16;
constexpr uint64_t kShortestWaitPauseNs = 20'000;
// And at least so much for each refused wait of the session: some ten times the cost of a look.
constexpr uint64_t kRefusedLookNs = 50'000;
// How long a stream keeps its credit while others want one: some windows full.
constexpr uint64_t kTurnNs = 5'000'000;

}  // namespace

StreamBudget::StreamBudget(const ProgressTools& tools, QueueCredits* credits,
                           WaitCredits& wait_credits, std::function<bool()> make_current,
                           CUstream stream, std::atomic<uint64_t>* ends_ns)
    : clock_(tools.clock),
      durations_(tools.durations),
      share_(tools.share),
      credits_(credits),
      wait_credits_(wait_credits),
      progress_(tools, std::move(make_current), stream, ends_ns) {}

StreamBudget::~StreamBudget() { leave_share_queue(); }

// ---- Time and items -----------------------------------------------------------------------------

// A full window is full until half of it is free: its thread comes each millisecond, not for each
// item. An item that is longer than the window goes when half of the window is left before it.
bool StreamBudget::is_window_full(const Cost& cost) {
  const uint64_t now = clock_.now_ns();
  if (full_ && is_too_soon(now)) return true;
  look(now);
  const WorkTotal& total = progress_.total();
  const uint64_t remaining = progress_.is_empty() ? 0 : progress_.remaining_ns(now);
  const uint64_t window = share_.window_ns();
  const uint64_t half = window / 2;
  const bool is_long = remaining > half && (full_ || remaining + durations_.of(cost) > window);
  full_ =
      is_long || total.unknown >= kWindowUnknown || total.items >= kWindowItems / (full_ ? 2 : 1);
  if (is_long) claim_.reset();  // the stream could do nothing with a credit
  look_again_in(remaining > half ? remaining - half : 0, now);
  return full_;
}

// ---- The fair share -----------------------------------------------------------------------------

// Copies are in nobody's way.
void StreamBudget::admit_share(const Cost& cost, Verdict& verdict) {
  if (cost.sms == 0) return;
  const uint64_t now = clock_.now_ns();
  waits_for_share_ = share_.must_wait(now);
  if (!waits_for_share_) return;
  next_look_ns_ = std::max(share_.look_ns(), now + kShortestLookNs);
  verdict.refuse(HeldFor::kFairShare, next_look_ns_);
}

// ---- Credits for hardware queues ----------------------------------------------------------------

// A stream keeps its credit while it works, and for a while after: it takes one once, not for each
// item.
void StreamBudget::admit_queued(const Cost& cost, Verdict& verdict) {
  const bool is_known = !is_learning() && durations_.is_known(cost);
  const bool ends_soon = is_known && progress_.total().expected_ns + durations_.of(cost) <= kLongNs;
  const CreditTerm term = ends_soon ? CreditTerm::kShort : CreditTerm::kUnknown;
  if (credit_ == nullptr && try_take_credit(term, verdict)) return;
  const uint64_t now = clock_.now_ns();
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

// Nobody knows when a wait is over.
bool StreamBudget::take_wait_credit(Verdict& verdict) {
  if (wait_credit_ || verdict.admitted.wait_credit) return true;
  WaitCredit credit = wait_credits_.try_take(*credits_);
  if (!credit || !take_or_claim_credit(CreditTerm::kUnknown, verdict)) return false;
  verdict.admitted.wait_credit = std::move(credit);
  return true;
}

// A wait without a credit is submitted when it is over. Asking has_come() costs a call or two.
void StreamBudget::admit_wait(const Condition& condition, Verdict& verdict) {
  const bool has_credit =
      credits_ == nullptr ||
      (condition.term == CreditTerm::kShort ? take_or_claim_credit(condition.term, verdict)
                                            : take_wait_credit(verdict));
  if (has_credit) return;
  const uint64_t now = clock_.now_ns();
  if (refusal_ == nullptr) {
    refusal_ = wait_credits_.count_refused();
    refused_ns_ = now;
    asked_ns_ = 0;
  }
  if (now >= asked_ns_ + wait_pause_ns(now)) {
    // The work may have another condition: that one is asked at once, too.
    asked_ns_ = 0;
    if (condition.has_come()) return;
    asked_ns_ = now;
  }
  verdict.refuse(condition.why, asked_ns_ + wait_pause_ns(now));
}

// The refused waits of a session together are looked at no more often than some.
uint64_t StreamBudget::wait_pause_ns(uint64_t now) const {
  const uint64_t longest = std::max(kLongestLookNs, wait_credits_.refused() * kRefusedLookNs);
  return std::clamp((now - refused_ns_) / kWaitPauseShare, kShortestWaitPauseNs, longest);
}

// Behind the work the stream waits for its cold stream, and occupies a hardware queue although it
// may have been empty. Of a device with one credit that is left out: the stream that has the credit
// may be waiting for this very work.
void StreamBudget::admit_cold(Verdict& verdict) {
  if (progress_.total().outer_waits != 0) {
    const uint64_t now = clock_.now_ns();
    look(now);
    look_again_in(kLongestLookNs, now);
    if (progress_.total().outer_waits != 0) {
      return verdict.refuse(HeldFor::kStreamBudget, next_look_ns_);
    }
  }
  if (credits_ == nullptr || !credits_->keeps_some()) return;
  const auto never = [] { return false; };
  admit_wait({.waits = Condition::Waits::kOnGpu,
              .why = HeldFor::kQueueCredit,
              .term = CreditTerm::kShort,
              .has_come = never},
             verdict);
}

void StreamBudget::keep(QueueCredit&& credit, WaitCredit&& wait_credit) {
  if (credit != nullptr) {
    credit_ = std::move(credit);
    credit_since_ns_ = clock_.now_ns();
  }
  if (wait_credit) wait_credit_ = std::move(wait_credit);
}

void StreamBudget::give_back_credits() {
  wait_credit_ = {};
  credit_.reset();
  yields_ = false;
}

// ---- Looks --------------------------------------------------------------------------------------

void StreamBudget::mark() {
  if (credit_ != nullptr && credits_->are_wanted() &&
      clock_.now_ns() - credit_since_ns_ > kTurnNs) {
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
  // A lone kernel needs no credit. Until the next look others would wait for it in vain.
  if (credit_ != nullptr && progress_.is_lone() && remaining > kLongNs) give_back_credits();
  if (share_.is_contested()) share_.expect_end(now + remaining);
}

uint64_t StreamBudget::look_after(uint64_t now) {
  // A full window is also looked at for what is held back: once is enough.
  if (!is_learning() && waited_for() == 0 && is_too_soon(now)) return next_look_ns_ - now;
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
  leave_share_queue();
}

void StreamBudget::look_again_in(uint64_t ns, uint64_t now) {
  next_look_ns_ = now + std::clamp(ns, kShortestLookNs, longest_pause_ns(now));
}

// Nobody knows when a wait is over, and others may need the stream's credit.
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
