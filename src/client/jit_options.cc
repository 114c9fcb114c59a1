// SPDX-License-Identifier: Apache-2.0
// JIT options and logs. See jit_options.h.
#include "client/jit_options.h"

#include "cuda/jit_options.h"

namespace openmps::client {
namespace {

void copy_log(char* target, uint32_t capacity, std::string_view text, void** slot) {
  if (target == nullptr || capacity == 0) return;
  const size_t copied = text.copy(target, capacity - 1);
  target[copied] = '\0';
  // CUDA hands the number of bytes back in the size option's value.
  if (slot != nullptr) *slot = reinterpret_cast<void*>(static_cast<uintptr_t>(copied));
}

// The option, and its value where CUDA looks at it.
bool is_known(CUjit_option option, uintptr_t value) {
  if (option == CU_JIT_TARGET) return cuda::is_jit_target(value);
  if (option == CU_JIT_CACHE_MODE) return value <= CU_JIT_CACHE_OPTION_CA;
  return option >= 0 && option < CU_JIT_NUM_OPTIONS;
}

// A log has a place and a size: both or none.
bool is_whole(const char* log, uint32_t bytes, bool placed, void* const* size_slot) {
  return placed == (size_slot != nullptr) && (log != nullptr || bytes == 0);
}

}  // namespace

CUresult parse_jit_options(unsigned count, CUjit_option* options, void** values,
                           JitOptions* parsed) {
  if (count != 0 && (options == nullptr || values == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  bool info_placed = false;
  bool error_placed = false;
  for (unsigned i = 0; i < count; ++i) {
    const auto scalar = reinterpret_cast<uintptr_t>(values[i]);
    switch (options[i]) {
      case CU_JIT_INFO_LOG_BUFFER:
        parsed->info_log = static_cast<char*>(values[i]);
        info_placed = true;
        break;
      case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
        parsed->info_bytes = static_cast<uint32_t>(scalar);
        parsed->info_slot = &values[i];
        break;
      case CU_JIT_ERROR_LOG_BUFFER:
        parsed->error_log = static_cast<char*>(values[i]);
        error_placed = true;
        break;
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
        if (!is_known(options[i], scalar)) return CUDA_ERROR_INVALID_VALUE;
        parsed->scalars.push_back({scalar, static_cast<uint32_t>(options[i])});
    }
  }
  const bool whole =
      is_whole(parsed->info_log, parsed->info_bytes, info_placed, parsed->info_slot) &&
      is_whole(parsed->error_log, parsed->error_bytes, error_placed, parsed->error_slot);
  return whole ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

void copy_jit_logs(const JitOptions& options, std::string_view info, std::string_view error) {
  copy_log(options.info_log, options.info_bytes, info, options.info_slot);
  copy_log(options.error_log, options.error_bytes, error, options.error_slot);
}

}  // namespace openmps::client
