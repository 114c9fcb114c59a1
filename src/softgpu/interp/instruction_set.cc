// SPDX-License-Identifier: Apache-2.0
// See instruction_set.h.
#include "softgpu/interp/instruction_set.h"

#include <string>

#include "base/environment.h"

namespace openmps::softgpu {
namespace {

InstructionSet choose() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("bmi2") &&
      perf_allows("avx512")) {
    return InstructionSet::kAvx512;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
      __builtin_cpu_supports("bmi2") && perf_allows("avx2")) {
    return InstructionSet::kAvx2;
  }
#endif
  return InstructionSet::kBase;
}

}  // namespace

InstructionSet active_instruction_set() {
  static const InstructionSet set = choose();
  return set;
}

bool perf_allows(const char* name) { return !perf_asks((std::string("no_") + name).c_str()); }

bool perf_asks(const char* name) {
  const char* text = environment_variable("SOFTGPU_PERF");
  return text &&
         ("," + std::string(text) + ",").find("," + std::string(name) + ",") != std::string::npos;
}

}  // namespace openmps::softgpu
