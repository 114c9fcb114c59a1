// SPDX-License-Identifier: Apache-2.0
// The attributes that a program can set on a stream, as CUDA's cuStreamSetAttribute has them. The
// client keeps them for its streams and softgpu for its own; the owner's lock guards them.
#pragma once

#include "cuda/abi.h"

namespace openmps::cuda {

// The first values are the driver's.
struct StreamAttributes {
  CUaccessPolicyWindow window{};
  CUsynchronizationPolicy policy = CU_SYNC_POLICY_AUTO;
  CUlaunchMemSyncDomainMap domain_map{0, 1};
  CUlaunchMemSyncDomain domain = CU_LAUNCH_MEM_SYNC_DOMAIN_DEFAULT;
};

// `priority` is the stream's: CUDA has it as an attribute as well.
// Errors: CUDA_ERROR_INVALID_VALUE: not an attribute of streams; `value` is untouched.
[[nodiscard]] CUresult read_stream_attribute(const StreamAttributes& attributes, int priority,
                                             CUstreamAttrID which, CUstreamAttrValue* value);
// A priority is accepted as the hint that it is: a stream keeps the one that it was made with.
// Errors: CUDA_ERROR_INVALID_VALUE: not an attribute of streams, or not a value of it.
[[nodiscard]] CUresult write_stream_attribute(StreamAttributes* attributes, CUstreamAttrID which,
                                              const CUstreamAttrValue& value);

}  // namespace openmps::cuda
