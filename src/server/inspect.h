// SPDX-License-Identifier: Apache-2.0
// The state of a session as its channel shows it, for `openmps inspect`: what is queued, what the
// executor does and which sessions keep it waiting, what threads and streams wait for, which
// releases are deferred. Reads only, and trusts nothing that it reads. Server's thread.
#pragma once

#include <string>

#include "server/session_table.h"

namespace openmps::server {

// A SessionReport with its WaitRows (wire/handshake.h), as bytes.
// `sessions`: those that may keep the executor waiting.
std::string inspect(const Session& session, const SessionTable& sessions);

}  // namespace openmps::server
