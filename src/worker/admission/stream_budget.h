// SPDX-License-Identifier: Apache-2.0
// How much unfinished work of one stream the driver may have: a number of items and an estimated
// time on the GPU (the window, decision 18), if the stream's queue credits (decision 23) and its
// session's fair share (decision 25) allow it. Other work stays in the Backlog, so that the shared
// context drains in milliseconds whatever its clients have queued. Session's thread only.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <utility>

#include "worker/admission/condition.h"
#include "worker/admission/durations.h"
#include "worker/admission/fair_share.h"
#include "worker/admission/queue_credits.h"
#include "worker/admission/stream_progress.h"
#include "worker/admission/verdict.h"

namespace openmps::worker {

// The most items. NVIDIA's driver blocks a thread that submits to a stream with 1,020 unfinished.
inline constexpr uint32_t kWindowItems = 512;
// The most items of unknown duration: enough to keep the GPU busy from one look to the next.
inline constexpr uint32_t kWindowUnknown = 4;

class StreamBudget {
 public:
  // `credits`: the device's; null: queue credits are not used. Others: see StreamProgress.
  StreamBudget(const ProgressTools& tools, QueueCredits* credits, WaitCredits& wait_credits,
               std::function<bool()> make_current, CUstream stream, std::atomic<uint64_t>* ends_ns);
  ~StreamBudget();
  StreamBudget(const StreamBudget&) = delete;
  StreamBudget& operator=(const StreamBudget&) = delete;
  void move(CUstream stream, std::atomic<uint64_t>* ends_ns) { progress_.move(stream, ends_ns); }

  // Each admit function says whether the stream's next item may be submitted: it adds a credit to
  // the verdict if one is needed, or refuses. It may make the stream's context current.
  // admit_work() checks window, queue credit and fair share for work of that cost.
  void admit_work(const Cost& cost, Verdict& verdict) {
    const WorkTotal& total = progress_.total();
    const bool fits = total.items < kWindowItems && total.unknown < kWindowUnknown && !full_ &&
                      total.expected_ns + durations_.of(cost) <= share_.window_ns();
    if (!fits && total.items != 0 && is_window_full(cost)) [[unlikely]]
      return verdict.refuse(wire::HeldFor::kStreamBudget, next_look_ns_);
    if (!may_queue()) [[unlikely]]
      admit_queued(cost, verdict);
    if (share_.is_contested() && verdict.is_admitted()) admit_share(cost, verdict);
    if (verdict.is_admitted()) next_look_ns_ = kNever;
  }
  // A marker takes no time, but behind long work it would occupy a hardware queue: it is refused.
  void admit_marker(Verdict& verdict) {
    if (progress_.total().expected_ns > kLongNs && is_window_full({})) [[unlikely]]
      return verdict.refuse(wire::HeldFor::kQueueCredit, next_look_ns_);
    if (!may_queue()) [[unlikely]]
      admit_queued({}, verdict);
    if (verdict.is_admitted()) next_look_ns_ = kNever;
  }
  // A wait on the GPU for a condition that may not have come yet.
  void admit_wait(const Condition& condition, Verdict& verdict);
  // Work for the cold stream, which is ordered behind the stream: while the stream waits, this work
  // would keep the cold context busy as well, and code could be loaded in neither context.
  void admit_cold(Verdict& verdict);

  // The admitted work is about to be submitted: the stream keeps the credits of its verdict.
  void keep(QueueCredit&& credit, WaitCredit&& wait_credit);
  // Work of that cost is about to be submitted: puts a mark behind the earlier work if one is due.
  void prepare(const Cost& cost) {
    if (progress_.is_mark_due(cost)) mark();
  }
  // An item has been submitted, or is about to be (see StreamProgress).
  void add(const Cost& cost) {
    used_ = true;
    progress_.add(cost);
    leave_share_queue();
  }
  void add_wait(bool is_for_cold_stream) {
    used_ = true;
    refusal_.reset();
    progress_.add_wait(is_for_cold_stream);
  }
  void add_short_wait() {
    refusal_.reset();
    progress_.add_short_wait();
  }
  void add_fence(const std::atomic<uint64_t>& word, uint64_t value) {
    progress_.add_fence(word, value);
  }
  void note_entered() { progress_.note_entered(); }
  void note_lone() { progress_.note_lone(); }

  // Checks which submitted work has ended.
  void look(uint64_t now);
  // As look(); also gives back credits that were not used since the last look_after(). Returns the
  // time until the next look, which is needed if needs_looks().
  uint64_t look_after(uint64_t now);
  // To be called when all work is known to have ended.
  void end(uint64_t now);

  // The driver has work of unknown duration: frequent looks are needed to learn how long it takes.
  [[nodiscard]] bool is_learning() const { return progress_.total().unknown != 0; }
  // Some of the unfinished work keeps SMs busy.
  [[nodiscard]] bool is_busy() const { return progress_.is_busy(); }
  [[nodiscard]] bool has_credit() const { return credit_ != nullptr; }
  // All unfinished work is expected to end within kLongNs.
  [[nodiscard]] bool ends_soon() const {
    const WorkTotal& total = progress_.total();
    return total.unknown == 0 && total.waits == 0 && total.expected_ns <= kLongNs;
  }
  // If a session waits for its share while this stream has work: how many sessions have; else 0.
  [[nodiscard]] uint32_t waited_for() const {
    return progress_.is_empty() ? 0 : share_.waited_for();
  }
  // Other streams may need this one's credit, it has a claim itself, or other sessions have work.
  [[nodiscard]] bool is_contending() const {
    return credit_ != nullptr || claim_ != nullptr ||
           (!progress_.is_empty() && share_.is_contested());
  }
  [[nodiscard]] bool needs_looks() const { return is_learning() || is_contending(); }

 private:
  // A look before next_look_ns_ shows nothing new. Admitting work sets next_look_ns_ to kNever.
  [[nodiscard]] bool is_too_soon(uint64_t now) const {
    return next_look_ns_ != kNever && now < next_look_ns_;
  }
  bool is_window_full(const Cost& cost);
  // The next item needs no new credit: nothing is before it, or the stream has a credit.
  [[nodiscard]] bool may_queue() const {
    return progress_.is_empty() || (credit_ != nullptr && !yields_) || credits_ == nullptr;
  }
  void admit_queued(const Cost& cost, Verdict& verdict);
  void admit_share(const Cost& cost, Verdict& verdict);
  bool try_take_credit(CreditTerm term, Verdict& verdict);
  // As try_take_credit(); a stream that gets none has a claim from then on.
  bool take_or_claim_credit(CreditTerm term, Verdict& verdict);
  bool take_wait_credit(Verdict& verdict);
  [[nodiscard]] uint64_t wait_pause_ns(uint64_t now) const;
  void leave_share_queue() {
    if (std::exchange(waits_for_share_, false)) [[unlikely]]
      share_.stop_waiting();
  }
  void mark();
  void give_back_credits();
  void look_again_in(uint64_t ns, uint64_t now);
  [[nodiscard]] uint64_t longest_pause_ns(uint64_t now) const;

  const Clock& clock_;
  const Durations& durations_;
  FairShare& share_;
  QueueCredits* const credits_;
  WaitCredits& wait_credits_;
  StreamProgress progress_;

  bool full_ = false;    // the window was full, and less than half of it is free
  bool used_ = false;    // work was submitted since the last look_after()
  bool yields_ = false;  // no work is submitted until all has ended and the credit is given back
  bool waits_for_share_ = false;
  uint64_t next_look_ns_ = kNever;
  QueueCredit credit_;
  uint64_t credit_since_ns_ = 0;
  QueueCreditClaim claim_;
  WaitCredit wait_credit_;
  // While a wait is refused: since when, and when has_come() was last called (0: not yet).
  CountToken refusal_;
  uint64_t refused_ns_ = 0;
  uint64_t asked_ns_ = 0;
};

}  // namespace openmps::worker
