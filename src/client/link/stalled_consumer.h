// SPDX-License-Identifier: Apache-2.0
// Whether the session's thread in the worker has stopped taking commands although there are some.
// A thread that spins for their result is of no use then, and harmful if the worker's thread waits
// for that very core: Linux may queue a thread that is woken behind the thread that woke it. On an
// H200's host with 16 busy cores requests were late by the whole time of such a spin (decision 24).
#pragma once

#include <cstdint>

namespace openmps::client {

class StalledConsumer {
 public:
  // Twice what it takes to wake a thread (46 us).
  static constexpr uint64_t kStalledNs = 100'000;

  explicit StalledConsumer(uint64_t now) : moved_ns_(now) {}
  // At `now` the consumer had taken `taken` bytes of the ring; `drained`: all there were. True: it
  // has stalled.
  bool note(uint64_t taken, bool drained, uint64_t now) {
    if (drained || taken != taken_) {
      taken_ = taken;
      moved_ns_ = now;
    }
    return now - moved_ns_ >= kStalledNs;
  }

 private:
  uint64_t taken_ = 0;
  uint64_t moved_ns_;
};

}  // namespace openmps::client
