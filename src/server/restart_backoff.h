// SPDX-License-Identifier: Apache-2.0
// How long a server waits before it replaces a lost worker. One per Server, on the loop's thread;
// the caller gives the times, in nanoseconds of any monotonic clock.
#pragma once

#include <cstdint>

namespace openmps::server {

// The first lost worker is replaced at once, whatever the cause, because clients want to connect.
// After that the pause doubles, beginning with little compared to the start of a worker (about a
// second with a GPU).
inline constexpr uint64_t kFirstPauseMs = 100;
// A client that connects meanwhile waits that long in its cuInit; a worker that can't live takes no
// more than a small part of a core, and writes some lines per pause into the log.
inline constexpr uint64_t kLongestPauseMs = 5'000;
// A worker that was ready for this long does not die from a cause at its start.
inline constexpr uint64_t kSteadyNs = 60'000'000'000;

class RestartBackoff {
 public:
  void worker_ready(uint64_t now_ns) {
    ready_ns_ = now_ns;
    ready_ = true;
  }
  // The worker has opened a session, so workers can work: if it ends now, restarts are as frequent
  // as the clients that cause them.
  void worker_served() { losses_ = 0; }
  // The worker has ended: milliseconds until the next one is to start.
  [[nodiscard]] uint64_t worker_ended(uint64_t now_ns);

 private:
  bool ready_ = false;  // the current worker is
  uint64_t ready_ns_ = 0;
  uint32_t losses_ = 0;  // in a row
};

}  // namespace openmps::server
