// SPDX-License-Identifier: Apache-2.0
// The answer to whether a piece of work may be submitted now: what it takes, or why it is held and
// when to ask again. `openmps ps` shows the reason, and an executor with nothing else to do sleeps
// no longer than until that time. Times are those of Clock::now_ns().
#pragma once

#include <cstdint>

#include "wire/usage.h"
#include "worker/admission/queue_credits.h"
#include "worker/device/stream_slots.h"

namespace openmps::worker {

// A time that never comes.
inline constexpr uint64_t kNever = ~0ull;

// What the work takes. The stream keeps these right before the work is submitted (Streams::keep());
// else they give themselves back. Slots for the branches of a graph are taken when it is made.
struct Admitted {
  QueueCredit queue_credit;
  WaitCredit wait_credit;
  StreamSlot slot;       // for the CUstream, if it does not exist: it is made with the first work
  StreamSlot cold_slot;  // for that of the cold stream, if it does not exist
};

struct Refused {
  wire::HeldFor why = wire::HeldFor::kNothing;
  // When to ask again. kNever: not by time; the executor is woken when the answer may have changed.
  uint64_t ask_again_ns = kNever;
};

// Passed from check to check (admission.h): each adds the tokens that it takes for the work, or
// refuses.
struct Verdict {
  Admitted admitted;  // empty if refused
  Refused refused;

  [[nodiscard]] bool is_admitted() const { return refused.why == wire::HeldFor::kNothing; }
  void refuse(wire::HeldFor why, uint64_t ask_again_ns = kNever) {
    refused = {why, ask_again_ns};
    admitted = {};
  }
};

}  // namespace openmps::worker
