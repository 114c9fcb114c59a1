// SPDX-License-Identifier: Apache-2.0
// The arguments of a launch. See launch_request.h.
#include "client/launch_request.h"

#include <string.h>

#include <algorithm>

#include "client/session.h"
#include "wire/commands.h"

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

CUresult check_dimensions(const wire::DeviceFacts& facts, const Function& function,
                          const LaunchConfiguration& config) {
  const int32_t* limit = facts.attribute;
  uint64_t threads = 1;
  for (int i = 0; i < 3; ++i) {
    const auto most_grid = static_cast<uint32_t>(limit[CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + i]);
    const auto most_block = static_cast<uint32_t>(limit[CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + i]);
    if (config.grid[i] - 1 >= most_grid || config.block[i] - 1 >= most_block) {
      return CUDA_ERROR_INVALID_VALUE;  // zero wraps to the largest number
    }
    threads *= config.block[i];
  }
  if (threads > static_cast<uint64_t>(limit[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK])) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // A block that the device allows but this kernel doesn't: for its registers, or for the launch
  // bounds that it was compiled with (codes as an H200 gives them).
  if (threads >
      static_cast<uint64_t>(function.attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK])) {
    const uint64_t registers =
        threads * static_cast<uint64_t>(function.attributes[CU_FUNC_ATTRIBUTE_NUM_REGS]);
    return registers > static_cast<uint64_t>(limit[CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK])
               ? CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES
               : CUDA_ERROR_INVALID_VALUE;
  }
  const int32_t most =
      std::max(function.attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES],
               function.shared_elsewhere.load(std::memory_order_relaxed));
  return config.shared_bytes > static_cast<uint32_t>(most) ? CUDA_ERROR_INVALID_VALUE
                                                           : CUDA_SUCCESS;
}

CUresult choose_parameters(const Function& function, void** pointers, void** extra,
                           LaunchParameters* parameters) {
  if (pointers != nullptr && extra != nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (extra != nullptr) {
    OPENMPS_CUDA_CHECK(parse_extra(extra, parameters));
    // Fewer bytes than the kernel has are no error: NCCL's kernels have 4 KiB, of which it passes
    // what it filled. The driver below would read past the end, so the rest is sent as zeros.
    parameters->bytes = std::max(parameters->buffer_bytes, function.parameter_bytes);
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
