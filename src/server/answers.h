// SPDX-License-Identifier: Apache-2.0
// Messages that the server makes from its state: what a session is granted, and answers to the
// daemon. Pure functions, called by Server.
#pragma once

#include <cstddef>
#include <vector>

#include "server/devices.h"
#include "server/session_table.h"
#include "wire/handshake.h"

namespace openmps::server {

// What a session gets: the server's defaults for its user, which the client's own wishes can only
// lower (percentage, memory; 0 means unlimited) or choose where they are valid (priority).
wire::OpenSession make_open_session(const Session& session);

// The whole packet that answers a query of the daemon.
std::vector<std::byte> make_answer(const wire::Query& query, wire::ServerState state,
                                   const SessionTable& sessions,
                                   const std::vector<Device>& devices);

}  // namespace openmps::server
