// SPDX-License-Identifier: Apache-2.0
// Limits of clients as they are stated in the environment of the daemon and in its configuration.
// wire/client_limits.h has the table of all limits. Pure functions.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "wire/client_limits.h"

namespace openmps::control {

// In the place of a device: the limit is each device's.
inline constexpr const char* kEveryDevice = "*";

struct LimitKey {
  wire::Limit limit;
  // An ordinal or a UUID, as stated, or kEveryDevice; "": the limit is not per device.
  std::string device = {};
  auto operator<=>(const LimitKey&) const = default;
};

// A limit that is not in the map is not stated.
using Limits = std::map<LimitKey, wire::LimitValue>;

// What `above` states, and the rest of `below`.
Limits overlay(Limits below, const Limits& above);

// What replaces limits; one without a value is not stated any more.
using LimitChanges = std::map<LimitKey, std::optional<wire::LimitValue>>;
// Amounts of memory that change for a device replace those of all devices, and a percentage numbers
// of SMs.
Limits changed(Limits before, const LimitChanges& changes);

// From the variables of the table; what is malformed there is ignored, as by NVIDIA's daemon.
Limits limits_of_environment();

// The keys of the configuration as the manual page describes them, in roff: those for groups only,
// or all others.
std::string manual_of_limits(bool of_groups);

// A limit that is an amount of memory as MPS's interface v3 states it: a size for every device,
// like "4G", or sizes by device, like "0=4G,GPU-1=2G". They replace those that are there. False: it
// is neither, and nothing has changed.
bool read_memory_limits(std::string_view text, wire::Limit limit, Limits* limits);
// In the same notation; "": none is stated.
std::string memory_limits_text(const Limits& limits, wire::Limit limit);
// Numbers of SMs, in the same way: "16", or "0=16,GPU-1=8".
bool read_sm_counts(std::string_view text, Limits* limits);
// What is wrong if more memory of a device is guaranteed than may be used; "": nothing. Names of
// devices are compared as they are stated.
std::string fault_of_guarantee(const Limits& limits);

// "0" to "15", or the beginning of a UUID. The set commands take anything, as NVIDIA's do.
bool names_a_device(std::string_view text);

}  // namespace openmps::control
