// SPDX-License-Identifier: Apache-2.0
// `openmps run`: a program with the OpenMPS client as its CUDA driver.
#pragma once

#include <string>
#include <vector>

namespace openmps::cli {

struct RunOptions {
  std::vector<std::string> command;  // program and arguments
  bool required = false;             // fail instead of running without OpenMPS
  bool start = false;                // start a daemon if none runs
  bool profile = false;              // profilers in the program see its kernels
};

// Replaces this process by the program. Returns only on failure, with the exit status: 1, or like a
// shell 127 for a program that does not exist and 126 for one that can't run.
int run_program(const RunOptions& options);

}  // namespace openmps::cli
