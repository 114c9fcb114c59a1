// SPDX-License-Identifier: Apache-2.0
// How a thread waits for what another thread, another process or the GPU does. A wait has up to
// three phases: the thread spins while that is quicker than being woken, naps between two looks,
// and sleeps until it is woken. The decisions are a function of the time and of whether cores are
// short; decision 24 has the measurements.
#pragma once

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "base/clock.h"
#include "base/cores.h"

namespace openmps {

inline constexpr uint64_t kNever = UINT64_MAX;

// The length of a nap grows with the wait, so a look is late by a bounded part of the wait.
struct NapLength {
  uint64_t shortest_ns = 0;
  uint64_t longest_ns = kNever;
  uint64_t share = 1;  // a nap takes 1/share of the time waited so far

  [[nodiscard]] constexpr uint64_t after(uint64_t waited_ns) const {
    return std::clamp(waited_ns / share, shortest_ns, longest_ns);
  }
};

// When each phase ends, in nanoseconds since the wait began.
struct WaitPlan {
  uint64_t spin_until_ns = 0;         // in any case
  uint64_t spare_spin_until_ns = 0;   // unless cores are short
  uint64_t nap_until_ns = 0;          // in any case
  uint64_t crowded_nap_until_ns = 0;  // if cores are short
  NapLength nap = {};
  // While the thread spins, it gives up the core at each look from here on.
  uint64_t yield_from_ns = kNever;
};

enum class WaitPhase { kSpin, kNap, kSleep };

// What the thread does next, and for how long at most before it looks again: kNever asleep.
struct WaitStep {
  WaitPhase phase;
  uint64_t pause_ns;
};

// One wait of one thread.
class AdaptiveWait {
 public:
  // `shortage`: null if the plan does not depend on it.
  AdaptiveWait(const Clock& clock, const WaitPlan& plan, CoreShortage* shortage = nullptr)
      : clock_(clock), shortage_(shortage), plan_(plan), begin_ns_(clock.now_ns()) {}

  [[nodiscard]] uint64_t begin_ns() const { return begin_ns_; }
  [[nodiscard]] uint64_t waited_ns() const { return clock_.now_ns() - begin_ns_; }
  [[nodiscard]] WaitStep next() const;
  [[nodiscard]] bool spins() const { return next().phase == WaitPhase::kSpin; }

  // While it spins: looks for a few microseconds. True: done() has returned true.
  template <typename Done>
  bool look(Done&& done);
  // Looks while it spins. True: done() has returned true.
  template <typename Done>
  bool spin(Done&& done) {
    while (spins()) {
      if (look(done)) return true;
    }
    return false;
  }
  // For good: the thread that is to end the wait may need this core.
  void stop_spinning() { plan_.spin_until_ns = plan_.spare_spin_until_ns = 0; }
  // Spins once more, until so long has passed since the wait began, unless cores are short.
  void spin_until(uint64_t ns) { plan_.spare_spin_until_ns = ns; }

  void restart() { begin_ns_ = clock_.now_ns(); }

  // A step of a wait that no wake ends: the caller looks between two steps. The plan naps
  // until kNever.
  void pause() const;

 private:
  static constexpr int kLooksPerClock = 64;

  const Clock& clock_;
  CoreShortage* const shortage_;
  WaitPlan plan_;
  uint64_t begin_ns_;
};

template <typename Done>
bool AdaptiveWait::look(Done&& done) {
  const uint64_t before = clock_.now_ns();
  const bool yields = before - begin_ns_ >= plan_.yield_from_ns;
  for (int i = 0; i < kLooksPerClock; ++i) {
    if (done()) return true;
    if (yields) {
      sched_yield();
    } else {
      cpu_relax();
    }
  }
  const bool is_spare = before - begin_ns_ >= plan_.spin_until_ns;
  if (is_spare && shortage_ != nullptr) shortage_->note_look(before, clock_.now_ns());
  return false;
}

// Learns from the lengths of a thread's waits for how long spinning pays. One thread.
class SpinHistory {
 public:
  // Between two requests of a program that comes back every few milliseconds.
  static constexpr uint64_t kLongSpinNs = 4'000'000;

  explicit SpinHistory(uint64_t longest_ns) : longest_ns_(longest_ns), spin_ns_(longest_ns) {}

  // Less and less while waits outlast `longest_ns`, and all of it again after one that does not.
  [[nodiscard]] uint64_t spin_ns() const { return spin_ns_; }
  // kLongSpinNs if the last waits ended within it, though later than `longest_ns`; else 0.
  [[nodiscard]] uint64_t long_spin_ns() const { return in_time_ >= kSure ? kLongSpinNs : 0; }

  // A wait has ended with what it was for.
  void note(uint64_t waited_ns);
  // The thread has found something else to do before that.
  void note_interruption() { spin_ns_ /= 2; }

 private:
  // A futex wake and the switch to the thread take 5 us together: to spin for less gains nothing.
  static constexpr uint64_t kShortestNs = 5'000;
  static constexpr uint32_t kSure = 4;

  const uint64_t longest_ns_;
  uint64_t spin_ns_;
  uint32_t in_time_ = 0;  // waits in a row that a long spin would have seen the end of
};

// How many threads may spin at once, so that idle ones leave cores to those that work. Any thread.
class SpinBudget {
 public:
  explicit SpinBudget(uint32_t limit) : limit_(limit) {}

  // The right to spin, until it is destroyed; or none.
  class Permit {
   public:
    explicit Permit(SpinBudget& budget)
        : budget_(budget),
          granted_(budget.spinning_.fetch_add(1, std::memory_order_relaxed) < budget.limit_) {}
    ~Permit() { budget_.spinning_.fetch_sub(1, std::memory_order_relaxed); }
    Permit(const Permit&) = delete;
    Permit& operator=(const Permit&) = delete;
    explicit operator bool() const { return granted_; }

   private:
    SpinBudget& budget_;
    const bool granted_;
  };
  [[nodiscard]] Permit request() { return Permit(*this); }

 private:
  const uint32_t limit_;
  std::atomic<uint32_t> spinning_{0};
};

}  // namespace openmps
