// SPDX-License-Identifier: Apache-2.0
// The arguments of a launch, as launches and kernel nodes have them, and the parameters packed by
// the kernel's layout. On the program's threads.
#pragma once

#include <cstdint>

#include "client/objects.h"
#include "cuda/abi.h"
#include "cuda/launch_attributes.h"

namespace openmps::client {

struct LaunchConfiguration {
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t shared_bytes;
  const CUlaunchAttribute* attributes = nullptr;
  uint32_t attribute_count = 0;
  uint32_t flags = 0;                    // wire::kLaunchCooperative
  cuda::Dimensions cluster{};            // zeros: not said
  cuda::Dimensions preferred_cluster{};  // likewise
};

// Where the parameter bytes come from: pointers by the kernel's layout, or the program's own
// buffer.
struct LaunchParameters {
  void** pointers = nullptr;
  const void* buffer = nullptr;
  uint32_t buffer_bytes = 0;
  uint32_t bytes = 0;  // of the packed parameters
};

// One of `pointers` and `extra`, or neither for a kernel without parameters. Errors:
// CUDA_ERROR_INVALID_VALUE.
[[nodiscard]] CUresult choose_parameters(const Function& function, void** pointers, void** extra,
                                         LaunchParameters* parameters);
// Writes parameters.bytes to `target`.
void pack_parameters(const Function& function, const LaunchParameters& parameters,
                     unsigned char* target);

}  // namespace openmps::client
