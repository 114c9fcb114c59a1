// SPDX-License-Identifier: Apache-2.0
// The command shell: sends lines from standard input, or one command from the arguments, to the
// daemon that wire::find_daemon() finds, and prints the answers. Called by main().
#pragma once

#include <string>

namespace openmps::control {

// Returns the exit status: 1 without a daemon, else the daemon's answer (0 for nearly everything,
// as with NVIDIA's).
int run_shell();
int run_one_command(const std::string& command);

}  // namespace openmps::control
