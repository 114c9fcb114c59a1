// SPDX-License-Identifier: Apache-2.0
// The arguments of a launch, as launches and kernel nodes have them, and the parameters packed by
// the kernel's layout. On the program's threads.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <span>

#include "client/objects.h"
#include "cuda/abi.h"
#include "cuda/launch_attributes.h"
#include "wire/commands/stream.h"

namespace openmps::client {

struct LaunchShape {
  std::array<uint32_t, 3> grid{1, 1, 1};
  std::array<uint32_t, 3> block{1, 1, 1};
  uint32_t shared_bytes = 0;
  uint32_t flags = 0;  // wire::kLaunchCooperative
};

struct LaunchConfiguration : LaunchShape {
  std::span<const CUlaunchAttribute> attributes{};
  cuda::Dimensions cluster{};            // zeros: not said
  cuda::Dimensions preferred_cluster{};  // zeros: none
  std::span<Event* const> events{};      // that the launch records
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

// The launch as its command says it, of a stream or a node; the tail comes by itself.
[[nodiscard]] inline wire::Launch launch_command(const Function& function,
                                                 const LaunchConfiguration& config,
                                                 uint32_t parameter_bytes, wire::Id target) {
  wire::Launch command;
  command.stream = target;
  command.function = function.id;
  memcpy(command.grid, config.grid.data(), sizeof(command.grid));
  memcpy(command.block, config.block.data(), sizeof(command.block));
  command.shared_bytes = config.shared_bytes;
  command.attribute_count = static_cast<uint32_t>(config.attributes.size());
  command.parameter_bytes = parameter_bytes;
  command.flags = config.flags;
  return command;
}

}  // namespace openmps::client
