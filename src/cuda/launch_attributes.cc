// SPDX-License-Identifier: Apache-2.0
// Attributes of launches. See launch_attributes.h.
#include "cuda/launch_attributes.h"

#include <algorithm>
#include <iterator>

namespace openmps::cuda {
namespace {

// CUDA's documentation: clusters of up to 8 blocks run on every device that has clusters.
constexpr uint64_t kPortableClusterBlocks = 8;
constexpr Dimensions kNone{};

CUresult valid_if(bool holds) { return holds ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; }

using Value = CUlaunchAttributeValue;
using Limits = LaunchAttributeLimits;

bool is_any(const Value&, const Limits&) { return true; }

// The property of hits is a hint: any value is valid.
bool is_window(const Value& value, const Limits& limits) {
  const CUaccessPolicyWindow& window = value.accessPolicyWindow;
  return window.num_bytes <= static_cast<size_t>(limits.window_bytes) && window.hitRatio >= 0 &&
         window.hitRatio <= 1 && window.missProp != CU_ACCESS_PROPERTY_PERSISTING;
}

bool is_scheduling_policy(const Value& value, const Limits&) {
  return static_cast<uint32_t>(value.clusterSchedulingPolicyPreference) <=
         CU_CLUSTER_SCHEDULING_POLICY_LOAD_BALANCING;
}

bool is_sync_domain(const Value& value, const Limits&) {
  return value.memSyncDomain == CU_LAUNCH_MEM_SYNC_DOMAIN_DEFAULT ||
         value.memSyncDomain == CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE;
}

bool is_sync_domain_map(const Value& value, const Limits& limits) {
  return value.memSyncDomainMap.default_ < limits.sync_domains &&
         value.memSyncDomainMap.remote < limits.sync_domains;
}

bool is_programmatic_event(const Value& value, const Limits&) {
  return value.programmaticEvent.flags == 0;
}

bool is_completion_event(const Value& value, const Limits&) {
  return value.launchCompletionEvent.flags == 0;
}

bool is_carveout(const Value& value, const Limits&) { return value.sharedMemCarveout <= 100; }

struct Attribute {
  CUlaunchAttributeID id;
  LaunchAttributeFacts facts;
  bool (*is_valid)(const Value& value, const Limits& limits);
};

constexpr LaunchAttributeFacts kPlain{.is_plain = true, .of_nodes = false};
constexpr LaunchAttributeFacts kPlainOfNodes{.is_plain = true, .of_nodes = true};
constexpr LaunchAttributeFacts kOfNodes{.is_plain = false, .of_nodes = true};
constexpr LaunchAttributeFacts kOfLaunches{.is_plain = false, .of_nodes = false};

// All attributes of launches. Those of streams only are missing.
constexpr Attribute kAttributes[] = {
    {CU_LAUNCH_ATTRIBUTE_IGNORE, kPlain, is_any},
    {CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, kOfNodes, is_window},
    {CU_LAUNCH_ATTRIBUTE_COOPERATIVE, kPlainOfNodes, is_any},
    {CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, kPlainOfNodes, is_any},
    {CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE, kPlainOfNodes, is_scheduling_policy},
    {CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, kPlain, is_any},
    {CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT, kOfLaunches, is_programmatic_event},
    {CU_LAUNCH_ATTRIBUTE_PRIORITY, kPlainOfNodes, is_any},
    {CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP, kOfNodes, is_sync_domain_map},
    {CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN, kOfNodes, is_sync_domain},
    {CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION, kPlainOfNodes, is_any},
    {CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT, kOfLaunches, is_completion_event},
    {CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE, kOfLaunches, is_any},
    {CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, kPlainOfNodes, is_carveout},
    {CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING, kOfLaunches, is_any},
};

bool divides(const Dimensions& parts, const Dimensions& whole) {
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i] == 0 || whole[i] % parts[i] != 0) return false;
  }
  return true;
}

}  // namespace

const LaunchAttributeFacts* find_launch_attribute(CUlaunchAttributeID id) {
  const auto found = std::ranges::find(kAttributes, id, &Attribute::id);
  return found == std::end(kAttributes) ? nullptr : &found->facts;
}

CUresult check_launch_attribute(const CUlaunchAttribute& attribute,
                                const LaunchAttributeLimits& limits) {
  const auto found = std::ranges::find(kAttributes, attribute.id, &Attribute::id);
  return valid_if(found != std::end(kAttributes) && found->is_valid(attribute.value, limits));
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
