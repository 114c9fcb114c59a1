// SPDX-License-Identifier: Apache-2.0
// Which of the code that is compiled for several instruction sets this process runs. Chosen once;
// any thread.
#pragma once

#include <cstdint>

namespace openmps::softgpu {

enum class InstructionSet : uint8_t { kBase, kAvx2, kAvx512 };

// The best that the processor has and SOFTGPU_PERF does not forbid.
InstructionSet active_instruction_set();

// False if SOFTGPU_PERF=no_<name>,... switches the optimisation `name` off: avx512, avx2,
// vector_memory, register_reuse, fusion, tiles, lazy_code, compiler. For bisecting; see
// docs/softgpu.md.
bool perf_allows(const char* name);
// True if `name` is in SOFTGPU_PERF's list: compiler, compile_all.
bool perf_asks(const char* name);

}  // namespace openmps::softgpu
