// SPDX-License-Identifier: Apache-2.0
// What of one stream's work the driver may have: so many items, so much time of the GPU (decision
// 18), and what its credits for hardware queues (decision 23) and its session's fair share
// (decision 25) allow. Work beyond that stays in the Backlog, so that the shared context drains in
// milliseconds, whatever its clients have queued. Session's thread only.
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

// NVIDIA's driver blocks the thread that gives a stream more than 1,020.
inline constexpr uint32_t kWindowItems = 512;
// Items of unknown duration: the GPU has something to do between two looks.
inline constexpr uint32_t kWindowUnknown = 4;

class StreamBudget {
 public:
  // `credits`: of the device; null: hardware queues are not counted. The others: StreamProgress.
  StreamBudget(const ProgressTools& tools, QueueCredits* credits, WaitCredits& wait_credits,
               std::function<bool()> make_current, CUstream stream, std::atomic<uint64_t>* ends_ns);
  ~StreamBudget();
  StreamBudget(const StreamBudget&) = delete;
  StreamBudget& operator=(const StreamBudget&) = delete;
  void move(CUstream stream, std::atomic<uint64_t>* ends_ns) { progress_.move(stream, ends_ns); }

  // Each of these asks for the next item of the stream, and adds a credit to the verdict or
  // refuses. The context of the stream may become current. Work of that cost: window, credit, fair
  // share.
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
  // A fence, a record, or a wait, which take no time: behind long work they are refused, too.
  void admit_marker(Verdict& verdict) {
    if (progress_.total().expected_ns > kLongNs && is_window_full({})) [[unlikely]]
      return verdict.refuse(wire::HeldFor::kQueueCredit, next_look_ns_);
    if (!may_queue()) [[unlikely]]
      admit_queued({}, verdict);
    if (verdict.is_admitted()) next_look_ns_ = kNever;
  }
  // A wait for something that has perhaps not come.
  void admit_wait(const Condition& condition, Verdict& verdict);
  // Work of the stream's cold stream: while the stream itself waits, that would keep the cold
  // context busy for as long, and code would find neither context idle to be loaded.
  void admit_cold(Verdict& verdict);

  // The verdict's work is about to be submitted.
  void keep(QueueCredit&& credit, WaitCredit&& wait_credit);
  // Work of that cost is about to be submitted: a mark comes behind the work before, if one is due.
  void prepare(const Cost& cost) {
    if (progress_.is_mark_due(cost)) mark();
  }
  // These have been submitted (StreamProgress).
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

  // See what has ended.
  void look(uint64_t now);
  // See what has ended; a credit that was not used since the last time goes. Returns after how long
  // to look again, if needs_looks().
  uint64_t look_after(uint64_t now);
  // All work is known to have ended.
  void end(uint64_t now);

  // Work of unknown duration may run: a look is due soon.
  [[nodiscard]] bool is_learning() const { return progress_.total().unknown != 0; }
  // Some of the work keeps SMs busy.
  [[nodiscard]] bool is_busy() const { return progress_.is_busy(); }
  [[nodiscard]] bool has_credit() const { return credit_ != nullptr; }
  // All work is known to end before long.
  [[nodiscard]] bool ends_soon() const {
    const WorkTotal& total = progress_.total();
    return total.unknown == 0 && total.waits == 0 && total.expected_ns <= kLongNs;
  }
  // Another session waits until this stream's work has ended: how many sessions compete, else 0.
  [[nodiscard]] uint32_t waited_for() const {
    return progress_.is_empty() ? 0 : share_.waited_for();
  }
  // The stream has a credit that others may need, or a claim, or others want the device.
  [[nodiscard]] bool is_contending() const {
    return credit_ != nullptr || claim_ != nullptr ||
           (!progress_.is_empty() && share_.is_contested());
  }
  [[nodiscard]] bool needs_looks() const { return is_learning() || is_contending(); }

 private:
  // Before next_look_ns_ a look would tell nothing new. That time is forgotten when work is
  // admitted.
  [[nodiscard]] bool is_too_soon(uint64_t now) const {
    return next_look_ns_ != kNever && now < next_look_ns_;
  }
  bool is_window_full(const Cost& cost);
  // There is nothing to be queued behind, or the stream has a credit.
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

  bool full_ = false;    // until half of the window is free
  bool used_ = false;    // work has come since the last look_after()
  bool yields_ = false;  // the credit goes back when all work has ended, and no more work comes
  bool waits_for_share_ = false;
  uint64_t next_look_ns_ = kNever;
  QueueCredit credit_;
  uint64_t credit_since_ns_ = 0;
  QueueCreditClaim claim_;
  WaitCredit wait_credit_;
  // A wait is refused: since when, and when it was last looked whether it is over; 0: not yet.
  CountToken refusal_;
  uint64_t refused_ns_ = 0;
  uint64_t asked_ns_ = 0;
};

}  // namespace openmps::worker
