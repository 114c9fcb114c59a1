// SPDX-License-Identifier: Apache-2.0
// The answer to whether a piece of work may go to the driver now: what it takes, or why it is held
// back and when to ask again. `openmps ps` shows the reason, and the executor sleeps until that
// time.
#pragma once

#include <cstdint>

#include "wire/usage.h"
#include "worker/admission/queue_credits.h"
#include "worker/device/stream_slots.h"

namespace openmps::worker {

// A time that never comes, by the clock.
inline constexpr uint64_t kNever = ~0ull;

// What the work takes. The stream keeps these when the work is submitted (Streams::keep()); else
// they give themselves back.
struct Admitted {
  QueueCredit queue_credit;
  WaitCredit wait_credit;
  StreamSlot slot;       // for the driver's stream, if there is none
  StreamSlot cold_slot;  // for its cold stream, if there is none
};

struct Refused {
  wire::HeldFor why = wire::HeldFor::kNothing;
  // When to ask again, by the clock. kNever: the executor is woken when that may help.
  uint64_t look_again_ns = kNever;
};

// Each reason to hold work (admission.h) adds what it gives, or refuses.
class Verdict {
 public:
  [[nodiscard]] bool is_admitted() const { return refused_.why == wire::HeldFor::kNothing; }
  [[nodiscard]] const Refused& refused() const { return refused_; }
  void refuse(wire::HeldFor why, uint64_t look_again_ns = kNever) {
    refused_ = {why, look_again_ns};
    admitted = {};
  }

  Admitted admitted;

 private:
  Refused refused_;
};

}  // namespace openmps::worker
