// SPDX-License-Identifier: Apache-2.0
// Carrying out the copies and fills of streams: by copy engines, and by API threads that wait for
// them in any case.
#pragma once

#include <cstdint>
#include <string>

#include "softgpu/device/machine/address_space.h"
#include "softgpu/device/machine/trace.h"
#include "softgpu/device/schedule/operation.h"

namespace openmps::softgpu {

// Carries the copy out on this thread. CUDA_ERROR_ILLEGAL_ADDRESS: memory that it touches is no
// longer mapped.
[[nodiscard]] CUresult run_copy_operation(AddressSpace& memory, CopyOperation& copy);

// The copy has just ended. `start_ns`: now_ns() when it began.
void note_copy_times(CopyOperation& copy, uint64_t start_ns);

// The same, with the engine or thread that carried the copy out.
void trace_copy(Trace& trace, const CopyOperation& copy, const std::string& lane,
                uint64_t start_ns);

}  // namespace openmps::softgpu
