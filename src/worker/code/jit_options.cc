// SPDX-License-Identifier: Apache-2.0
// See jit_options.h.
#include "worker/code/jit_options.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "worker/device/driver_check.h"

namespace openmps::worker {
namespace {

// The options whose value is a number, not an address of the program's memory.
bool is_scalar(uint32_t option) {
  switch (option) {
    case CU_JIT_MAX_REGISTERS:
    case CU_JIT_THREADS_PER_BLOCK:
    case CU_JIT_OPTIMIZATION_LEVEL:
    case CU_JIT_TARGET_FROM_CUCONTEXT:
    case CU_JIT_TARGET:
    case CU_JIT_FALLBACK_STRATEGY:
    case CU_JIT_GENERATE_DEBUG_INFO:
    case CU_JIT_LOG_VERBOSE:
    case CU_JIT_GENERATE_LINE_INFO:
    case CU_JIT_CACHE_MODE:
    case CU_JIT_FAST_COMPILE:
    case CU_JIT_LTO:
    case CU_JIT_FTZ:
    case CU_JIT_PREC_DIV:
    case CU_JIT_PREC_SQRT:
    case CU_JIT_FMA:
    case CU_JIT_OPTIMIZE_UNUSED_DEVICE_VARIABLES:
    case CU_JIT_POSITION_INDEPENDENT_CODE:
    case CU_JIT_MIN_CTA_PER_SM:
    case CU_JIT_MAX_THREADS_PER_BLOCK:
    case CU_JIT_OVERRIDE_DIRECTIVE_VALUES:
    case CU_JIT_SPLIT_COMPILE: return true;
    default: return false;
  }
}

}  // namespace

void JitOptions::add(CUjit_option name, void* value) {
  names_.push_back(name);
  values_.push_back(value);
}

Status JitOptions::set(uint32_t log_bytes, std::span<const wire::JitOption> options) {
  for (const wire::JitOption& option : options) {
    if (!is_scalar(option.option)) {
      return violation("the JIT option " + std::to_string(option.option) + " is not a scalar");
    }
    add(static_cast<CUjit_option>(option.option), reinterpret_cast<void*>(option.value));
  }
  const uint32_t bytes = std::min(log_bytes, kMaxLogBytes);
  if (bytes == 0) return Status();
  info_.assign(bytes, 0);
  error_.assign(bytes, 0);
  const auto size = reinterpret_cast<void*>(static_cast<uintptr_t>(bytes));
  add(CU_JIT_INFO_LOG_BUFFER, info_.data());
  add(CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, size);
  add(CU_JIT_ERROR_LOG_BUFFER, error_.data());
  add(CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, size);
  return Status();
}

std::string_view JitOptions::text_of(const std::vector<char>& log) {
  if (log.empty()) return {};
  return {log.data(), strnlen(log.data(), log.size())};
}

}  // namespace openmps::worker
