// SPDX-License-Identifier: Apache-2.0
// Limits of clients as they are stated in the environment of the daemon and in its configuration.
// wire/client_limits.h has the table of all limits. Pure functions.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "wire/client_limits.h"

namespace openmps::control {

struct LimitKey {
  wire::Limit limit;
  std::string device = {};  // an ordinal or a UUID, as stated; "": the limit is not per device
  auto operator<=>(const LimitKey&) const = default;
};

// A limit that is not in the map is not stated.
using Limits = std::map<LimitKey, wire::LimitValue>;

// What `above` states, and the rest of `below`.
Limits overlay(Limits below, const Limits& above);

// From the variables of the table; what is malformed there is ignored, as by NVIDIA's daemon.
Limits limits_of_environment();

// The keys of the configuration as the manual page describes them, in roff: those for groups only,
// or all others.
std::string manual_of_limits(bool of_groups);

// "0" to "15", or the beginning of a UUID. The set commands take anything, as NVIDIA's do.
bool names_a_device(std::string_view text);

}  // namespace openmps::control
