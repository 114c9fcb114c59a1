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

unsigned choose_connections() {
  const char* wanted = getenv("OPENMPS_DEVICE_MAX_CONNECTIONS");
  if (wanted == nullptr) return kMaxConnections;
  const auto number = parse_unsigned(wanted, kMaxConnections);
  if (number && *number != 0) return static_cast<unsigned>(*number);
  log("OPENMPS_DEVICE_MAX_CONNECTIONS=" + std::string(wanted) + " is not a number from 1 to " +
      std::to_string(kMaxConnections) + ": ignored");
  return kMaxConnections;
}

}  // namespace

void prepare_driver_environment() {
  clear_mps_variables();
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", std::to_string(choose_connections()).c_str(), 1);
}

}  // namespace openmps::worker
