// SPDX-License-Identifier: Apache-2.0
// Whether a process answers: it is asked in intervals, and whatever it says is an answer. A server
// has one for each worker, the daemon for each server. On the loop's thread.
#pragma once

#include <cstdint>
#include <functional>

#include "base/event_loop.h"

namespace openmps {

// Between two questions, as long as there is a reason to ask: an idle machine asks none.
inline constexpr uint64_t kPingMs = 2'000;
// A peer that has not answered a question for so long is stopped or stuck. Servers answer from
// memory. A worker's main thread waits for no client and for no work on the GPU; what takes it
// longest is to make a context (0.4 s on an H200).
inline constexpr uint64_t kSilentMs = 10'000;

class Heartbeat {
 public:
  struct Callbacks {
    // Ask now. False: a question can't reach it, so its silence says nothing.
    std::function<bool()> ask;
    // There is still a reason to ask; false: beat() begins anew.
    std::function<bool()> is_wanted;
    // Once: it has been silent for so long. And once when it speaks again.
    std::function<void(uint64_t ms)> on_silent;
    std::function<void(uint64_t ms)> on_back;
  };

  Heartbeat(EventLoop& loop, uint64_t ping_ms, uint64_t silent_ms, Callbacks callbacks)
      : loop_(loop), ping_ms_(ping_ms), silent_ms_(silent_ms), callbacks_(std::move(callbacks)) {}
  ~Heartbeat() { loop_.cancel(timer_); }
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  // Ask from now on, as long as it is wanted.
  void beat();
  // It has said something.
  void heard();
  [[nodiscard]] bool is_silent() const { return is_silent_; }

 private:
  void on_timer();
  [[nodiscard]] uint64_t waited_ms() const;

  EventLoop& loop_;
  const uint64_t ping_ms_;
  const uint64_t silent_ms_;
  const Callbacks callbacks_;
  EventLoop::TimerId timer_ = 0;
  uint64_t due_ns_ = 0;    // when the timer was to come, by now_ns(); 0: it is the first
  uint64_t asked_ns_ = 0;  // when the question that is open was asked; 0: none is
  bool is_silent_ = false;
};

}  // namespace openmps
