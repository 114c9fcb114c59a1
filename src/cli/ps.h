// SPDX-License-Identifier: Apache-2.0
// `openmps ps`: the clients of a daemon and what they use, once or again and again.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/snapshot.h"

namespace openmps::cli {

struct PsOptions {
  bool json = false;    // the daemon's answer as it is
  double every_s = 0;   // 0: once
  uint32_t times = 0;   // with every_s: after so many it is enough; 0: never
  bool clears = false;  // the screen, between two
};

// Lines of text. Shares and rates are since `before`, for clients that are in it, else since each
// session began.
std::string format_ps_table(const std::vector<Client>& clients, const std::vector<Client>& before);

// Exit status: 0, or 1 if there is no answer, which it has said.
int run_ps(const PsOptions& options);

}  // namespace openmps::cli
