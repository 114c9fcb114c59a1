// SPDX-License-Identifier: Apache-2.0
// The attributes of a launch configuration, as they go to the worker: for launches and for
// questions about a launch. Called by the implementations, on the program's threads.
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
  // Events that the launch records.
  static constexpr uint32_t kMostEvents = 2;  // one of each kind
  Event* events[kMostEvents] = {};
  uint32_t event_count = 0;
  cuda::Dimensions cluster{};            // zeros: not said
  cuda::Dimensions preferred_cluster{};  // likewise
};

// Attributes travel as they are, events as ids. Errors: CUDA_ERROR_INVALID_VALUE for a NULL
// configuration, NULL attributes, or one that launches don't have in CUDA 13.0;
// CUDA_ERROR_INVALID_HANDLE for an event; CUDA_ERROR_NOT_SUPPORTED: a kernel node that a device
// updates, an event that takes times. Values are checked with the launch (launch_check.h).
[[nodiscard]] CUresult take_attributes(const Events& events, const CUlaunchConfig* config,
                                       LaunchAttributes* taken);

}  // namespace openmps::client
