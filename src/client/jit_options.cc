// SPDX-License-Identifier: Apache-2.0
// JIT options and logs. See jit_options.h.
#include "client/jit_options.h"

#include <string.h>

#include <algorithm>

namespace openmps::client {
namespace {

void copy_log(char* target, uint32_t capacity, const unsigned char* text, uint32_t bytes,
              void** slot) {
  if (target == nullptr || capacity == 0) return;
  const uint32_t copied = std::min(bytes, capacity - 1);
  memcpy(target, text, copied);
  target[copied] = '\0';
  // CUDA hands the number of bytes back in the size option's value.
  if (slot != nullptr) *slot = reinterpret_cast<void*>(static_cast<uintptr_t>(copied));
}

}  // namespace

CUresult parse_jit_options(unsigned count, CUjit_option* options, void** values,
                           JitOptions* parsed) {
  if (count != 0 && (options == nullptr || values == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; ++i) {
    const auto scalar = reinterpret_cast<uintptr_t>(values[i]);
    switch (options[i]) {
      case CU_JIT_INFO_LOG_BUFFER: parsed->info_log = static_cast<char*>(values[i]); break;
      case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
        parsed->info_bytes = static_cast<uint32_t>(scalar);
        parsed->info_slot = &values[i];
        break;
      case CU_JIT_ERROR_LOG_BUFFER: parsed->error_log = static_cast<char*>(values[i]); break;
      case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
        parsed->error_bytes = static_cast<uint32_t>(scalar);
        parsed->error_slot = &values[i];
        break;
      case CU_JIT_WALL_TIME: break;  // an output that the worker does not measure
      case CU_JIT_GLOBAL_SYMBOL_NAMES:
      case CU_JIT_GLOBAL_SYMBOL_ADDRESSES:
      case CU_JIT_REFERENCED_KERNEL_NAMES:
      case CU_JIT_REFERENCED_VARIABLE_NAMES: return CUDA_ERROR_NOT_SUPPORTED;
      default:
        if (options[i] < 0 || options[i] >= CU_JIT_NUM_OPTIONS) return CUDA_ERROR_INVALID_VALUE;
        parsed->scalars.push_back({static_cast<uint32_t>(options[i]), 0, scalar});
    }
  }
  return CUDA_SUCCESS;
}

void copy_jit_logs(const JitOptions& options, const wire::ModuleLoadReply& logs,
                   const unsigned char* text, uint32_t bytes) {
  const uint32_t info = std::min(logs.info_bytes, bytes);
  const uint32_t error = std::min(logs.error_bytes, bytes - info);
  copy_log(options.info_log, options.info_bytes, text, info, options.info_slot);
  copy_log(options.error_log, options.error_bytes, text + info, error, options.error_slot);
}

}  // namespace openmps::client
