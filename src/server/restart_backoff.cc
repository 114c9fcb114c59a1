// SPDX-License-Identifier: Apache-2.0
// See restart_backoff.h.
#include "server/restart_backoff.h"

#include <algorithm>

namespace openmps::server {

uint64_t RestartBackoff::worker_ended(uint64_t now_ns) {
  if (ready_ && now_ns - ready_ns_ >= kSteadyNs) losses_ = 0;
  ready_ = false;
  if (losses_++ == 0) return 0;
  uint64_t pause = kFirstPauseMs;
  for (uint32_t i = 2; i < losses_ && pause < kLongestPauseMs; ++i) pause *= 2;
  return std::min(pause, kLongestPauseMs);
}

}  // namespace openmps::server
