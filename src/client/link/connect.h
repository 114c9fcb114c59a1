// SPDX-License-Identifier: Apache-2.0
// Connects to the daemon: Hello and Welcome, the session's window of addresses with its channel,
// and the facts of the devices.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/shared_memory.h"
#include "base/unique_fd.h"
#include "cuda/status.h"
#include "wire/device_facts.h"
#include "wire/handshake.h"

namespace openmps::client {

// What connecting yields, before any object exists.
struct Connection {
  UniqueFd socket;
  Mapping window;  // the device part is reserved without access; the host part maps host_file
  UniqueFd host_file;
  std::unique_ptr<wire::Facts> facts;
  uint64_t window_base = 0;
  uint64_t spin_ns = 0;
  wire::ClientLimits limits;  // as granted; devices are numbered as in the worker
  bool in_group = false;
  wire::ClientLimits group_limits;
  wire::StaticPartition partition;  // without SMs: the client is in none
};

// Errors: the CUresult of cuInit, with the reason.
Result<Connection> connect(const std::string& control_socket);

}  // namespace openmps::client
