// SPDX-License-Identifier: Apache-2.0
// The switches in a program's environment that CUDA documents and its driver follows, read as
// driver 580 reads them (an H200). Both libraries follow them; docs/environment.md has the whole
// list. Any thread.
#pragma once

#include "cuda/abi.h"

namespace openmps {

// CUDA_LAUNCH_BLOCKING: of contexts that begin now, launches return when their work is done.
[[nodiscard]] bool launches_block();

// CUDA_MODULE_LOADING.
[[nodiscard]] CUmoduleLoadingMode module_loading_mode();

// CUDA_FORCE_PTX_JIT and CUDA_DISABLE_PTX_JIT, before which go CUDA_FORCE_JIT and CUDA_DISABLE_JIT
// where they are not set.
struct JitSwitches {
  bool forced = false;    // machine code in fatbins is not used
  bool disabled = false;  // PTX is not compiled

  [[nodiscard]] bool any() const { return forced || disabled; }
};
[[nodiscard]] JitSwitches jit_switches();

// What a device has in a fatbin that it could run, or of PTX text alone; `switches` say what
// counts. CUDA_SUCCESS: something is left, or nothing was there before.
// CUDA_ERROR_JIT_COMPILATION_DISABLED: only PTX that may not be compiled;
// CUDA_ERROR_NO_BINARY_FOR_GPU: only machine code that may not be used.
[[nodiscard]] CUresult check_code(JitSwitches switches, bool has_machine_code, bool has_ptx);

}  // namespace openmps
