// SPDX-License-Identifier: Apache-2.0
// The attributes of a launch configuration, as they are sent to the worker with launches and with
// occupancy questions. Called by the implementations of CUDA calls, on the program's threads.
#pragma once

#include "client/context/event.h"
#include "cuda/abi.h"
#include "cuda/launch_attributes.h"
#include "wire/commands/stream.h"

namespace openmps::client {

struct LaunchAttributes {
  CUlaunchAttribute list[wire::kMaxLaunchAttributes];
  uint32_t count = 0;
  uint32_t flags = 0;  // wire::kLaunchCooperative
  // The events that the launch records, at most one of each kind.
  static constexpr uint32_t kMostEvents = 2;
  Event* events[kMostEvents] = {};
  uint32_t event_count = 0;
  cuda::Dimensions cluster{};            // zeros: not given
  cuda::Dimensions preferred_cluster{};  // zeros: not given
};

// Attributes are copied; events become ids. Errors: CUDA_ERROR_INVALID_VALUE for a NULL
// configuration, NULL attributes, or an attribute that launches don't have in CUDA 13.0;
// CUDA_ERROR_INVALID_HANDLE for an event; CUDA_ERROR_NOT_SUPPORTED: a kernel node that a device
// updates, an event that takes times. Values are checked with the launch (launch_check.h).
[[nodiscard]] CUresult take_attributes(const Events& events, const CUlaunchConfig* config,
                                       LaunchAttributes* taken);

}  // namespace openmps::client
