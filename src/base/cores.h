// SPDX-License-Identifier: Apache-2.0
// Threads and the machine's cores: whether there is one for each that wants one, and how soon one
// that wakes up gets its own (decision 24).
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

namespace openmps {

// On how many cores this thread may run, at least 1.
[[nodiscard]] uint32_t usable_cores();

// For how long this thread has been ready to run while others had its core, by Linux's count
// (/proc/thread-self/schedstat), since it asked last; the first time, since it began. Nothing where
// the system does not say. Costs some ten microseconds.
[[nodiscard]] std::optional<uint64_t> take_run_delay_ns();

// Whether cores are short, as threads learn that look for something without sleeping: somebody else
// has had their core meanwhile. Then looking harms all, themselves first: who sleeps instead comes
// before those who don't. Any thread.
class CoreShortage {
 public:
  // `notices` false: there never is any.
  explicit CoreShortage(bool notices = true) : notices_(notices) {}

  // Longer than an interrupt or a thread of the kernel's takes; Linux gives a thread that has to
  // wait for another one's turn 0.7 ms or more of waiting (its shortest slice).
  static constexpr uint64_t kTakenNs = 300'000;
  // Once is nothing (somebody wakes up, and moves on); twice within so long is a shortage.
  static constexpr uint64_t kAgainNs = 200'000'000;
  // Until somebody tries again, and may lose a few milliseconds by it.
  static constexpr uint64_t kLastsNs = 1'000'000'000;

  // A thread that has not slept looked at `before_ns`, by now_ns(), and not again until `now`.
  // True: cores are short.
  bool note_look(uint64_t before_ns, uint64_t now) {
    if (now < before_ns + kTakenNs) return false;
    return note_gap(now - before_ns, take_run_delay_ns(), now);
  }
  // The same of a gap between two looks, in which the thread waited for a core for so long, if that
  // is known: what a hypervisor takes from all is no shortage that sleeping could help.
  bool note_gap(uint64_t gap_ns, std::optional<uint64_t> waited_ns, uint64_t now) {
    if (!notices_ || (waited_ns && *waited_ns < gap_ns / 2)) return false;
    const uint64_t last_ns = taken_ns_.exchange(now, std::memory_order_relaxed);
    if (last_ns == 0 || now > last_ns + kAgainNs) return false;
    until_ns_.store(now + kLastsNs, std::memory_order_relaxed);
    return true;
  }
  [[nodiscard]] bool lasts(uint64_t now) const {
    return now < until_ns_.load(std::memory_order_relaxed);
  }

 private:
  const bool notices_;
  std::atomic<uint64_t> taken_ns_{0};  // when somebody's core was last found taken
  std::atomic<uint64_t> until_ns_{0};
};

// This thread is content with turns of 0.1 ms, and comes the sooner when it wakes up: Linux 6.12's
// slices (sched_setattr(2), sched_runtime). Without effect on an older kernel, and for threads that
// somebody has given another policy than SCHED_OTHER.
void prefer_short_turns();

}  // namespace openmps
