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
namespace {

uint32_t choose_connections() {
  const char* wanted = environment_variable("OPENMPS_DEVICE_MAX_CONNECTIONS");
  if (wanted == nullptr) return kMaxConnections;
  const auto number = parse_unsigned(wanted, kMaxConnections);
  if (number && *number != 0) return static_cast<uint32_t>(*number);
  log("OPENMPS_DEVICE_MAX_CONNECTIONS=" + std::string(wanted) + " is not a number from 1 to " +
      std::to_string(kMaxConnections) + ": ignored");
  return kMaxConnections;
}

}  // namespace

uint32_t prepare_driver_environment() {
  unset_environment("CUDA_MPS_");
  // Those of programs (base/program_switches.h): the client library follows them.
  for (const char* name :
       {"CUDA_LAUNCH_BLOCKING", "CUDA_FORCE_", "CUDA_DISABLE_", "CUDA_MODULE_"}) {
    unset_environment(name);
  }
  const uint32_t connections = choose_connections();
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", std::to_string(connections).c_str(), 1);
  return connections;
}

}  // namespace openmps::worker
