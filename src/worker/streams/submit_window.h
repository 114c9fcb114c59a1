// SPDX-License-Identifier: Apache-2.0
// How much of a stream's work the driver has: at most so many items and, as far as is known, so
// much time of the GPU (decision 18). What is more waits in the Backlog, so that the shared context
// drains in milliseconds, whatever its clients have queued.
//
// What has ended is learnt from marks between the items: events, which cost the GPU nothing and
// hold no hardware queue, or the program's own fences. From the times at which marks are seen
// unreached and reached follows how long work takes, by function and executable graph. What is
// wrong with these times changes when work is submitted, nothing else. Session's thread only.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/clock.h"
#include "worker/admission/fair_share.h"
#include "worker/admission/queue_credits.h"
#include "worker/core/session_core.h"

namespace openmps::worker {

// NVIDIA's driver blocks whoever gives a stream more than 1,020.
inline constexpr uint32_t kWindowItems = 512;
// Of unknown duration: the GPU has something to do between two looks.
inline constexpr uint32_t kWindowUnknown = 4;

// Work that is queued behind other work holds one of the 32 hardware queues of the context. For as
// long as this nobody minds.
inline constexpr uint64_t kLongNs = 5'000'000;

// What a piece of work costs: as learnt, or as it can be told.
struct Cost {
  uint32_t learnt = 0;         // the number of what is learnt; 0: nothing is
  uint32_t sms = 0;            // that it keeps busy on average
  uint32_t sms_needed = 0;     // SMs that have a place for all blocks at once; 0: nobody asks
  bool needs_all_sms = false;  // without some SMs it takes much longer, or may not end
  uint64_t ns = 0;             // if nothing is
  uint32_t times = 1;          // how often what is learnt is done
  uint32_t kernels = 1;        // one behind the other, of which all of that is
};

// How long what is done again and again takes. After 65,535 numbers they are given again.
class Durations {
 public:
  // Numbers of what all programs do: a MiB of a long copy over the bus, in one of the directions.
  // As PCI Express 5.0 has it, until a copy says otherwise.
  static constexpr uint32_t kMiBToDevice = 1;
  static constexpr uint32_t kMiBFromDevice = 2;
  static constexpr uint32_t kBusNsPerMiB = 20'000;

  // Of a kernel that has not run: as small ones take.
  static constexpr uint64_t kUnknownNs = 20'000;

  // Throws std::bad_alloc.
  [[nodiscard]] uint32_t add();
  [[nodiscard]] bool is_known(const Cost& cost) const {
    return cost.learnt == 0 || ns_[cost.learnt] != 0;
  }
  [[nodiscard]] uint64_t of(const Cost& cost) const {
    if (cost.learnt == 0) return cost.ns;
    const uint64_t ns = ns_[cost.learnt];
    return (ns != 0 ? ns : kUnknownNs) * cost.times;
  }
  // The same with the device to itself, as far as has been seen: no less than that.
  [[nodiscard]] uint64_t alone(const Cost& cost) const {
    const uint64_t ns = alone_ns_[cost.learnt];
    return ns != 0 ? ns * cost.times : of(cost);
  }
  // It has been.
  [[nodiscard]] bool has_been_alone(const Cost& cost) const { return been_alone_[cost.learnt]; }
  // What some work was expected to take, and between which two it has.
  struct Observed {
    uint64_t expected_ns = 0;
    uint64_t least_ns = 0;
    uint64_t most_ns = 0;
  };
  // Of all that these name. Only a `part` of the SMs that it wanted were there for it: 1, all.
  void learn(std::span<const uint32_t> numbers, const Observed& seen, double part = 1);
  // The same for how long it takes alone, once something is known of that.
  void learn_alone(std::span<const uint32_t> numbers, const Observed& seen);
  // Nothing could be learnt of them. What is tried kTries times in vain is taken to be short.
  void miss(std::span<const uint32_t> numbers);

 private:
  static constexpr uint32_t kMost = 1u << 16;
  static constexpr uint32_t kFirstGiven = kMiBFromDevice + 1;
  static constexpr uint8_t kTries = 8;
  // False: nothing was to be learnt. What is not known counts as `unknown_ns`; 0: it stays so.
  static bool adapt(std::vector<uint32_t>& known, std::span<const uint32_t> numbers,
                    const Observed& seen, uint64_t unknown_ns);

  // By number; 0: not known.
  std::vector<uint32_t> ns_ = {0, kBusNsPerMiB, kBusNsPerMiB};
  std::vector<uint32_t> alone_ns_ = std::vector<uint32_t>(kFirstGiven);
  std::vector<uint8_t> tries_ = std::vector<uint8_t>(kFirstGiven);
  std::vector<bool> been_alone_ = std::vector<bool>(kFirstGiven);
  uint32_t next_ = kFirstGiven;  // to be given again
};

// Of one stream.
class StreamBudget {
 public:
  // Of a stream of the driver's, there; null: there will be one before anything is added. `ends_ns`
  // shows when, by now_ns(), what it has been given
  // is expected to end; 0: it has nothing.
  // `connections`: of its device; null: it needs none.
  StreamBudget(SessionCore& core, Durations& durations, FairShare& share, QueueCredits* connections,
               WaitCredits& open_waits, CUstream stream, const Placement& place,
               std::atomic<uint64_t>* ends_ns);
  ~StreamBudget();
  // It goes on in another stream of the driver's, which comes behind the first.
  void move(CUstream stream, std::atomic<uint64_t>* ends_ns) {
    ends_ns->store(ends_ns_->load(std::memory_order_relaxed), std::memory_order_relaxed);
    stream_ = stream;
    ends_ns_ = ends_ns;
  }
  StreamBudget(const StreamBudget&) = delete;
  StreamBudget& operator=(const StreamBudget&) = delete;

  // Something of this cost would be too much now, or may not be queued behind what runs. The
  // context of the stream may become current.
  [[nodiscard]] bool is_full(const Cost& cost) {
    const bool fits = items_ < kWindowItems && unknown_ < kWindowUnknown && !full_ &&
                      expected_ns_ + durations_.of(cost) <= share_.window_ns();
    return refuse((!fits && items_ != 0 && look_whether_full(cost)) || !may_queue(cost) ||
                  (share_.is_contested() && comes_later(cost)));
  }
  // Nothing may be queued behind what the stream has been given yet: that takes so long, or there
  // is no hardware queue for it.
  [[nodiscard]] bool is_closed() {
    return refuse((expected_ns_ > kLongNs && look_whether_full({})) || !may_queue({}));
  }
  // It has been given such a wait as refuses_wait() is about, which is not over as far as is known.
  [[nodiscard]] bool is_waiting() { return refuse(outer_waits_ != 0 && look_whether_waiting()); }
  // The stream may not be given a wait for something else than its own work (another stream's
  // event, a value, the client): it would hold a hardware queue for as long. `is_over` says that
  // there is nothing left to wait for; it is asked from time to time, and costs a call or two.
  // `soon`: it is known to be over before long, and needs no more than what comes behind work.
  template <typename IsOver>
  [[nodiscard]] bool refuses_wait(IsOver&& is_over, bool soon = false) {
    next_wait_look_ns_ = kNoLook;
    if (is_closed()) return true;
    if (soon ? gets_right() : may_wait()) [[likely]]
      return false;
    const uint64_t now = now_ns();
    if (refused_ns_ == 0) {
      refused_ns_ = now;
      open_wait_rights_.begin_refusal();
    }
    if (now >= asked_ns_ + wait_pause_ns(now)) {
      // What is submitted may have to wait for something more, which is asked for at once.
      asked_ns_ = 0;
      if (is_over()) return false;
      asked_ns_ = now;
    }
    next_wait_look_ns_ = asked_ns_ + wait_pause_ns(now);
    return true;
  }
  // It has, and not been given it since.
  [[nodiscard]] bool has_refused() const { return refused_ns_ != 0; }
  // is_full() or is_closed(), whichever was asked last, said so, and named the time of the next
  // look. Who asked does not ask again to learn why: what is let through then forgets that time.
  [[nodiscard]] bool was_full() const { return next_look_ns_ != kNoLook; }
  // When to ask again, by now_ns(), if it was full or closed or refused a wait; else kNoLook.
  [[nodiscard]] uint64_t next_look_ns() const {
    return std::min(next_look_ns_, next_wait_look_ns_);
  }

  // Work of this cost is about to be submitted: a mark behind what came before, where one is due.
  void prepare(const Cost& cost) {
    const bool due = segment_.items >= kMarkItems || segment_.expected_ns >= kMarkNs ||
                     segment_.unknown != 0 || !durations_.is_known(cost);
    if (due && segment_.items != 0) mark_now();
  }
  // It has been.
  void add(const Cost& cost);
  // The stream, at its end, will write this value there.
  void add_fence(const std::atomic<uint64_t>& word, uint64_t value);
  // It has been given such a wait, whether it may or not. `is_for_cold_stream`: for what it has in
  // the cold lane itself.
  void add_wait(bool is_for_cold_stream = false);
  // The same with one that is over soon: how long it takes says nothing.
  void note_wait() {
    segment_.is_plain = false;
    forget_refusal();
  }

  // Something is about to come behind what the stream has. A mark is nothing.
  void note_entered() { ends_in_lone_ = false; }
  // The last that has been added is a kernel or a graph, which by itself holds no hardware queue.
  void note_lone() { ends_in_lone_ = true; }

  // Something may run of which it is not known how long it takes: look soon.
  [[nodiscard]] bool is_learning() const { return unknown_ != 0; }
  // It has been given something that keeps SMs busy.
  [[nodiscard]] bool is_busy() const { return busy_; }
  [[nodiscard]] bool has_right() const { return connected_; }
  // It has asked in vain for the right to queue work behind work.
  [[nodiscard]] bool wants_right() const { return wants_; }
  // Its session has had its part of the device; others come first.
  [[nodiscard]] bool is_later() const { return later_; }
  // All that it has been given is known to end before long.
  [[nodiscard]] bool ends_soon() const {
    return unknown_ == 0 && open_waits_ == 0 && expected_ns_ <= kLongNs;
  }
  // Somebody waits until it has nothing left: how many compete then, else 0.
  [[nodiscard]] uint32_t waited_for() const { return items_ != 0 ? share_.waited_for() : 0; }
  // Look from time to time: it has a right that others may need, or wants one, or others want the
  // device.
  [[nodiscard]] bool is_connected() const {
    return connected_ || wants_ || (items_ != 0 && share_.is_contested());
  }
  [[nodiscard]] bool needs_looks() const { return is_learning() || is_connected(); }
  void look(uint64_t now);
  // The same. The right goes if nothing was done with it since the last time. Returns after how
  // long to look again, if it still needs looks.
  uint64_t look_after(uint64_t now);
  // All of it is known to have ended: nothing is left to look at.
  void end(uint64_t now);

 private:
  // What lies between two marks.
  static constexpr size_t kMostLearnt = 8;
  struct Segment {
    uint64_t begin_ns = 0;   // its first item was submitted
    uint64_t closed_ns = 0;  // all of it had been
    uint64_t expected_ns = 0;
    uint64_t alone_ns = 0;      // the same with the device to itself
    uint64_t unreached_ns = 0;  // when its mark was last seen unreached
    uint32_t items = 0;
    uint32_t unknown = 0;      // of them
    uint32_t waits = 0;        // likewise,
    uint32_t outer_waits = 0;  // and those that are not for the cold lane
    uint64_t sm_ns = 0;        // what the SMs that they keep busy were expected to take together
    bool is_plain = true;      // nothing in it waits
    bool is_compared = true;   // alone_ns is of what has been seen
    uint8_t learnt = 0;
    std::array<uint32_t, kMostLearnt> numbers{};
    // The mark: a word that becomes `value`, or an event.
    const std::atomic<uint64_t>* word = nullptr;
    uint64_t value = 0;
    CUevent event = nullptr;
  };
  static constexpr size_t kSegments = 32;
  // A mark behind so many items or so much time: the window moves on by an eighth of itself.
  static constexpr uint32_t kMarkItems = kWindowItems / 16;
  static constexpr uint64_t kMarkNs = kWindowNs / 8;

  static constexpr uint64_t kNoLook = ~0ull;
  bool refuse(bool refused) {
    if (!refused) next_look_ns_ = kNoLook;
    return refused;
  }
  // To look again. No time is named if something else was asked meanwhile, and could go.
  [[nodiscard]] bool is_too_soon(uint64_t now) const {
    return next_look_ns_ != kNoLook && now < next_look_ns_;
  }
  // There is nothing to be queued behind, or the stream has the right to, or gets it.
  bool may_queue(const Cost& cost) {
    return items_ == 0 || (connected_ && !yields_) || connect(cost);
  }
  bool connect(const Cost& cost);
  // `soon`: it comes back within kLongNs, as far as is known.
  bool take_right(bool soon);
  // Or will have one before those that ask later.
  bool want_right(bool soon);
  bool gets_right() { return connections_ == nullptr || want_right(true); }
  bool may_wait() { return connections_ == nullptr || waits_ || begin_wait(); }
  bool begin_wait();
  void end_wait();
  void forget_refusal() {
    if (refused_ns_ != 0) open_wait_rights_.end_refusal();
    refused_ns_ = asked_ns_ = 0;
    next_wait_look_ns_ = kNoLook;
  }
  // Between two looks whether a wait that was refused is over.
  [[nodiscard]] uint64_t wait_pause_ns(uint64_t now) const;
  bool comes_later(const Cost& cost);
  void wait_no_more();
  void show_share();
  void disconnect();
  void stop_wanting();
  void look_again_behind(uint64_t rest_ns, uint64_t now);
  uint64_t longest_pause_ns(uint64_t now);
  // What it has been given and may be unfinished holds no hardware queue: it waits for nobody, and
  // nothing is behind it.
  [[nodiscard]] bool is_lone() { return items_ == 1 && ends_in_lone_ && first_segment().is_plain; }
  void mark_now();
  bool look_whether_full(const Cost& cost);
  bool look_whether_waiting();
  void sweep(uint64_t now);
  bool has_room();
  void mark();
  void close();
  Segment& at(size_t i) { return (*segments_)[(first_ + i) % kSegments]; }
  bool is_reached(const Segment& segment) const;
  static void name(Segment& segment, uint32_t number);
  static void append(Segment& to, const Segment& next);
  // `learns`: what has been seen of it says how long it takes.
  void reach(const Segment& segment, uint64_t now, bool learns);
  void reach_all(uint64_t now);
  // At least so long a segment has run, and stood in its stream. They differ where it may have
  // waited for SMs and it is known how long it takes without that.
  struct Seen {
    uint64_t least_ns = 0;
    uint64_t there_ns = 0;
  };
  void account(const Segment& segment, const Seen& seen, uint64_t now);
  void show_end();
  // What runs now, as far as is known: since when, for how long.
  Segment& first_segment() { return count_ != 0 ? at(0) : segment_; }
  uint64_t begun_ns();
  uint64_t ran_ns(uint64_t now);
  uint64_t remaining_ns(uint64_t now);

  SessionCore& core_;
  Durations& durations_;
  FairShare& share_;
  CUstream stream_;
  const Placement place_;
  QueueCredits* const connections_;  // null: it needs none
  WaitCredits& open_wait_rights_;
  std::atomic<uint64_t>* ends_ns_;
  // All that may be unfinished, the open segment included.
  uint64_t expected_ns_ = 0;
  uint64_t until_ns_ = 0;  // by when it should have ended, were there nobody to wait for
  uint32_t items_ = 0;
  uint32_t unknown_ = 0;
  uint32_t open_waits_ = 0;
  uint32_t outer_waits_ = 0;
  bool full_ = false;
  bool busy_ = false;  // counted in share_: since something kept SMs busy, to the end of all work
  bool later_ = false;
  bool ends_in_lone_ = false;
  bool connected_ = false;   // has a right of connections_,
  bool used_ = false;        // had work since the last look after it,
  bool yields_ = false;      // and will give it back when all that it has been given has ended
  bool wants_ = false;       // has asked for one in vain,
  bool wants_soon_ = false;  // saying so
  bool waits_ = false;       // has a right of open_wait_rights_
  uint64_t connected_ns_ = 0;
  uint64_t next_look_ns_ = kNoLook;
  // A wait is refused: since when, when it was last looked whether it is over, and when to again.
  uint64_t refused_ns_ = 0;
  uint64_t asked_ns_ = 0;
  uint64_t next_wait_look_ns_ = kNoLook;
  Segment segment_;  // open: no mark yet
  // Marked, oldest first; made with the first mark.
  std::unique_ptr<std::array<Segment, kSegments>> segments_;
  size_t first_ = 0;
  size_t count_ = 0;
  // When the newest mark that was reached was seen so, and when it was last seen unreached.
  uint64_t reached_ns_ = 0;
  uint64_t before_reached_ns_ = 0;
  uint64_t ended_ns_ = 0;  // what it is behind ended then, most likely
  std::vector<CUevent> spare_;
};

}  // namespace openmps::worker
