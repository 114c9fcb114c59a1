// SPDX-License-Identifier: Apache-2.0
// Which handlers this process uses: those of the best instruction set that the processor has and
// SOFTGPU_PERF does not forbid. Chosen once; any thread.
#pragma once

#include <string_view>

#include "softgpu/interp/warp.h"

namespace openmps::softgpu {

const HandlerTable& active_handlers();
// False if SOFTGPU_PERF=no_<name>,... switches the optimisation `name` off: avx512, avx2,
// vector_memory, register_reuse, fusion. For bisecting; see docs/softgpu.md.
bool perf_allows(const char* name);
std::string_view active_instruction_set();  // "avx512", "avx2", "base"

}  // namespace openmps::softgpu
