// SPDX-License-Identifier: Apache-2.0
// The budget of one stream: how much unfinished work of the stream the driver may have, by number
// of items and by estimated time on the GPU (decision 18). Whether more work may be submitted also
// depends on queue credits (decision 23) and on the session's fair share (decision 25), which are
// asked here as well. Other work stays in the Backlog, so that the shared context drains in
// milliseconds whatever its clients have queued. Session's thread only.
//
// For each piece of work: admit_...(), then keep() with the tokens of the verdict, prepare() if it
// takes the GPU's time, note_submitting(), the driver's call, add...() and, for a kernel or graph
// whose start nothing can delay once the work before it has ended, note_lone(). Credits are kept
// also if the driver's call fails: look_and_release() gives them back.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <utility>

#include "base/function_ref.h"
#include "wire/usage.h"
#include "worker/admission/durations.h"
#include "worker/admission/fair_share.h"
#include "worker/admission/queue_credits.h"
#include "worker/admission/stream_progress.h"
#include "worker/admission/verdict.h"

namespace openmps::worker {

// The most items; fences and records are not counted. NVIDIA's driver blocks a thread that submits
// to a stream with 1,020 unfinished.
inline constexpr uint32_t kBudgetItems = 512;
// The most items of unknown duration: enough to keep the GPU busy until the next check of what has
// ended.
inline constexpr uint32_t kBudgetUnknown = 4;

// Something that has to come before a piece of work may begin, beside the earlier work of its
// stream: a value in host memory, a value in device memory, another stream's event, the return of a
// host function in the client, or the end of other streams' work that CUDA's order of streams makes
// this stream wait for (an implied wait).
struct Condition {
  wire::HeldFor why = wire::HeldFor::kNothing;  // what is shown while the work is held for it
  // Whether it has come, asked here and not on the GPU; may call the driver. Empty: no condition.
  FunctionRef<bool()> has_come;
  // Of a condition that the GPU may wait for: the credits for such a wait. kShort: it is known to
  // come soon; a queue credit for a short term. kUnknown: a queue credit for an unknown term and a
  // wait credit.
  CreditTerm term = CreditTerm::kUnknown;
};

class StreamBudget {
 public:
  // `credits`: the device's; null: queue credits are not used. `make_current` makes the stream's
  // context current on this thread; false: the context is lost. `*ends_ns` tells other threads when
  // the work is expected to end (StreamProgress).
  StreamBudget(const ProgressTools& tools, QueueCredits* credits, WaitCredits& wait_credits,
               std::function<bool()> make_current, CUstream stream, std::atomic<uint64_t>* ends_ns);
  ~StreamBudget();
  StreamBudget(const StreamBudget&) = delete;
  StreamBudget& operator=(const StreamBudget&) = delete;
  void move(CUstream stream, std::atomic<uint64_t>* ends_ns) { progress_.move(stream, ends_ns); }

  // Each admit function says whether the stream's next item may be submitted: the function adds a
  // credit to the verdict if one is needed, or refuses. To query marks it may make the stream's
  // context current. admit_work() checks budget, queue credit and fair share for work of that cost.
  void admit_work(const Cost& cost, Verdict& verdict) {
    const WorkTotal& total = progress_.total();
    const bool fits = total.items < kBudgetItems && total.unknown < kBudgetUnknown && !full_ &&
                      total.expected_ns + tools_.durations.of(cost) <= tools_.share.budget_ns();
    if (!fits && total.items != 0 && is_budget_full(cost)) [[unlikely]]
      return verdict.refuse(wire::HeldFor::kStreamBudget, next_look_ns_);
    if (!may_queue()) [[unlikely]]
      admit_queued(cost, verdict);
    if (tools_.share.is_contested() && verdict.is_admitted()) admit_share(cost, verdict);
    if (verdict.is_admitted()) next_look_ns_ = 0;
  }
  // For timeless work (AdmissionRequest::Kind). Behind an item that is longer than the budget, with
  // more than 5 ms of work left (kShortTermNs), it would occupy a hardware queue for long. So it is
  // refused, even if the stream has a credit, until at most half a budget is left.
  void admit_timeless(Verdict& verdict) {
    if (progress_.total().expected_ns > kShortTermNs && is_budget_full({})) [[unlikely]]
      return verdict.refuse(wire::HeldFor::kQueueCredit, next_look_ns_);
    if (!may_queue()) [[unlikely]]
      admit_queued({}, verdict);
    if (verdict.is_admitted()) next_look_ns_ = 0;
  }
  // A wait on the GPU for a condition that may not have come yet.
  void admit_wait(const Condition& condition, Verdict& verdict);
  // Work for the cold stream, which is ordered behind this stream. While this stream waits on the
  // GPU for anything but its cold stream, the work would keep the cold context busy for as long,
  // and code could be loaded in neither context.
  void admit_cold(Verdict& verdict);

  // The admitted work is about to be submitted: the stream keeps the credits of the verdict.
  void keep(Admitted& taken);
  // Work of that cost is about to be submitted: puts a mark behind the earlier work if one is due.
  void prepare(const Cost& cost) {
    if (progress_.is_mark_due(cost)) mark();
  }
  // Each add function notes an item that has been submitted or is about to be (StreamProgress).
  void add(const Cost& cost) {
    used_ = true;
    progress_.add(cost);
    stop_waiting_for_share();
  }
  // A wait for something other than the stream's own work: for its cold stream, or anything else.
  void add_wait(bool is_for_cold_stream) {
    used_ = true;
    polling_.reset();
    progress_.add_wait(is_for_cold_stream);
  }
  // A wait that is known to end within 5 ms (CreditTerm::kShort).
  void add_short_wait() {
    polling_.reset();
    progress_.add_short_wait();
  }
  void add_fence(const std::atomic<uint64_t>& word, uint64_t value) {
    progress_.add_fence(word, value);
  }
  // The driver's stream is about to be given something other than a mark.
  void note_submitting() { progress_.note_submitting(); }
  // The last item is a kernel or graph that is lone while nothing comes behind it: once it runs it
  // occupies no hardware queue.
  void note_lone() { progress_.note_lone(); }

  // Checks which submitted work has ended.
  void look(uint64_t now);
  // The regular look at the stream, while needs_looks(). Also gives back the credits if all work
  // has ended and none was submitted since the last look_and_release(). Returns the time until the
  // next one.
  uint64_t look_and_release(uint64_t now);
  // To be called when all work is known to have ended.
  void end(uint64_t now);

  // The driver has work of unknown duration: frequent looks are needed to learn how long it takes.
  [[nodiscard]] bool is_learning() const { return progress_.total().unknown != 0; }
  // All work has been seen to end, while the driver's answers could be relied on.
  [[nodiscard]] bool has_seen_all_end() const {
    return progress_.is_empty() && !progress_.has_lost_context();
  }
  // For how long the oldest of the unfinished work has run; 0: there is none, or it waits.
  [[nodiscard]] uint64_t worked_ns(uint64_t now) const { return progress_.worked_ns(now); }
  // Some of the unfinished work is kernels (policy.h).
  [[nodiscard]] bool is_busy() const { return progress_.is_busy(); }
  [[nodiscard]] bool has_credit() const { return credit_ != nullptr; }
  // All unfinished work is expected to end within kShortTermNs.
  [[nodiscard]] bool ends_soon() const {
    const WorkTotal& total = progress_.total();
    return total.unknown == 0 && total.waits == 0 && total.expected_ns <= kShortTermNs;
  }
  // A number of sessions: FairShare::sessions_waited_for() while this stream has work; else 0.
  [[nodiscard]] uint32_t sessions_waited_for() const {
    return progress_.is_empty() ? 0 : tools_.share.sessions_waited_for();
  }
  // The stream has a credit that others may need, it has a claim itself, or other sessions compete
  // with its work.
  [[nodiscard]] bool has_rivals() const {
    return credit_ != nullptr || claim_ != nullptr ||
           (!progress_.is_empty() && tools_.share.is_contested());
  }
  [[nodiscard]] bool needs_looks() const { return is_learning() || has_rivals(); }

 private:
  // A look before next_look_ns_ shows nothing new. After work has been admitted a look may be made
  // at once.
  [[nodiscard]] bool is_too_soon(uint64_t now) const { return now < next_look_ns_; }
  bool is_budget_full(const Cost& cost);
  // The next item needs no new credit: nothing is before it, or the stream has a credit, whose term
  // mattered only when it was taken. A stream yields its credit after kTurnNs if others have
  // claims.
  [[nodiscard]] bool may_queue() const {
    return progress_.is_empty() || (credit_ != nullptr && !yields_) || credits_ == nullptr;
  }
  void admit_queued(const Cost& cost, Verdict& verdict);
  void admit_share(const Cost& cost, Verdict& verdict);
  bool try_take_credit(CreditTerm term, Verdict& verdict);
  // As try_take_credit(); a stream that gets none has a claim from then on.
  bool take_or_claim_credit(CreditTerm term, Verdict& verdict);
  bool take_wait_credit(Verdict& verdict);
  [[nodiscard]] uint64_t poll_pause_ns(uint64_t now) const;
  void stop_waiting_for_share() {
    if (std::exchange(waits_for_share_, false)) [[unlikely]]
      tools_.share.stop_waiting();
  }
  void mark();
  void give_back_credits();
  void look_again_in(uint64_t ns, uint64_t now);
  [[nodiscard]] uint64_t longest_pause_ns(uint64_t now) const;

  const ProgressTools tools_;
  QueueCredits* const credits_;
  WaitCredits& wait_credits_;
  StreamProgress progress_;

  bool full_ = false;    // the budget was full, and less than half of it is free since
  bool used_ = false;    // work was submitted since the last look_and_release()
  bool yields_ = false;  // no work is submitted until all has ended and the credit is given back
  bool waits_for_share_ = false;
  uint64_t next_look_ns_ = 0;  // by Clock::now_ns()
  QueueCredit credit_;
  uint64_t credit_since_ns_ = 0;
  QueueCreditClaim claim_;
  WaitCredit wait_credit_;
  // While a wait without a credit is held: since when its condition is polled, and when has_come()
  // was last called (0: not yet).
  CountToken polling_;
  uint64_t polling_since_ns_ = 0;
  uint64_t polled_ns_ = 0;
};

}  // namespace openmps::worker
