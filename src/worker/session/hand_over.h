// SPDX-License-Identifier: Apache-2.0
// The end of a session in this worker while it goes on in another one (docs/decisions/0042): which
// of its work is lost, and what its client is told. Session's thread, which has executed its last
// command.
#pragma once

#include <cstdint>
#include <string>

#include "wire/handshake.h"
#include "worker/session/session_parts.h"

namespace openmps::worker {

// What the server is told (wire::HandedOver).
struct HandingOver {
  wire::Outcome outcome = wire::Outcome::kMoved;
  uint32_t streams = 0;     // with work that is lost
  bool has_kernel = false;  // a kernel may have been running; what is known of it:
  uint64_t stream = 0;      // in that stream of the client
  uint32_t grid[3] = {};
  uint32_t block[3] = {};
  std::string kernel;
  std::string reason;
};

// The contexts are lost, or the session leaves with nothing under way. Finds the streams whose work
// has not ended for certain, and marks them as lost in their fence slots (wire::FenceSlot): from
// then on their waits end with an error. The session is not released here. After adoption the next
// worker calls Losses::take_over() (worker/streams/losses.h). Throws std::bad_alloc.
HandingOver hand_over(SessionParts& session);

}  // namespace openmps::worker
