// SPDX-License-Identifier: Apache-2.0
// `openmps stat`: what devices and clients do, as lines or JSON, over one interval after the other.
#pragma once

#include <cstdint>
#include <string>

#include "cli/rates.h"

namespace openmps::cli {

struct StatOptions {
  bool json = false;
  double interval_s = 1;
  uint32_t count = 1;  // intervals; 0: until it is stopped
  Order order;
  std::string filter;
};

// One line; its members and their units are in openmps(1). `at_s`: seconds since 1970.
std::string format_stat_json(const View& view, double at_s);
// Lines for devices, then for clients, each with its newline.
std::string format_stat_text(const View& view);

// Exit status: 0, or 1 if there is no answer, which it has said.
int run_stat(const StatOptions& options);

}  // namespace openmps::cli
