// SPDX-License-Identifier: Apache-2.0
// `openmps top`: what devices and clients do, on a terminal until a key ends it, or once as text.
#pragma once

#include <string>

#include "cli/rates.h"

namespace openmps::cli {

struct TopOptions {
  double delay_s = 1;
  bool once = false;  // so it is where there is no terminal
  Order order;
  std::string filter;
};

// Exit status: 0, or 1 if there is no answer or no terminal that is known, which it has said.
int run_top(const TopOptions& options);

}  // namespace openmps::cli
