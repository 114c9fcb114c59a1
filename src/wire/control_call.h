// SPDX-License-Identifier: Apache-2.0
// A connection to the control daemon, which the client library, the command shell and `openmps`
// make, and a command with its answer, for the shell and `openmps`. Blocking.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/unique_fd.h"
#include "base/unix_socket.h"
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

// Connect to the daemon at `socket_path`, if root or our own user runs it: every user who may write
// into the directory could put a socket there. Nothing is sent but, in a user namespace in which
// the daemon's user has no number, the demand for a proof (trust.h), whose answer is awaited for
// 10 s at most. Errors: CUDA_ERROR_MPS_CONNECTION_FAILED: no process listens;
// CUDA_ERROR_NOT_PERMITTED: another user's process listens. `waits`: connect_to()'s.
Result<UniqueFd> connect_to_daemon(const std::string& socket_path, Waits waits = Waits::kYes);

// The two halves of call_control(), with its errors: send `command`; wait for the whole answer,
// whose beginning makes the socket readable.
Status send_command(int socket, std::string_view command);
Result<ControlReply> receive_reply(int socket);
// Adds a packet of an answer to those before it. Whether there is more; an error: it is none.
Result<bool> read_reply_part(std::span<const std::byte> packet, ControlReply* reply);

// Send `command` and wait for the whole answer, for ever: `quit` waits for clients.
// Errors: CUDA_ERROR_MPS_RPC_FAILURE if the daemon goes away before it has answered.
Result<ControlReply> call_control(int socket, std::string_view command);

}  // namespace openmps::wire
