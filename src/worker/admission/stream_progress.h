// SPDX-License-Identifier: Apache-2.0
// Which work of one stream the driver has that may be unfinished, and when it is expected to end.
// Times are those of Clock::now_ns(). Session's thread only.
//
// Marks between the items show how far the GPU has come: events without timing, which cost the GPU
// nothing and occupy no hardware queue, or the program's own fences. The times at which a mark was
// last seen unreached and first seen reached bound how long the work before it took. Durations, the
// session's counters and its fair share get that time. If it is wrong, only the time at which work
// is submitted changes.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "api/driver_table.h"
#include "base/clock.h"
#include "worker/admission/durations.h"
#include "worker/admission/fair_share.h"
#include "worker/device/devices.h"
#include "worker/device/driver_event.h"
#include "worker/device/usage.h"

namespace openmps::worker {

// What all streams of a session on one device use to follow their progress.
struct ProgressTools {
  const DriverTable& driver;
  const Clock& clock;
  SessionUsage& usage;
  Durations& durations;
  FairShare& share;
  uint32_t device = 0;
  uint32_t device_sms = 0;
};

// Sums over items that have been submitted and may be unfinished.
struct WorkTotal {
  uint64_t expected_ns = 0;
  uint32_t items = 0;
  uint32_t unknown = 0;      // items whose duration is not known
  uint32_t waits = 0;        // items that wait for something other than earlier work of the stream
  uint32_t outer_waits = 0;  // of `waits`, those that wait for something other than the cold stream

  WorkTotal& operator+=(const WorkTotal& other);
  WorkTotal& operator-=(const WorkTotal& other);
};

class StreamProgress {
 public:
  // `tools` exist as long. `make_current` makes the stream's context current on this thread; false:
  // the context is lost. `stream` may be null until something is added. `*ends_ns` tells other
  // threads the time at which the work is expected to end; 0: there is no work.
  StreamProgress(const ProgressTools& tools, std::function<bool()> make_current, CUstream stream,
                 std::atomic<uint64_t>* ends_ns);
  ~StreamProgress();
  StreamProgress(const StreamProgress&) = delete;
  StreamProgress& operator=(const StreamProgress&) = delete;
  // Later work goes to the driver's stream `stream`, which waits for the one used until now.
  void move(CUstream stream, std::atomic<uint64_t>* ends_ns);

  // Each add function notes an item that is submitted behind the stream's earlier work: work of
  // that cost, a wait, a wait that ends soon, a fence that writes `value` to `word`.
  void add(const Cost& cost);
  void add_wait(bool is_for_cold_stream);
  void add_short_wait() { open_.is_plain = false; }
  void add_fence(const std::atomic<uint64_t>& word, uint64_t value);
  // Something other than a mark is about to be submitted behind the stream's work, which is not
  // lone then.
  void note_submitting() { ends_in_lone_ = false; }
  // The last item is a kernel or graph: it is lone if nothing comes behind it.
  void note_lone() { ends_in_lone_ = true; }

  // Before work of that cost is submitted, a mark should be put behind the work without one.
  [[nodiscard]] bool is_mark_due(const Cost& cost) const {
    return open_.total.items != 0 &&
           (open_.total.items >= kMarkItems || open_.total.expected_ns >= kMarkNs ||
            open_.total.unknown != 0 || !tools_.durations.is_known(cost));
  }
  // Puts a mark behind the stream's work, if some of it has no mark behind it.
  void mark();
  // Puts a mark as mark() does, and checks which marks the GPU has reached.
  void look(uint64_t now);
  // To be called when all work is known to have ended.
  void end(uint64_t now);

  // All work that may be unfinished.
  [[nodiscard]] const WorkTotal& total() const { return total_; }
  [[nodiscard]] bool is_empty() const { return total_.items == 0; }
  // A mark could not be asked for, because its context is lost: it was taken for reached.
  [[nodiscard]] bool has_lost_context() const { return has_lost_context_; }
  // Some of that work is kernels (policy.h).
  [[nodiscard]] bool is_busy() const { return busy_; }
  // The stream's work is lone: one kernel or graph, which waits for nothing, with nothing behind
  // it. It occupies no hardware queue.
  [[nodiscard]] bool is_lone() const {
    return total_.items == 1 && ends_in_lone_ && first().is_plain;
  }
  // The oldest unfinished segment: how long it has run until now, and its expected duration.
  [[nodiscard]] uint64_t ran_ns(uint64_t now) const;
  // The same if it waits for nothing but the stream's cold stream; else 0.
  [[nodiscard]] uint64_t worked_ns(uint64_t now) const {
    return is_empty() || first().total.outer_waits != 0 ? 0 : ran_ns(now);
  }
  [[nodiscard]] uint64_t first_expected_ns() const { return first().total.expected_ns; }
  // The expected time from now until all work has ended.
  [[nodiscard]] uint64_t remaining_ns(uint64_t now) const;

 private:
  // The items between two marks.
  static constexpr size_t kMostLearnt = 8;
  struct Segment {
    WorkTotal total;
    uint64_t begin_ns = 0;      // when its first item was submitted
    uint64_t closed_ns = 0;     // when its last item had been submitted
    uint64_t unreached_ns = 0;  // when its mark was last seen unreached
    uint64_t alone_ns = 0;      // its expected duration if it had the device to itself
    uint64_t sm_ns = 0;         // the sum of each item's expected duration times its SMs
    bool is_plain = true;       // durations can be learnt from it: no waits, few kinds of work
    bool is_compared = true;    // all its work has been seen with all the SMs it wanted
    uint8_t learnt = 0;         // how many entries of `numbers` are used
    std::array<uint32_t, kMostLearnt> numbers{};  // kinds of its work, in Durations
    // Its mark: a word that becomes `value`, or an event.
    const std::atomic<uint64_t>* word = nullptr;
    uint64_t value = 0;
    std::unique_ptr<DriverEvent> event;

    void add_number(uint32_t number);
    void append(const Segment& next);
    [[nodiscard]] std::span<const uint32_t> learnt_numbers() const {
      return std::span(numbers).first(learnt);
    }
  };
  static constexpr size_t kSegments = 32;
  // The most items and time without a mark: a sixteenth and an eighth of a stream's budget.
  static constexpr uint32_t kMarkItems = 32;
  static constexpr uint64_t kMarkNs = kBudgetNs / 8;

  Segment& at(size_t i) { return (*segments_)[(first_ + i) % kSegments]; }
  // The oldest unfinished segment: what the GPU runs now, as far as is known.
  [[nodiscard]] const Segment& first() const { return count_ != 0 ? (*segments_)[first_] : open_; }
  [[nodiscard]] uint64_t begun_ns() const { return std::max(first().begin_ns, ended_ns_); }
  void add_item(const WorkTotal& one);
  bool has_free_segment();
  void close();
  [[nodiscard]] bool is_reached(const Segment& segment) const;
  void drop_first();
  void reach_all(uint64_t now);
  // Writes to `*ends_ns_` and the fair share when the work is expected to end.
  void show_end();
  // The segment has ended by `now`. `learns`: Durations may learn from its times.
  void reach(const Segment& segment, uint64_t now, bool learns);
  // The least time for which a segment ran, and the time for which it was seen as the oldest of its
  // stream, in which it may also have waited for SMs.
  struct Seen {
    uint64_t least_ns = 0;
    uint64_t there_ns = 0;
  };
  void account(const Segment& segment, const Seen& seen, uint64_t now);

  const ProgressTools& tools_;
  const std::function<bool()> make_current_;
  CUstream stream_;
  std::atomic<uint64_t>* ends_ns_;
  WorkTotal total_;
  uint64_t until_ns_ = 0;  // when all work would end if no other session delayed it
  bool busy_ = false;      // FairShare::begin_work() was called, end_work() not yet
  bool ends_in_lone_ = false;
  mutable bool has_lost_context_ = false;
  Segment open_;  // the items behind the last mark
  // The segments that have a mark behind them, oldest first. Allocated with the first mark.
  std::unique_ptr<std::array<Segment, kSegments>> segments_;
  size_t first_ = 0;
  size_t count_ = 0;
  // The newest mark that was reached: when it was first seen reached, and last seen unreached.
  uint64_t reached_ns_ = 0;
  uint64_t before_reached_ns_ = 0;
  uint64_t ended_ns_ = 0;  // when the work before that mark most likely ended
  std::vector<std::unique_ptr<DriverEvent>> spare_;  // events for further marks
};

}  // namespace openmps::worker
