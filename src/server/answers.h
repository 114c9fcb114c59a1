// SPDX-License-Identifier: Apache-2.0
// Messages that the server makes from its state: what a session is granted, and answers to the
// daemon. Pure functions, called by Server.
#pragma once

#include <cstddef>
#include <vector>

#include "server/devices.h"
#include "server/groups.h"
#include "server/history.h"
#include "server/session_table.h"
#include "wire/handshake.h"

namespace openmps::server {

// What a client gets: wire::granted_limits(). In a static partition percentages count for nothing,
// as under MPS.
wire::Grant make_grant(const wire::Admit& admit);
// An operator's change of the limits of a group, or of a client's grant, on a machine of so many
// devices. Errors: those of wire::set_limit().
CUresult apply(const wire::Change& change, uint32_t devices, wire::ClientLimits* limits);
CUresult apply(const wire::Change& change, uint32_t devices, wire::Grant* grant);
wire::OpenSession make_open_session(const Session& session, const Groups& groups);

// Whether the query names the session's client: by the session's id or by the client's PID. PID 0
// names none: all clients that the daemon can't see have it.
bool is_meant(const wire::Query& query, const Session& session);

// The device that the client uses first: that of its partition, or the first one it sees.
uint32_t device_of(const wire::Admit& admit, const std::vector<Device>& devices);

// The whole packet that answers a query of the daemon. `used`: partitions that have clients.
std::vector<std::byte> make_answer(const wire::Query& query, wire::ServerState state,
                                   const SessionTable& sessions, const Groups& groups,
                                   const History& history, const std::vector<Device>& devices,
                                   const std::vector<wire::StaticPartition>& used = {});

}  // namespace openmps::server
