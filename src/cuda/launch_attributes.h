// SPDX-License-Identifier: Apache-2.0
// What a launch may ask for in its attributes, as an H200's driver takes them: values, and clusters
// of blocks. The client checks with this at the launch, softgpu in its own; any thread.
#pragma once

#include <array>
#include <cstdint>

#include "cuda/abi.h"

namespace openmps::cuda {

using Dimensions = std::array<uint32_t, 3>;

// What a device allows.
struct LaunchAttributeLimits {
  int window_bytes = 0;  // CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE
  int sync_domains = 1;  // CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT
};

// Its value alone: handles and what belongs together are the caller's. Errors:
// CUDA_ERROR_INVALID_VALUE, also for what is no attribute of launches.
[[nodiscard]] CUresult check_launch_attribute(const CUlaunchAttribute& attribute,
                                              const LaunchAttributeLimits& limits);

// The clusters of a launch. Zeros: not said.
struct ClusterRequest {
  Dimensions grid{1, 1, 1};
  Dimensions asked{};      // CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
  Dimensions preferred{};  // CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION
  Dimensions required{};   // the function's own
  bool must_be_set = false;
  bool non_portable = false;  // the function may have clusters that not all devices can run
};

// *size: blocks in a cluster, 1 without. Whether the device has room for them is not asked.
// Errors: CUDA_ERROR_INVALID_CLUSTER_SIZE.
[[nodiscard]] CUresult check_clusters(const ClusterRequest& request, uint64_t* size);

}  // namespace openmps::cuda
