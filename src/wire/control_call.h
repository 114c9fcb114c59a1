// SPDX-License-Identifier: Apache-2.0
// A connection to the control daemon, which the client library, the command shell and `openmps`
// make, and one command with its answer, which the latter two do. Blocking.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/unique_fd.h"
#include "cuda/status.h"

namespace openmps::wire {

// The longest command line; more is an error on both sides. The longest sensible one is below 200.
inline constexpr size_t kMaxCommandBytes = 4096;

struct ControlReply {
  std::string text;  // as to be printed, with its newlines
  int exit_status = 0;
  uint64_t build = 0;  // of the daemon
};

// Path of the daemon's socket in a pipe directory.
std::string control_socket_path(std::string_view pipe_directory);

// Connect to the daemon at `socket_path`, if it is root's or our own user's: whoever may write into
// the directory can put a socket there. Nothing has been said to it. Errors:
// CUDA_ERROR_MPS_CONNECTION_FAILED: nobody listens; CUDA_ERROR_NOT_PERMITTED: somebody else does.
Result<UniqueFd> connect_to_daemon(const std::string& socket_path);

// The two halves of call_control(): send `command`; wait for the whole answer, whose beginning
// makes the socket readable. Errors: the same.
Status send_command(int socket, std::string_view command);
Result<ControlReply> receive_reply(int socket);

// Send `command` and wait for the whole answer, for ever: `quit` waits for clients.
// Errors: CUDA_ERROR_MPS_RPC_FAILURE if the daemon goes away before it has answered.
Result<ControlReply> call_control(int socket, std::string_view command);

}  // namespace openmps::wire
