// SPDX-License-Identifier: Apache-2.0
// How long work takes on the GPU, learnt from work of its kind that has ended: by function and size
// of grid, by executable graph, by MiB of a copy. Session's thread only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace openmps::worker {

// A queue credit of short term is given back within this time. Work that takes longer would keep a
// hardware queue from others for too long.
inline constexpr uint64_t kShortTermNs = 5'000'000;

// What a piece of work costs.
struct Cost {
  uint32_t learnt = 0;         // the number of its kind in Durations; 0: it has none
  uint32_t sms = 0;            // SMs that it keeps busy on average (SmFootprint)
  uint32_t sms_needed = 0;     // the fewest that hold all its blocks at once; 0: not asked for
  bool needs_all_sms = false;  // with a few SMs less it takes much longer, or may not end
  uint64_t ns = 0;             // its duration, if it has no number
  uint32_t times = 1;          // how often the work of that number is done
  uint32_t kernels = 1;        // kernels, one behind the other, that it consists of
};

class Durations {
 public:
  // The numbers of one MiB of a long copy over the bus, in each direction. Until copies have been
  // seen, as PCI Express 5.0 has it.
  static constexpr uint32_t kMiBToDevice = 1;
  static constexpr uint32_t kMiBFromDevice = 2;
  static constexpr uint32_t kBusNsPerMiB = 20'000;

  // The expected duration of a kernel that has not run yet: that of a small one.
  static constexpr uint64_t kUnknownNs = 20'000;

  // A number for a new kind of work. After 65,535 the numbers are given again. Throws
  // std::bad_alloc.
  [[nodiscard]] uint32_t add();
  [[nodiscard]] bool is_known(const Cost& cost) const {
    return cost.learnt == 0 || kinds_[cost.learnt].ns != 0;
  }
  [[nodiscard]] uint64_t of(const Cost& cost) const {
    if (cost.learnt == 0) return cost.ns;
    const uint64_t ns = kinds_[cost.learnt].ns;
    return (ns != 0 ? ns : kUnknownNs) * cost.times;
  }
  // Its duration if it had the device to itself: at most this, as far as has been seen.
  [[nodiscard]] uint64_t alone(const Cost& cost) const {
    const uint64_t ns = kinds_[cost.learnt].alone_ns;
    return ns != 0 ? ns * cost.times : of(cost);
  }
  // Work of this kind has been seen that had all SMs it wanted.
  [[nodiscard]] bool has_been_alone(const Cost& cost) const {
    return kinds_[cost.learnt].been_alone;
  }

  // The time that some work was expected to take, and two bounds of the time that it took.
  struct Observed {
    uint64_t expected_ns = 0;
    uint64_t least_ns = 0;
    uint64_t most_ns = 0;
  };
  // Of the work of all these numbers together, which had a `part` (at most 1) of the SMs wanted.
  void learn(std::span<const uint32_t> numbers, const Observed& seen, double part = 1);
  // What alone() returns of these numbers, where something is known of it.
  void learn_alone(std::span<const uint32_t> numbers, const Observed& seen);
  // Work of these numbers has ended, and nothing could be learnt. After kTries such times the work
  // is taken to be short.
  void miss(std::span<const uint32_t> numbers);

 private:
  static constexpr uint32_t kMost = 1u << 16;
  static constexpr uint32_t kFirstGiven = kMiBFromDevice + 1;
  static constexpr uint8_t kTries = 8;
  struct Kind {
    uint32_t ns = 0;        // 0: not known
    uint32_t alone_ns = 0;  // 0: not known
    uint8_t tries = 0;
    bool been_alone = false;
  };
  // Learn one duration of these numbers. False: nothing could be learnt. A number of which nothing
  // is known counts as `unknown_ns`; 0: it is left out.
  bool adapt(uint32_t Kind::*known, std::span<const uint32_t> numbers, const Observed& seen,
             uint64_t unknown_ns);

  std::vector<Kind> kinds_ = {{}, {.ns = kBusNsPerMiB}, {.ns = kBusNsPerMiB}};  // by number
  uint32_t next_ = kFirstGiven;  // the next number to be given again
};

}  // namespace openmps::worker
