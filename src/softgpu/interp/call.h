// SPDX-License-Identifier: Apache-2.0
// The parameters and the result of a function that the interpreter provides, up to 8 bytes of each.
// Run by the interpreter, on its thread.
#pragma once

#include "softgpu/interp/block.h"

namespace openmps::softgpu {

uint64_t call_argument(Warp* warp, const CallSite& site, size_t i, uint32_t lane);
void set_call_result(Warp* warp, const CallSite& site, uint32_t lane, uint64_t value);

}  // namespace openmps::softgpu
