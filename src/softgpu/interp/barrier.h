// SPDX-License-Identifier: Apache-2.0
// Warps and lanes that no longer arrive at the barriers of a block and its cluster. Run by the
// interpreter, on its thread.
#pragma once

#include "softgpu/interp/block.h"

namespace openmps::softgpu {

// `lanes` have exited: those that wait only for them go on.
void lanes_exited(WarpState* warp, uint32_t lanes);

}  // namespace openmps::softgpu
