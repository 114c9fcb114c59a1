// SPDX-License-Identifier: Apache-2.0
// Reading and writing the attributes of a stream. See stream_attributes.h.
#include "cuda/stream_attributes.h"

namespace openmps::cuda {

CUresult read_stream_attribute(const StreamAttributes& attributes, int priority,
                               CUstreamAttrID which, CUstreamAttrValue* value) {
  CUstreamAttrValue read{};
  switch (which) {
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
      read.accessPolicyWindow = attributes.window;
      break;
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY: read.syncPolicy = attributes.policy; break;
    case CU_LAUNCH_ATTRIBUTE_PRIORITY: read.priority = priority; break;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
      read.memSyncDomainMap = attributes.domain_map;
      break;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN: read.memSyncDomain = attributes.domain; break;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  *value = read;
  return CUDA_SUCCESS;
}

CUresult write_stream_attribute(StreamAttributes* attributes, CUstreamAttrID which,
                                const CUstreamAttrValue& value) {
  switch (which) {
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
      attributes->window = value.accessPolicyWindow;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
      if (value.syncPolicy < CU_SYNC_POLICY_AUTO ||
          value.syncPolicy > CU_SYNC_POLICY_BLOCKING_SYNC) {
        return CUDA_ERROR_INVALID_VALUE;
      }
      attributes->policy = value.syncPolicy;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_PRIORITY: return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
      attributes->domain_map = value.memSyncDomainMap;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
      if (value.memSyncDomain != CU_LAUNCH_MEM_SYNC_DOMAIN_DEFAULT &&
          value.memSyncDomain != CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE) {
        return CUDA_ERROR_INVALID_VALUE;
      }
      attributes->domain = value.memSyncDomain;
      return CUDA_SUCCESS;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace openmps::cuda
