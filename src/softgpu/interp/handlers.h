// SPDX-License-Identifier: Apache-2.0
// The handlers that this process uses: those of its instruction set (instruction_set.h). Made once;
// any thread.
#pragma once

#include "softgpu/interp/warp.h"

namespace openmps::softgpu {

const HandlerTable& active_handlers();

}  // namespace openmps::softgpu
