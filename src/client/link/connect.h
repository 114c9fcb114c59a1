// SPDX-License-Identifier: Apache-2.0
// The way to the service: from the daemon's socket to a channel, a window of addresses and the
// facts of the devices.
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
  Mapping window;  // device part without access, host part the host file
  UniqueFd host_file;
  std::unique_ptr<wire::Facts> facts;
  uint64_t window_base = 0;
  uint64_t spin_ns = 0;
  wire::ClientLimits limits;  // granted; devices are the worker's
  bool in_group = false;
  wire::ClientLimits group_limits;
  wire::StaticPartition partition;  // that it is in, if it has SMs
};

// Errors are the CUresult of cuInit with the reason.
Result<Connection> connect(const std::string& control_socket);

}  // namespace openmps::client
