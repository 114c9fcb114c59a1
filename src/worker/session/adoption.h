// SPDX-License-Identifier: Apache-2.0
// Makes a session of another worker again, from its journal (docs/decisions/0042). Session's
// thread.
#pragma once

#include <cstdint>

#include "cuda/status.h"
#include "worker/session/session_parts.h"

namespace openmps::worker {

// What became of work that was under way in the former worker.
struct Adopted {
  uint32_t lost_streams = 0;  // streams whose work is lost
  uint32_t given_again = 0;   // commands that are executed again
};

// Executes the entries of the session's journal, whose channel is mapped, and compares each reply
// with the recorded one. Any error: the session can't be made again, for the reason in its message.
Status adopt(SessionParts& session, Adopted* adopted);

}  // namespace openmps::worker
