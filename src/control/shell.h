// SPDX-License-Identifier: Apache-2.0
// The command shell: lines from standard input, or one command from the arguments, to the daemon of
// the pipe directory, its answers to standard output. Called by main().
#pragma once

#include <string>

namespace openmps::control {

// Exit status: 1 without a daemon, else what the daemon says (0 for nearly everything, as
// NVIDIA's).
int run_shell(const std::string& pipe_directory);
int run_one_command(const std::string& pipe_directory, const std::string& command);

}  // namespace openmps::control
