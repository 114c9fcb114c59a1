// SPDX-License-Identifier: Apache-2.0
// Both ends of a channel must come from one build: ids of commands, structures and handle types are
// made from descriptions that change without a new protocol version. The side that opens a
// connection says of which build it is (kBuildHash), and the other side refuses a different build.
// Any thread.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

#include "cuda/status.h"
#include "wire/build_hash.h"

namespace openmps::wire {

inline std::string build_name(uint64_t build) {
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(build));
  return std::string(text, 8);
}

// Errors: CUDA_ERROR_MPS_CONNECTION_FAILED with one sentence. `peer` and `self`: "client",
// "daemon".
inline Status check_build(uint64_t build, const char* peer, const char* self) {
  if (build == kBuildHash) return Status();
  return Status(CUDA_ERROR_MPS_CONNECTION_FAILED, std::string(peer) + " and " + self +
                                                      " are of different builds of OpenMPS (" +
                                                      peer + " " + build_name(build) + ", " + self +
                                                      " " + build_name(kBuildHash) + ")");
}

}  // namespace openmps::wire
