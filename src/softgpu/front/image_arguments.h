// SPDX-License-Identifier: Apache-2.0
// Arguments that loads and links have in common: JIT options with their log buffers, and files.
// Called by entry points; any thread.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "cuda/abi.h"
#include "cuda/status.h"
#include "softgpu/device/link.h"

namespace openmps::softgpu {

Status read_jit_options(unsigned count, const CUjit_option* options, void** values, JitLogs* logs);
// The size option also says how much was written.
void fill_log(char* buffer, size_t size, void** filled, const std::string& text);

// The file with a NUL behind it, so that a text ends. CUDA_ERROR_FILE_NOT_FOUND.
Result<std::vector<char>> read_image_file(const char* path);

}  // namespace openmps::softgpu
