// SPDX-License-Identifier: Apache-2.0
// Makes a session of another worker again, from its journal (docs/decisions/0042). Session's
// thread.
#pragma once

#include <cstdint>

#include "cuda/status.h"
#include "worker/session/session_parts.h"

namespace openmps::worker {

// Executes the entries of the session's journal, whose channel is mapped, and compares each reply
// with the recorded one. Any error: the session can't be made again, for the reason in its message.
// `lost_streams`: wire::SessionReady.
Status adopt(SessionParts& session, uint32_t* lost_streams);

}  // namespace openmps::worker
