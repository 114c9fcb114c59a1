// SPDX-License-Identifier: Apache-2.0
// One command to the control daemon and its answer: what the command shell and `openmps` do.
// Blocking; called on their only thread.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "base/unique_fd.h"

namespace openmps::wire {

// The longest command line; more is an error on both sides. The longest sensible one is below 200.
inline constexpr size_t kMaxCommandBytes = 4096;

struct ControlReply {
  std::string text;  // as to be printed, with its newlines
  int exit_status = 0;
};

// Path of the daemon's socket in a pipe directory.
std::string control_socket_path(std::string_view pipe_directory);

// Send `command` and wait for the whole answer, for ever: `quit` waits for clients.
// Errors: CUDA_ERROR_MPS_RPC_FAILURE if the daemon goes away before it has answered.
Result<ControlReply> call_control(int socket, std::string_view command);

}  // namespace openmps::wire
