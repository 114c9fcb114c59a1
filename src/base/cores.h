// SPDX-License-Identifier: Apache-2.0
// How many cores a thread may run on, and whether threads have to wait for a core (decision 24).
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

namespace openmps {

// The number of cores that this thread may run on, at least 1.
[[nodiscard]] uint32_t usable_cores();

// For how long this thread was ready to run while other threads had the core, by Linux's count
// (/proc/thread-self/schedstat), since the last call on this thread; in the first call, since the
// thread began. Nothing where Linux does not count. Costs some ten microseconds.
[[nodiscard]] std::optional<uint64_t> take_run_delay_ns();

// Whether cores are short, as threads learn that spin: another thread has had the core between two
// looks. Then spinning harms all threads, the spinning ones first: Linux prefers threads that
// sleep. Any thread.
class CoreShortage {
 public:
  // `notices` false: cores are never short.
  explicit CoreShortage(bool notices = true) : notices_(notices) {}

  // Longer than an interrupt or a thread of the kernel's takes; a thread that has to wait for the
  // turn of another one waits 0.7 ms or more, Linux's shortest slice.
  static constexpr uint64_t kTakenNs = 300'000;
  // A core that is taken once may have been taken by a thread that woke up and moved on. Cores are
  // short if that happens twice within this time.
  static constexpr uint64_t kAgainNs = 200'000'000;
  // Then threads try again to spin, and may lose a few milliseconds by it.
  static constexpr uint64_t kLastsNs = 1'000'000'000;

  // A spinning thread looked at `before_ns` and next at `now`.
  void note_look(uint64_t before_ns, uint64_t now) {
    if (now >= before_ns + kTakenNs) note_gap(now - before_ns, take_run_delay_ns(), now);
  }
  // `waited_ns`: for how long of the gap the thread waited for a core, if that is known: time that
  // a hypervisor takes from all threads is no shortage, and sleeping would not help.
  void note_gap(uint64_t gap_ns, std::optional<uint64_t> waited_ns, uint64_t now) {
    if (!notices_ || (waited_ns && *waited_ns < gap_ns / 2)) return;
    const uint64_t last_ns = taken_ns_.exchange(now, std::memory_order_relaxed);
    if (last_ns == 0 || now > last_ns + kAgainNs) return;
    until_ns_.store(now + kLastsNs, std::memory_order_relaxed);
  }
  [[nodiscard]] bool lasts(uint64_t now) const {
    return now < until_ns_.load(std::memory_order_relaxed);
  }

 private:
  const bool notices_;
  std::atomic<uint64_t> taken_ns_{0};  // when a thread last lost its core
  std::atomic<uint64_t> until_ns_{0};
};

}  // namespace openmps
