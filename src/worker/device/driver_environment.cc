// SPDX-License-Identifier: Apache-2.0
// See driver_environment.h.
#include "worker/device/driver_environment.h"

#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/text.h"
#include "worker/device/log.h"

namespace openmps::worker {
namespace {

void clear_mps_variables() {
  std::vector<std::string> names;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (strncmp(*entry, "CUDA_MPS_", 9) == 0) names.emplace_back(*entry, strcspn(*entry, "="));
  }
  for (const std::string& name : names) unsetenv(name.c_str());
}

uint32_t choose_connections() {
  const char* wanted = getenv("OPENMPS_DEVICE_MAX_CONNECTIONS");
  if (wanted == nullptr) return kMaxConnections;
  const auto number = parse_unsigned(wanted, kMaxConnections);
  if (number && *number != 0) return static_cast<uint32_t>(*number);
  log("OPENMPS_DEVICE_MAX_CONNECTIONS=" + std::string(wanted) + " is not a number from 1 to " +
      std::to_string(kMaxConnections) + ": ignored");
  return kMaxConnections;
}

}  // namespace

uint32_t prepare_driver_environment() {
  clear_mps_variables();
  const uint32_t connections = choose_connections();
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", std::to_string(connections).c_str(), 1);
  return connections;
}

}  // namespace openmps::worker
