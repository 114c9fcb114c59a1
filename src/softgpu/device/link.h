// SPDX-License-Identifier: Apache-2.0
// A link in the making: CUlinkState. Plain data; the front works on it, under its lock.
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "cuda/abi.h"
#include "softgpu/ptx/linker.h"

namespace openmps::softgpu {

struct Link {
  std::mutex mutex;
  // The program's log buffers, its own until the link is destroyed.
  char* info = nullptr;
  size_t info_size = 0;
  void** info_filled = nullptr;
  char* error = nullptr;
  size_t error_size = 0;
  void** error_filled = nullptr;
  std::vector<ptx::LinkInput> inputs;
  std::string result;  // with its NUL inside; the program's until the link is destroyed
};

}  // namespace openmps::softgpu
