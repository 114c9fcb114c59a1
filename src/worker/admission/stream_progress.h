// SPDX-License-Identifier: Apache-2.0
// What the driver has of one stream's work, and when that ends: the one place that says so.
// Session's thread only.
//
// Marks between the items tell how far the GPU has come: events without timing, which cost the GPU
// nothing and occupy no hardware queue, or the program's own fences. From the times at which a mark
// is seen unreached and reached follows how long the work before it took. That is told to
// Durations, to the session's counters and to its fair share. Times that are wrong change when work
// is submitted, and nothing else.
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

// Sums over items that the driver has.
struct WorkTotal {
  uint64_t expected_ns = 0;
  uint32_t items = 0;
  uint32_t unknown = 0;      // items whose duration is not known
  uint32_t waits = 0;        // items that wait for something else than their stream's earlier work
  uint32_t outer_waits = 0;  // of these, the ones that wait for more than the stream's cold stream

  WorkTotal& operator+=(const WorkTotal& other);
  WorkTotal& operator-=(const WorkTotal& other);
};

class StreamProgress {
 public:
  // `make_current` makes the stream's context current on this thread; false: the context is lost.
  // `stream` may be null until something is added. `ends_ns` shows others when the work is expected
  // to end, by the clock; 0: there is none.
  StreamProgress(const ProgressTools& tools, std::function<bool()> make_current, CUstream stream,
                 std::atomic<uint64_t>* ends_ns);
  ~StreamProgress();
  StreamProgress(const StreamProgress&) = delete;
  StreamProgress& operator=(const StreamProgress&) = delete;
  // Later work goes to another stream of the driver, which waits for the first.
  void move(CUstream stream, std::atomic<uint64_t>* ends_ns);

  // These have been submitted, as the last of the stream's work: work of that cost, a wait, a wait
  // that ends soon, a fence that writes `value` to `word`.
  void add(const Cost& cost);
  void add_wait(bool is_for_cold_stream);
  void add_short_wait() { open_.is_plain = false; }
  void add_fence(const std::atomic<uint64_t>& word, uint64_t value);
  // Something is about to come behind the stream's work. A mark is nothing.
  void note_entered() { ends_in_lone_ = false; }
  // The last item is a kernel or a graph, which by itself occupies no hardware queue.
  void note_lone() { ends_in_lone_ = true; }

  // A mark is due before work of that cost comes.
  [[nodiscard]] bool is_mark_due(const Cost& cost) const {
    return open_.total.items != 0 &&
           (open_.total.items >= kMarkItems || open_.total.expected_ns >= kMarkNs ||
            open_.total.unknown != 0 || !tools_.durations.is_known(cost));
  }
  // Put a mark behind the stream's work, if there is some without one.
  void mark();
  // Put a mark, and see which marks the GPU has reached.
  void look(uint64_t now);
  // All work is known to have ended.
  void end(uint64_t now);

  // All work that may be unfinished.
  [[nodiscard]] const WorkTotal& total() const { return total_; }
  [[nodiscard]] bool is_empty() const { return total_.items == 0; }
  // Some of it keeps SMs busy.
  [[nodiscard]] bool is_busy() const { return busy_; }
  // It occupies no hardware queue: one kernel or graph that waits for nothing, with nothing behind.
  [[nodiscard]] bool is_lone() const {
    return total_.items == 1 && ends_in_lone_ && first().is_plain;
  }
  // How long the first item or run of items has been running, and may run in all.
  [[nodiscard]] uint64_t ran_ns(uint64_t now) const;
  [[nodiscard]] uint64_t first_expected_ns() const { return first().total.expected_ns; }
  // How long all of it will take from now on.
  [[nodiscard]] uint64_t remaining_ns(uint64_t now) const;

 private:
  // The items between two marks.
  static constexpr size_t kMostLearnt = 8;
  struct Segment {
    WorkTotal total;
    uint64_t begin_ns = 0;      // when its first item was submitted,
    uint64_t closed_ns = 0;     // and when all of it had been
    uint64_t unreached_ns = 0;  // when its mark was last seen unreached
    uint64_t alone_ns = 0;      // its expected duration if it had the device to itself
    uint64_t sm_ns = 0;         // the sum of each item's expected duration times its SMs
    bool is_plain = true;       // none of it waits: its time says how long its work takes
    bool is_compared = true;    // alone_ns is of work that has been seen alone
    uint8_t learnt = 0;         // entries of `numbers`
    std::array<uint32_t, kMostLearnt> numbers{};  // of its work, in Durations
    // Its mark: a word that becomes `value`, or an event.
    const std::atomic<uint64_t>* word = nullptr;
    uint64_t value = 0;
    CUevent event = nullptr;

    void add_number(uint32_t number);
    void append(const Segment& next);
    [[nodiscard]] std::span<const uint32_t> learnt_numbers() const {
      return std::span(numbers).first(learnt);
    }
  };
  static constexpr size_t kSegments = 32;
  // A mark comes behind so many items or so much time: an eighth of a stream's budget.
  static constexpr uint32_t kMarkItems = 32;
  static constexpr uint64_t kMarkNs = kWindowNs / 8;

  Segment& at(size_t i) { return (*segments_)[(first_ + i) % kSegments]; }
  // What runs now, as far as is known.
  [[nodiscard]] const Segment& first() const { return count_ != 0 ? (*segments_)[first_] : open_; }
  [[nodiscard]] uint64_t begun_ns() const { return std::max(first().begin_ns, ended_ns_); }
  void begin_item();
  bool has_free_segment();
  void close();
  [[nodiscard]] bool is_reached(const Segment& segment) const;
  void drop_first();
  void reach_all(uint64_t now);
  // Tell others when the work is expected to end.
  void show_end();
  // The segment has ended by `now`. `learns`: its times say how long its work takes.
  void reach(const Segment& segment, uint64_t now, bool learns);
  // The least time that a segment ran, and that it was the first of its stream: part of the latter
  // it may have waited for SMs.
  struct Seen {
    uint64_t least_ns = 0;
    uint64_t there_ns = 0;
  };
  void account(const Segment& segment, const Seen& seen, uint64_t now);

  const ProgressTools tools_;
  const std::function<bool()> make_current_;
  CUstream stream_;
  std::atomic<uint64_t>* ends_ns_;
  WorkTotal total_;
  uint64_t until_ns_ = 0;  // when all work would have ended if it had waited for nobody
  bool busy_ = false;      // counted in the fair share until all work has ended
  bool ends_in_lone_ = false;
  Segment open_;  // behind the last mark
  // Closed by marks, oldest first. Allocated with the first mark.
  std::unique_ptr<std::array<Segment, kSegments>> segments_;
  size_t first_ = 0;
  size_t count_ = 0;
  // When the newest reached mark was seen so, and when it was last seen unreached.
  uint64_t reached_ns_ = 0;
  uint64_t before_reached_ns_ = 0;
  uint64_t ended_ns_ = 0;  // when the work before it most likely ended
  std::vector<CUevent> spare_;
};

}  // namespace openmps::worker
