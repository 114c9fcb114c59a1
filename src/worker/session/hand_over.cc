// SPDX-License-Identifier: Apache-2.0
// See hand_over.h.
#include "worker/session/hand_over.h"

namespace openmps::worker {

HandingOver hand_over(SessionParts&) {
  HandingOver lost;
  lost.outcome = wire::Outcome::kLost;
  lost.reason = "sessions can't be handed over yet";
  return lost;
}

}  // namespace openmps::worker
