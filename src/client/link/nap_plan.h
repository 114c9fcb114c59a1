// SPDX-License-Identifier: Apache-2.0
// How long a thread that waits for the GPU sleeps between two looks, and when it does not sleep at
// all. Times are nanoseconds since the wait began; which thread it is its caller knows. Pure.
#pragma once

#include <algorithm>
#include <cstdint>

namespace openmps::client {

// Where cores are plenty (the worker said to spin this long or longer), a thread that waits for the
// GPU looks by itself, because a wake by the driver's threads comes late: measured on an H200,
// 0.7 ms after a 19 ms copy. At first it does nothing else, as the driver's own wait by default:
// who gives way between two looks loses its core for a turn of whoever takes it, milliseconds
// (decision 24). That ends where a nap and the timer's slack (50 us each) are about 5 % of the
// wait: a pinned copy of 64 MiB took 1.32 ms with naps, 1.22 natively. Then naps last 1/256 of the
// time waited so far, where the driver's own wait would spin throughout. While cores are short it
// naps at once.
inline constexpr uint64_t kNapFromSpinNs = 20'000;
inline constexpr uint64_t kLookUntilNs = 2'000'000;
inline constexpr uint64_t kShortestNapNs = 50'000;
inline constexpr uint64_t kNapShare = 256;
// From here on the wait asks for a wake as well: then a nap is longer than the wake is late.
inline constexpr uint64_t kAskFromNs = 200'000'000;
// A loop's waits are alike: a wait is taken to end as late as the thread's last one did, give or
// take a sixteenth, and no more than is spent on looks at its start.
inline constexpr uint64_t kAlikeShare = 16;

inline uint64_t nap_after(uint64_t waited_ns) {
  return std::max(kShortestNapNs, waited_ns / kNapShare);
}

// Whether the session's thread in the worker has stopped taking commands while there are some. Then
// it is no use to look for what they bring: that thread waits in the driver, or for a core, and
// that may be the very one on which the waiting thread looks. Measured on an H200's host with 16
// busy cores: Linux put the woken thread behind its waker, and requests were late by kLookUntilNs
// (decision 24).
class StalledConsumer {
 public:
  // Twice what it takes to wake a thread (46 us).
  static constexpr uint64_t kStalledNs = 100'000;

  explicit StalledConsumer(uint64_t now) : moved_ns_(now) {}
  // At `now` the consumer had taken so much; `drained`: there was no more. True: it has stalled.
  bool note(uint64_t taken, bool drained, uint64_t now) {
    if (drained || taken != taken_) {
      taken_ = taken;
      moved_ns_ = now;
    }
    return now - moved_ns_ >= kStalledNs;
  }

 private:
  uint64_t taken_ = 0;
  uint64_t moved_ns_;
};

class NapPlan {
 public:
  // `last_ns`: how long the thread's last wait was that outlasted kLookUntilNs; 0: there is none.
  explicit NapPlan(uint64_t last_ns) {
    const uint64_t margin = std::min(last_ns / kAlikeShare, kLookUntilNs);
    from_ns_ = last_ns - margin;
    until_ns_ = last_ns + margin;
  }

  // It should end about now: look without a pause, until then.
  [[nodiscard]] bool is_about_to_end(uint64_t waited_ns) const {
    return waited_ns >= from_ns_ && waited_ns < until_ns_;
  }
  [[nodiscard]] uint64_t looks_until_ns() const { return until_ns_; }
  // It does not sleep through the beginning of that.
  [[nodiscard]] uint64_t nap_ns(uint64_t waited_ns) const {
    const uint64_t nap = nap_after(waited_ns);
    return waited_ns < from_ns_ ? std::min(nap, from_ns_ - waited_ns) : nap;
  }

 private:
  uint64_t from_ns_ = 0;
  uint64_t until_ns_ = 0;
};

}  // namespace openmps::client
