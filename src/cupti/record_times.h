// SPDX-License-Identifier: Apache-2.0
// Times of now_ns() as times of the clock that a profiler wants in its records: the wall clock, as
// CUPTI's default on Linux, or a function of its own. That function may count anything: Kineto's
// returns the processor's time stamp counter. So both clocks are read near each other now and then,
// and times between two such readings are interpolated. An order of times stays an order.
// Not locked: Recorder holds its lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace openmps::cupti {

class RecordTimes {
 public:
  using Source = uint64_t (*)();
  struct Reading {
    uint64_t ns = 0;  // by now_ns()
    uint64_t time = 0;
  };

  // Calls the source, which may be a profiler's function.
  static Reading read(Source source);

  // Forget what was read.
  void clear() { readings_.clear(); }
  // Whether that time is before the last reading: at() then gives the same for it ever after.
  [[nodiscard]] bool covers(uint64_t ns) const {
    return !readings_.empty() && ns <= readings_.back().ns;
  }
  void add(Reading reading);
  [[nodiscard]] uint64_t at(uint64_t ns) const;
  [[nodiscard]] size_t size() const { return readings_.size(); }

 private:
  std::vector<Reading> readings_;  // ascending
};

// Readings that are kept: 16 KiB. Beyond that every second one is given up, of which the others
// tell.
inline constexpr size_t kMostReadings = 1024;

}  // namespace openmps::cupti
