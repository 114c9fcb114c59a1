// SPDX-License-Identifier: Apache-2.0
// What the channel of a session says of it, for `openmps inspect`: what is queued, what the
// executor is at and who is in its way, who waits for what, what is given back later. Only looks;
// nothing of it is believed. Server's thread.
#pragma once

#include <string>

#include "server/session_table.h"

namespace openmps::server {

// A SessionReport with its WaitRows (wire/handshake.h), as bytes.
// `sessions`: those that may be in its way.
std::string inspect(const Session& session, const SessionTable& sessions);

}  // namespace openmps::server
