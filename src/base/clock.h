// SPDX-License-Identifier: Apache-2.0
// The monotonic clock in nanoseconds: the one time base of waits, deadlines and measurements.
#pragma once

#include <cstdint>
#include <ctime>

namespace openmps {

inline constexpr uint64_t kNsPerMs = 1'000'000;

inline uint64_t now_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(t.tv_nsec);
}

// Since 1970, for people: it may be set back.
inline uint64_t wall_clock_ns() {
  timespec t{};
  clock_gettime(CLOCK_REALTIME, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(t.tv_nsec);
}

// The time as an object is told it: the monotonic clock's or, in a test, a time that the test sets.
// A class that decides by time takes a Clock in its constructor and does not call now_ns().
class Clock {
 public:
  Clock() = default;
  virtual ~Clock() = default;
  Clock(const Clock&) = delete;
  Clock& operator=(const Clock&) = delete;
  // Nanoseconds since some fixed time; never less than before. Any thread.
  [[nodiscard]] virtual uint64_t now_ns() const = 0;
  // Returns when about that time has passed. Any thread.
  virtual void sleep(uint64_t ns) const = 0;
};

class MonotonicClock final : public Clock {
 public:
  [[nodiscard]] uint64_t now_ns() const override { return openmps::now_ns(); }
  void sleep(uint64_t ns) const override {
    const timespec time{static_cast<time_t>(ns / 1'000'000'000),
                        static_cast<long>(ns % 1'000'000'000)};
    nanosleep(&time, nullptr);
  }
};

inline const Clock& monotonic_clock() {
  static const MonotonicClock clock;
  return clock;
}

// Tell the core that this is a spin loop.
inline void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace openmps
