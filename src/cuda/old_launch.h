// SPDX-License-Identifier: Apache-2.0
// The launch interface from before CUDA 4.0: a function keeps its block, its dynamic shared memory
// and its parameters until cuLaunch* uses them. The client keeps one with its functions and softgpu
// with its own; the owner's lock guards it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "cuda/abi.h"

namespace openmps::cuda {

// Of a kernel, since CUDA 12.1.
inline constexpr size_t kMostParameterBytes = 32764;
// Of a block, whatever the device: compute capability 9.0 and 10.0 have the most.
inline constexpr int64_t kMostThreads = 1024;
inline constexpr unsigned kMostSharedBytes = 227 << 10;

// Errors of all: CUDA_ERROR_INVALID_VALUE.
class OldLaunch {
 public:
  [[nodiscard]] CUresult set_block(int x, int y, int z);
  [[nodiscard]] CUresult set_shared(unsigned int bytes);
  [[nodiscard]] CUresult set_size(unsigned int bytes);
  [[nodiscard]] CUresult set_parameter(int offset, const void* value, size_t bytes);

  // `launch_kernel`: cuLaunchKernel.
  template <typename LaunchKernel>
  [[nodiscard]] CUresult launch(CUfunction function, int width, int height, CUstream stream,
                                LaunchKernel launch_kernel) {
    if (width <= 0 || height <= 0) return CUDA_ERROR_INVALID_VALUE;
    parameters_.resize(size_);
    void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, parameters_.data(),
                     CU_LAUNCH_PARAM_BUFFER_SIZE, &size_, CU_LAUNCH_PARAM_END};
    return launch_kernel(function, static_cast<unsigned>(width), static_cast<unsigned>(height), 1,
                         block_[0], block_[1], block_[2], shared_bytes_, stream, nullptr,
                         size_ != 0 ? extra : nullptr);
  }

 private:
  std::array<uint32_t, 3> block_{};  // zeros: not said yet
  uint32_t shared_bytes_ = 0;
  size_t size_ = 0;  // of the parameters
  std::vector<std::byte> parameters_;
};

}  // namespace openmps::cuda
