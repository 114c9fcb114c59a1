// SPDX-License-Identifier: Apache-2.0
// Messages that the server makes from its state: what a session is granted, and answers to the
// daemon. Pure functions, called by Server.
#pragma once

#include <cstddef>
#include <vector>

#include "server/devices.h"
#include "server/groups.h"
#include "server/session_table.h"
#include "wire/handshake.h"

namespace openmps::server {

// What a client gets: the server's defaults for its user, which its own wishes can only lower
// (percentage, memory; 0 means unlimited) or choose where they are valid (priority). In a static
// partition percentages count for nothing, as under MPS.
wire::Grant make_grant(const wire::Admit& admit);
// What an operator changes of it, of a machine of so many devices. CUDA_ERROR_INVALID_DEVICE;
// CUDA_ERROR_INVALID_VALUE: no such setting, or not for a grant.
CUresult apply(const wire::Change& change, uint32_t devices, wire::Grant* grant);
// The same of what all members of a group have.
CUresult apply(const wire::Change& change, uint32_t devices, wire::GroupLimits* limits);
wire::OpenSession make_open_session(const Session& session, const Groups& groups);

// Is that a client that the query means? By the id of its session or by its PID; without either
// none is meant: all clients have PID 0 that the daemon can't see.
bool is_meant(const wire::Query& query, const Session& session);

// The device that the client uses first: its partition's, or the first that it sees.
uint32_t device_of(const wire::Admit& admit, const std::vector<Device>& devices);

// The whole packet that answers a query of the daemon. `used`: partitions that have clients.
std::vector<std::byte> make_answer(const wire::Query& query, wire::ServerState state,
                                   const SessionTable& sessions, const Groups& groups,
                                   const std::vector<Device>& devices,
                                   const std::vector<wire::StaticPartition>& used = {});

}  // namespace openmps::server
