// SPDX-License-Identifier: Apache-2.0
// `openmps ps`: the clients of a daemon and what they use, once or again and again.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "observe/snapshot.h"

namespace openmps::cli {

struct PsOptions {
  bool json = false;    // print the daemon's answer unchanged
  double every_s = 0;   // 0: once
  uint32_t times = 0;   // with every_s: how often in all; 0: without end
  bool clears = false;  // the screen before each but the first
};

// Lines of text. Shares and rates are since `before`, for clients that are in it, else since each
// session began.
std::string format_ps_table(const std::vector<observe::Client>& clients,
                            const std::vector<observe::Client>& before);

// Exit status: 0, or 1 with a message if there is no answer.
int run_ps(const PsOptions& options);

}  // namespace openmps::cli
