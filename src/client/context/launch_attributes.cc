// SPDX-License-Identifier: Apache-2.0
// See launch_attributes.h.
#include "client/context/launch_attributes.h"

#include "client/check.h"
#include "client/debug.h"

namespace openmps::client {
namespace {

// The command has the event's id in place of the handle.
CUresult take_event(const Events& events, CUevent* event, LaunchAttributes* taken) {
  Event* object = events.find(*event);
  if (object == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if ((object->flags & CU_EVENT_DISABLE_TIMING) == 0) return CUDA_ERROR_NOT_SUPPORTED;
  if (taken->event_count == LaunchAttributes::kMostEvents) return CUDA_ERROR_INVALID_VALUE;
  taken->events[taken->event_count++] = object;
  *event = reinterpret_cast<CUevent>(static_cast<uintptr_t>(object->id));
  return CUDA_SUCCESS;
}

template <typename Dim>
cuda::Dimensions dimensions(const Dim& dim) {
  return {dim.x, dim.y, dim.z};
}

}  // namespace

CUresult take_attributes(const Events& events, const CUlaunchConfig* config,
                         LaunchAttributes* taken) {
  if (config == nullptr || (config->numAttrs != 0 && config->attrs == nullptr)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (unsigned int i = 0; i < config->numAttrs; ++i) {
    CUlaunchAttribute attribute = config->attrs[i];
    switch (attribute.id) {
      case CU_LAUNCH_ATTRIBUTE_IGNORE: continue;
      case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
        if (attribute.value.cooperative != 0) taken->flags |= wire::kLaunchCooperative;
        continue;
      case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
        taken->cluster = dimensions(attribute.value.clusterDim);
        break;
      case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
        taken->preferred_cluster = dimensions(attribute.value.preferredClusterDim);
        break;
      case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
        OPENMPS_CUDA_CHECK(take_event(events, &attribute.value.programmaticEvent.event, taken));
        break;
      case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
        OPENMPS_CUDA_CHECK(take_event(events, &attribute.value.launchCompletionEvent.event, taken));
        break;
      case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
        if (attribute.value.deviceUpdatableKernelNode.deviceUpdatable == 0) continue;
        debug_line("launch attribute %d is not supported", static_cast<int>(attribute.id));
        return CUDA_ERROR_NOT_SUPPORTED;
      default:
        if (cuda::find_launch_attribute(attribute.id) != nullptr) break;
        debug_line("launch attribute %d is not known", static_cast<int>(attribute.id));
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (taken->count == wire::kMaxLaunchAttributes) return CUDA_ERROR_INVALID_VALUE;
    taken->list[taken->count++] = attribute;
  }
  return CUDA_SUCCESS;
}

}  // namespace openmps::client
