// SPDX-License-Identifier: Apache-2.0
// The command shell.
#include "control/shell.h"

#include <cstdio>
#include <iostream>

#include "base/unix_socket.h"
#include "control/command.h"
#include "wire/control_call.h"
#include "wire/daemon_search.h"

namespace openmps::control {
namespace {

Result<UniqueFd> connect_to_daemon() {
  Result<UniqueFd> socket = wire::find_daemon().socket;
  if (socket.ok()) return socket;
  if (socket.status().code() == CUDA_ERROR_NOT_PERMITTED) {
    fprintf(stderr, "openmps-control: %s\n", socket.status().message().c_str());
  } else {
    // The text and the stream are those of NVIDIA's shell.
    printf("Cannot find MPS control daemon process\n");
  }
  return socket;
}

// False: the daemon has gone, or will not take this command.
bool call(int socket, const std::string& line, int* exit_status) {
  Result<wire::ControlReply> reply = wire::call_control(socket, line);
  if (!reply.ok()) {
    fflush(stdout);
    fprintf(stderr, "openmps-control: %s\n", reply.status().message().c_str());
    *exit_status = 1;
    return false;
  }
  fwrite(reply->text.data(), 1, reply->text.size(), stdout);
  fflush(stdout);
  if (reply->exit_status != 0) *exit_status = reply->exit_status;
  return true;
}

}  // namespace

int run_shell() {
  Result<UniqueFd> socket = connect_to_daemon();
  if (!socket.ok()) return 1;
  int exit_status = 0;
  std::string line;
  while (std::getline(std::cin, line)) {
    if (!call(socket->get(), line, &exit_status)) break;
    if (parse_command(line).word == "quit" && exit_status == 0) break;
  }
  return exit_status;
}

int run_one_command(const std::string& command) {
  Result<UniqueFd> socket = connect_to_daemon();
  if (!socket.ok()) return 1;
  int exit_status = 0;
  (void)call(socket->get(), command, &exit_status);
  return exit_status;
}

}  // namespace openmps::control
