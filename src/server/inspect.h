// SPDX-License-Identifier: Apache-2.0
// What the channel of a session says of it, for `openmps inspect`: what is queued, what the
// executor is at, who waits for what. Only looks; nothing of it is believed. Server's thread.
#pragma once

#include <string>

#include "server/session_table.h"

namespace openmps::server {

// A SessionReport with its WaitRows (wire/handshake.h), as bytes.
std::string inspect(const Session& session);

}  // namespace openmps::server
