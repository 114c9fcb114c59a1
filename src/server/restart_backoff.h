// SPDX-License-Identifier: Apache-2.0
// How long the place of a lost worker stays empty. One per Server, on the loop's thread; times are
// given by the caller, in nanoseconds of any monotonic clock.
#pragma once

#include <cstdint>

namespace openmps::server {

// The first loss is replaced at once: whatever it was, clients want to connect. Behind it the pause
// doubles from what is little beside the start of a worker (about a second where there is a GPU).
inline constexpr uint64_t kFirstPauseMs = 100;
// A client that connects meanwhile waits that long in its cuInit; a worker that can't live takes no
// more than a small part of a core, and writes some lines per pause into the log.
inline constexpr uint64_t kLongestPauseMs = 5'000;
// A worker that was ready for this long does not die of how it started.
inline constexpr uint64_t kSteadyNs = 60'000'000'000;

class RestartBackoff {
 public:
  void worker_ready(uint64_t now_ns) {
    ready_ns_ = now_ns;
    ready_ = true;
  }
  // The worker has opened a session, so it is good for something: should it end now, the rate of
  // restarts is that of the clients that bring it down.
  void worker_served() { losses_ = 0; }
  // The worker has ended: milliseconds until the next one is to start.
  [[nodiscard]] uint64_t worker_ended(uint64_t now_ns);

 private:
  bool ready_ = false;  // the worker that runs
  uint64_t ready_ns_ = 0;
  uint32_t losses_ = 0;  // in a row
};

}  // namespace openmps::server
