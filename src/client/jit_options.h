// SPDX-License-Identifier: Apache-2.0
// The JIT options of a load or a link, taken apart: scalars travel, log buffers come back. Called
// by the implementations, on the program's threads.
#pragma once

#include <string_view>
#include <vector>

#include "cuda/abi.h"
#include "wire/commands/code.h"

namespace openmps::client {

struct JitOptions {
  std::vector<wire::JitOption> scalars;
  char* info_log = nullptr;
  uint32_t info_bytes = 0;
  char* error_log = nullptr;
  uint32_t error_bytes = 0;
  // The values of the size options, in and out: there the program reads how much was written.
  void** info_slot = nullptr;
  void** error_slot = nullptr;
};
// Errors: CUDA_ERROR_INVALID_VALUE; CUDA_ERROR_NOT_SUPPORTED: an option that names host addresses.
[[nodiscard]] CUresult parse_jit_options(unsigned count, CUjit_option* options, void** values,
                                         JitOptions* parsed);

// Give the program its logs out of a reply.
void copy_jit_logs(const JitOptions& options, std::string_view info, std::string_view error);

}  // namespace openmps::client
