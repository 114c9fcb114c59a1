// SPDX-License-Identifier: Apache-2.0
// See heartbeat.h.
#include "base/heartbeat.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"

namespace openmps {

void Heartbeat::beat() {
  if (timer_ != 0) return;
  due_ns_ = 0;
  on_timer();
}

void Heartbeat::heard() {
  const uint64_t waited = waited_ms();
  asked_ns_ = 0;
  if (std::exchange(is_silent_, false)) callbacks_.on_back(waited);
}

uint64_t Heartbeat::waited_ms() const {
  return asked_ns_ == 0 ? 0 : (now_ns() - asked_ns_) / kNsPerMs;
}

void Heartbeat::on_timer() {
  timer_ = 0;
  if (!callbacks_.is_wanted()) {
    asked_ns_ = 0;
    return;
  }
  // Time in which this process stood itself, or the whole machine, says nothing of the other.
  const bool has_stood = due_ns_ != 0 && now_ns() > due_ns_ + ping_ms_ * kNsPerMs;
  if (has_stood && asked_ns_ != 0) asked_ns_ = now_ns();
  if (asked_ns_ == 0 && callbacks_.ask()) asked_ns_ = now_ns();
  const uint64_t waited = waited_ms();
  // The answer to a question is looked for when it is late, not only at the next interval.
  const bool is_late = asked_ns_ != 0 && waited >= silent_ms_;
  const uint64_t until_late = asked_ns_ == 0 || is_late ? ping_ms_ : silent_ms_ - waited;
  const uint64_t pause = std::min(ping_ms_, until_late);
  due_ns_ = now_ns() + pause * kNsPerMs;
  timer_ = loop_.call_after(pause, [this] { on_timer(); });
  // The last statement: the owner may destroy this object in it.
  if (is_late && !std::exchange(is_silent_, true)) callbacks_.on_silent(waited);
}

}  // namespace openmps
