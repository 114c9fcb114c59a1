// SPDX-License-Identifier: Apache-2.0
// What a function keeps for cuLaunch*. See old_launch.h.
#include "cuda/old_launch.h"

#include <cstring>

namespace openmps::cuda {

CUresult OldLaunch::set_block(int x, int y, int z) {
  if (x <= 0 || y <= 0 || z <= 0) return CUDA_ERROR_INVALID_VALUE;
  if (x > kMostThreads || y > kMostThreads / x || z > kMostThreads / x / y) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  block_ = {static_cast<uint32_t>(x), static_cast<uint32_t>(y), static_cast<uint32_t>(z)};
  return CUDA_SUCCESS;
}

CUresult OldLaunch::set_shared(unsigned int bytes) {
  if (bytes > kMostSharedBytes) return CUDA_ERROR_INVALID_VALUE;
  shared_bytes_ = bytes;
  return CUDA_SUCCESS;
}

CUresult OldLaunch::set_size(unsigned int bytes) {
  if (bytes > kMostParameterBytes) return CUDA_ERROR_INVALID_VALUE;
  size_ = bytes;
  return CUDA_SUCCESS;
}

CUresult OldLaunch::set_parameter(int offset, const void* value, size_t bytes) {
  const size_t end = static_cast<size_t>(offset) + bytes;
  if (offset < 0 || value == nullptr || end > kMostParameterBytes) return CUDA_ERROR_INVALID_VALUE;
  if (parameters_.size() < end) parameters_.resize(end);
  if (bytes != 0) memcpy(parameters_.data() + offset, value, bytes);
  return CUDA_SUCCESS;
}

}  // namespace openmps::cuda
