// SPDX-License-Identifier: Apache-2.0
// When executors look for commands instead of sleeping. To wake one that sleeps takes 46 us on an
// H200's host, of the 150 that a small request takes.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "base/cores.h"

namespace openmps::worker {

// How many executors may do so at once, so that idle sessions leave the cores to those who work.
// Thread-safe.
class SpinBudget {
 public:
  explicit SpinBudget(uint32_t limit) : limit_(limit) {}
  bool enter() {
    if (spinning_.fetch_add(1, std::memory_order_relaxed) < limit_) return true;
    leave();
    return false;
  }
  void leave() { spinning_.fetch_sub(1, std::memory_order_relaxed); }

 private:
  const uint32_t limit_;
  std::atomic<uint32_t> spinning_{0};
};

// Between two requests of a program that comes back every few milliseconds.
inline constexpr uint64_t kLingerNs = 4'000'000;
// One of so many cores: what a machine can spare for it, beside the programs.
inline constexpr uint32_t kCoresPerLinger = 8;

// While cores are short (decision 24). Longer ones wake up less often, and leave the GPU with
// nothing to do: eight LeNet trainings came to 436 steps a second each with this, 418 and 397 with
// twice and five times as much, 409 when every command woke its session's thread (one H100).
inline constexpr uint64_t kNapNs = 100'000;
// Who has found nothing for so long sleeps until a command comes.
inline constexpr uint64_t kNapsForNs = 2'000'000;

// What can be switched off (OPENMPS_PERF).
struct SpinningSwitches {
  bool lingers = true;
  bool spares_cores = true;  // base/cores.h
  bool naps = true;          // while it does
};

// Of all sessions of a worker.
struct Spinning {
  Spinning(uint32_t cores, uint64_t brief_ns, const SpinningSwitches& on)
      : brief(std::max(1u, cores / 2)),
        lingering(on.lingers && brief_ns != 0 ? cores / kCoresPerLinger : 0),
        brief_ns(brief_ns),
        takes_naps(on.naps),
        shortage(on.spares_cores) {}
  // Whether who has found no command since then naps, instead of asking to be woken by the next.
  [[nodiscard]] bool naps(uint64_t paused_since_ns, uint64_t now) const {
    return takes_naps && now - paused_since_ns < kNapsForNs && shortage.lasts(now);
  }

  SpinBudget brief;
  SpinBudget lingering;
  const uint64_t brief_ns;  // what it pays to spin for, whoever comes
  const bool takes_naps;
  CoreShortage shortage;  // while it lasts, nobody does either
};

// The pauses between a program's commands that are longer than any brief spin: whether it pays to
// look for so long.
class Pauses {
 public:
  // A pause has ended with a command.
  void note(uint64_t ns) { short_ones_ = ns <= kLingerNs ? short_ones_ + 1 : 0; }
  // Until when it pays to look, in a pause that began at `since_ns`: 0 unless the last ones were
  // short. One that is not costs kLingerNs, once, however often somebody asks.
  [[nodiscard]] uint64_t linger_end_ns(uint64_t since_ns) const {
    return short_ones_ >= kSure ? since_ns + kLingerNs : 0;
  }

 private:
  static constexpr uint64_t kSure = 4;
  uint64_t short_ones_ = 0;  // in a row
};

}  // namespace openmps::worker
