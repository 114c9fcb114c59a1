// SPDX-License-Identifier: Apache-2.0
// Attributes of launches. See launch_attributes.h.
#include "cuda/launch_attributes.h"

namespace openmps::cuda {
namespace {

// CUDA's documentation: clusters of up to 8 blocks run on every device that has clusters.
constexpr uint64_t kPortableClusterBlocks = 8;
constexpr Dimensions kNone{};

CUresult valid_if(bool holds) { return holds ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; }

// What hits get is a hint, whatever it is.
CUresult check_window(const CUaccessPolicyWindow& window, const LaunchAttributeLimits& limits) {
  return valid_if(window.num_bytes <= static_cast<size_t>(limits.window_bytes) &&
                  window.hitRatio >= 0 && window.hitRatio <= 1 &&
                  window.missProp != CU_ACCESS_PROPERTY_PERSISTING);
}

bool divides(const Dimensions& parts, const Dimensions& whole) {
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i] == 0 || whole[i] % parts[i] != 0) return false;
  }
  return true;
}

}  // namespace

CUresult check_launch_attribute(const CUlaunchAttribute& attribute,
                                const LaunchAttributeLimits& limits) {
  const CUlaunchAttributeValue& value = attribute.value;
  switch (attribute.id) {
    case CU_LAUNCH_ATTRIBUTE_IGNORE:
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:  // a hint, whatever it is
    case CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING:
    case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE: return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
      return check_window(value.accessPolicyWindow, limits);
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      return valid_if(static_cast<uint32_t>(value.clusterSchedulingPolicyPreference) <=
                      CU_CLUSTER_SCHEDULING_POLICY_LOAD_BALANCING);
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
      return valid_if(value.memSyncDomain == CU_LAUNCH_MEM_SYNC_DOMAIN_DEFAULT ||
                      value.memSyncDomain == CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE);
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
      return valid_if(value.memSyncDomainMap.default_ < limits.sync_domains &&
                      value.memSyncDomainMap.remote < limits.sync_domains);
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
      return valid_if(value.programmaticEvent.flags == 0);
    case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
      return valid_if(value.launchCompletionEvent.flags == 0);
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      return valid_if(value.sharedMemCarveout <= 100);  // per cent
    default: return CUDA_ERROR_INVALID_VALUE;           // of streams only, or unknown
  }
}

CUresult check_clusters(const ClusterRequest& request, uint64_t* size) {
  *size = 1;
  const bool required = request.required != kNone;
  if (request.asked == kNone && !required) {
    return request.must_be_set || request.preferred != kNone ? CUDA_ERROR_INVALID_CLUSTER_SIZE
                                                             : CUDA_SUCCESS;
  }
  const Dimensions& cluster = request.asked != kNone ? request.asked : request.required;
  if (required && cluster != request.required) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  if (!divides(cluster, request.grid)) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  if (request.preferred != kNone &&
      !(divides(cluster, request.preferred) && divides(request.preferred, request.grid))) {
    return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  }
  // No product overflows: each part divides a dimension of a grid, of which two are below 2^16.
  *size = uint64_t{cluster[0]} * cluster[1] * cluster[2];
  return *size > kPortableClusterBlocks && !request.non_portable ? CUDA_ERROR_INVALID_CLUSTER_SIZE
                                                                 : CUDA_SUCCESS;
}

}  // namespace openmps::cuda
