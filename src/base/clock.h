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

// Tell the core that this is a spin loop.
inline void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace openmps
