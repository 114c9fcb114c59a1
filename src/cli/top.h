// SPDX-License-Identifier: Apache-2.0
// `openmps top`: the use of devices and clients, on a terminal until a key ends it, or once as
// text.
#pragma once

#include <string>

#include "observe/rates.h"

namespace openmps::cli {

struct TopOptions {
  double delay_s = 1;
  bool once = false;  // as text; also if there is no terminal
  observe::Order order;
  std::string filter;
};

// Exit status: 0, or 1 with a message if there is no answer or the terminal is unknown.
int run_top(const TopOptions& options);

}  // namespace openmps::cli
