// SPDX-License-Identifier: Apache-2.0
// See adaptive_wait.h.
#include "base/adaptive_wait.h"

#include <cassert>

namespace openmps {

WaitStep AdaptiveWait::next() const {
  const uint64_t now = clock_.now_ns();
  const uint64_t waited_ns = now - begin_ns_;
  if (waited_ns < plan_.spin_until_ns) return {WaitPhase::kSpin, 0};
  const bool is_short = shortage_ != nullptr && shortage_->lasts(now);
  if (!is_short && waited_ns < plan_.spare_spin_until_ns) return {WaitPhase::kSpin, 0};
  const uint64_t nap_until_ns =
      is_short ? std::max(plan_.nap_until_ns, plan_.crowded_nap_until_ns) : plan_.nap_until_ns;
  if (waited_ns < nap_until_ns) return {WaitPhase::kNap, plan_.nap.after(waited_ns)};
  return {WaitPhase::kSleep, kNever};
}

void AdaptiveWait::pause() const {
  const WaitStep step = next();
  assert(step.phase != WaitPhase::kSleep && "no wake would end the sleep");
  if (step.phase == WaitPhase::kSpin) {
    cpu_relax();
  } else {
    clock_.sleep(step.pause_ns);
  }
}

void SpinHistory::note(uint64_t waited_ns) {
  if (waited_ns < longest_ns_) {
    spin_ns_ = longest_ns_;
    return;
  }
  spin_ns_ = std::max(spin_ns_ / 2, std::min(kShortestNs, longest_ns_));
  in_time_ = waited_ns <= kLongSpinNs ? in_time_ + 1 : 0;
}

}  // namespace openmps
