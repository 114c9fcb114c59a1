// SPDX-License-Identifier: Apache-2.0
// The attributes of launches and their valid values, as an H200's driver accepts them: one table,
// which client, worker and softgpu read. Any thread.
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

// What is true of an attribute of launches whatever its value.
struct LaunchAttributeFacts {
  bool is_plain;  // the driver answers occupancy queries with it: no handle, no address
  bool of_nodes;  // CUDA documents it for kernel nodes of graphs
};
// Null: no attribute of launches.
[[nodiscard]] const LaunchAttributeFacts* find_launch_attribute(CUlaunchAttributeID id);

// Checks the attribute's value alone, not what its handles name, nor other attributes. Errors:
// CUDA_ERROR_INVALID_VALUE, also for an attribute that launches don't have.
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

// *size: blocks in a cluster, 1 without. The device's limit is not checked.
// Errors: CUDA_ERROR_INVALID_CLUSTER_SIZE.
[[nodiscard]] CUresult check_clusters(const ClusterRequest& request, uint64_t* size);

}  // namespace openmps::cuda
