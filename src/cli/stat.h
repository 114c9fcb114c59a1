// SPDX-License-Identifier: Apache-2.0
// `openmps stat`: the use of devices and clients in each interval, as lines or JSON.
#pragma once

#include <cstdint>
#include <string>

#include "observe/rates.h"

namespace openmps::cli {

struct StatOptions {
  bool json = false;
  double interval_s = 1;
  uint32_t count = 1;  // intervals; 0: without end
  observe::Order order;
  std::string filter;
};

// One line of JSON; openmps(1) has the members and units. `at_s`: seconds since 1970.
std::string format_stat_json(const observe::View& view, double at_s);
// Lines for devices, then for clients, each with its newline.
std::string format_stat_text(const observe::View& view);

// Exit status: 0, or 1 with a message if there is no answer.
int run_stat(const StatOptions& options);

}  // namespace openmps::cli
