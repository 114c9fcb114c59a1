// SPDX-License-Identifier: Apache-2.0
// The arguments of a launch. See launch_request.h.
#include "client/graphs/launch_request.h"

#include <cstring>

#include "client/check.h"

namespace openmps::client {
namespace {

// `extra` is a list of names and values that ends with CU_LAUNCH_PARAM_END.
CUresult parse_extra(void** extra, LaunchParameters* parameters) {
  const size_t* bytes = nullptr;
  while (*extra != CU_LAUNCH_PARAM_END) {
    if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER) {
      parameters->buffer = extra[1];
    } else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE) {
      bytes = static_cast<const size_t*>(extra[1]);
    } else {
      return CUDA_ERROR_INVALID_VALUE;
    }
    extra += 2;
  }
  if (parameters->buffer == nullptr || bytes == nullptr ||
      *bytes > wire::kMaxKernelParameterBytes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  parameters->buffer_bytes = static_cast<uint32_t>(*bytes);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult choose_parameters(const Function& function, void** pointers, void** extra,
                           LaunchParameters* parameters) {
  if (pointers != nullptr && extra != nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (extra != nullptr) {
    OPENMPS_CUDA_CHECK(parse_extra(extra, parameters));
    if (parameters->buffer_bytes > function.parameter_bytes) {
      return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    }
    if (parameters->buffer_bytes == 0 && function.parameter_bytes != 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    // Fewer bytes than the kernel has are no error: NCCL's kernels have 4 KiB, of which it passes
    // what it filled. The driver below would read past the end, so the rest is sent as zeros.
    parameters->bytes = function.parameter_bytes;
    return CUDA_SUCCESS;
  }
  if (pointers == nullptr && !function.parameters.empty()) return CUDA_ERROR_INVALID_VALUE;
  parameters->pointers = pointers;
  parameters->bytes = function.parameter_bytes;
  return parameters->bytes <= wire::kMaxKernelParameterBytes ? CUDA_SUCCESS
                                                             : CUDA_ERROR_INVALID_VALUE;
}

void pack_parameters(const Function& function, const LaunchParameters& parameters,
                     unsigned char* target) {
  if (parameters.buffer != nullptr) {
    memcpy(target, parameters.buffer, parameters.buffer_bytes);
    memset(target + parameters.buffer_bytes, 0, parameters.bytes - parameters.buffer_bytes);
    return;
  }
  uint32_t end = 0;
  for (size_t i = 0; i < function.parameters.size(); ++i) {
    const auto [offset, bytes] = function.parameters[i];
    if (offset > end) memset(target + end, 0, offset - end);
    memcpy(target + offset, parameters.pointers[i], bytes);
    end = offset + bytes;
  }
  if (parameters.bytes > end) memset(target + end, 0, parameters.bytes - end);
}

}  // namespace openmps::client
