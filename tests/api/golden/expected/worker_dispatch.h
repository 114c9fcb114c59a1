// SPDX-License-Identifier: Apache-2.0
// Generated from api/*.toml by api/generate.py; do not edit.
// Executes generated messages of a session on the driver below. Runs on the
// session's executor thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "api/driver_table.h"
#include "api/messages.h"
#include "api/worker_session.h"

namespace openmps {

// Decodes and checks the request, translates handles through `session`, calls the driver and
// writes the reply. `request` and `reply` must be aligned to kMessageAlignment, must not be
// visible to the client, and reply needs kMaxMessageBytes. The session's context must be current.
DispatchOutcome dispatch_generated(const DriverTable& driver, HandleResolver& session,
                                   uint16_t opcode, const void* request, size_t request_bytes,
                                   void* reply);

// "cuFuncGetAttribute", or null if the opcode is not a generated one. For the log.
const char* generated_opcode_name(uint16_t opcode);

}  // namespace openmps
