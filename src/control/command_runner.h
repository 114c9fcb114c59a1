// SPDX-License-Identifier: Apache-2.0
// Carries out commands: checks that the caller may give them and calls their handlers. Called by
// Daemon on the loop.
#pragma once

#include <string>
#include <utility>

#include "control/command_call.h"

namespace openmps::control {

class CommandRunner {
 public:
  CommandRunner(ServerPool& servers, DaemonControl daemon)
      : servers_(servers), daemon_(std::move(daemon)) {}

  // `done` is called once, now or later.
  void run(const Command& command, const Caller& caller, Done done);

 private:
  // "" if the caller may give the command.
  [[nodiscard]] std::string reason_against(const Command& command, User caller) const;

  ServerPool& servers_;
  const DaemonControl daemon_;
};

}  // namespace openmps::control
