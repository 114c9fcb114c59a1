// SPDX-License-Identifier: Apache-2.0
// What a daemon that is killed leaves to the next one, in the notation of the configuration. Used
// by ServerPool.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "control/config_model.h"

namespace openmps::control {

// What a daemon that is killed leaves to the next one.
struct State {
  std::map<std::string, NamedServer> servers;
  Features features;
  std::string partitions;  // StaticPartitions::text()
};
std::string write_state(const State& state);
// Nothing: it is no state that a daemon of this build has written.
std::optional<State> parse_state(std::string_view text);

}  // namespace openmps::control
