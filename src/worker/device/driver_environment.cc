// SPDX-License-Identifier: Apache-2.0
// See driver_environment.h.
#include "worker/device/driver_environment.h"

#include <cstdlib>
#include <initializer_list>
#include <string>

#include "base/environment.h"
#include "base/text.h"
#include "worker/device/log.h"

namespace openmps::worker {

std::optional<uint32_t> number_setting(const char* variable, uint32_t least, uint32_t most) {
  const std::string wanted = environment_or(variable, "");
  if (wanted.empty()) return std::nullopt;
  const auto number = parse_unsigned(wanted, most);
  if (number && *number >= least) return static_cast<uint32_t>(*number);
  log(std::string(variable) + "=" + printable(wanted) + " is not a number from " +
      std::to_string(least) + " to " + std::to_string(most) + ": ignored");
  return std::nullopt;
}

uint32_t prepare_driver_environment() {
  unset_environment("CUDA_MPS_");
  // Those of programs (base/program_switches.h): the client library follows them.
  for (const char* name :
       {"CUDA_LAUNCH_BLOCKING", "CUDA_FORCE_", "CUDA_DISABLE_", "CUDA_MODULE_"}) {
    unset_environment(name);
  }
  const uint32_t connections = number_setting("OPENMPS_DEVICE_MAX_CONNECTIONS", 1, kMaxConnections)
                                   .value_or(kMaxConnections);
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", std::to_string(connections).c_str(), 1);
  return connections;
}

}  // namespace openmps::worker
