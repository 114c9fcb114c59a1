// SPDX-License-Identifier: Apache-2.0
// Is a launch one that the driver takes? Everything that CUDA reports at the launch, with the codes
// that an H200 gives, from facts that came with the function and the device. The shapes that only
// the driver can judge (a block size that a kernel was compiled for, the room for a cluster) are
// asked of it once for each function: by a launch whose result is waited for. On the program's
// threads.
#pragma once

#include "client/graphs/launch_request.h"
#include "client/session/session.h"
#include "cuda/launch_attributes.h"

namespace openmps::client {

// For launches and kernel nodes; of cooperative ones it may ask the worker how many blocks fit
// (occupancy.h). Errors: CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_CLUSTER_SIZE,
// CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
// CUDA_ERROR_NOT_SUPPORTED (clusters, on a device without).
[[nodiscard]] CUresult check_launch(Session& session, const Context& context,
                                    const Function& function, const LaunchConfiguration& config);

[[nodiscard]] inline cuda::LaunchAttributeLimits attribute_limits(const wire::DeviceFacts& facts) {
  return {facts.attribute[CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE],
          facts.attribute[CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT]};
}

// The driver has taken this function in this shape, as far as that is its to say.
[[nodiscard]] bool is_known_shape(const Function& function, const LaunchConfiguration& config);
void remember_shape(Function& function, const LaunchConfiguration& config);

}  // namespace openmps::client
