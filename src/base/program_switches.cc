// SPDX-License-Identifier: Apache-2.0
// See program_switches.h.
#include "base/program_switches.h"

#include <strings.h>

#include <cstdlib>

#include "base/environment.h"

namespace openmps {
namespace {

// A number, of which the leading digits count: "1", " 1", "01" and "1x" switch on, "2" and "true"
// do not.
bool is_on(const char* value) { return value != nullptr && strtol(value, nullptr, 10) == 1; }

bool is_on(const char* name, const char* other_name) {
  const char* value = environment_variable(name);
  return is_on(value != nullptr ? value : environment_variable(other_name));
}

}  // namespace

bool launches_block() { return is_on(environment_variable("CUDA_LAUNCH_BLOCKING")); }

CUmoduleLoadingMode module_loading_mode() {
  const char* value = environment_variable("CUDA_MODULE_LOADING");
  const bool eager = value != nullptr && strcasecmp(value, "EAGER") == 0;
  return eager ? CU_MODULE_EAGER_LOADING : CU_MODULE_LAZY_LOADING;
}

JitSwitches jit_switches() {
  return {.forced = is_on("CUDA_FORCE_PTX_JIT", "CUDA_FORCE_JIT"),
          .disabled = is_on("CUDA_DISABLE_PTX_JIT", "CUDA_DISABLE_JIT")};
}

CUresult check_code(JitSwitches switches, bool has_machine_code, bool has_ptx) {
  const bool runs = (has_machine_code && !switches.forced) || (has_ptx && !switches.disabled);
  if (runs || (!has_machine_code && !has_ptx)) return CUDA_SUCCESS;
  return has_ptx ? CUDA_ERROR_JIT_COMPILATION_DISABLED : CUDA_ERROR_NO_BINARY_FOR_GPU;
}

}  // namespace openmps
