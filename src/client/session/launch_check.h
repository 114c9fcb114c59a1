// SPDX-License-Identifier: Apache-2.0
// Checks a launch for all that CUDA reports at the launch, with the error codes of an H200, by the
// facts of the function and the device. Shapes that only the driver can judge (a block size that a
// kernel was compiled for, whether a cluster fits) are tried once for each function, by a launch
// whose result is waited for. On the program's threads.
#pragma once

#include "client/graphs/launch_request.h"
#include "client/session/session.h"
#include "cuda/launch_attributes.h"

namespace openmps::client {

// For launches and kernel nodes. For cooperative launches it may ask the worker how many blocks fit
// (occupancy.h). Errors: CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_CLUSTER_SIZE,
// CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
// CUDA_ERROR_NOT_SUPPORTED (clusters, on a device without).
[[nodiscard]] CUresult check_launch(Session& session, const Context& context,
                                    const Function& function, const LaunchConfiguration& config);

// The clusters that the program has set as the function's own
// (CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_*); zeros: none.
[[nodiscard]] cuda::Dimensions set_clusters(const Function& function);

[[nodiscard]] inline cuda::LaunchAttributeLimits attribute_limits(const wire::DeviceFacts& facts) {
  return {facts.attribute[CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE],
          facts.attribute[CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT]};
}

// The driver has accepted this function in this shape, or accepts all shapes that pass the checks.
[[nodiscard]] bool is_known_shape(const Function& function, const LaunchConfiguration& config);
void remember_shape(Function& function, const LaunchConfiguration& config);

}  // namespace openmps::client
