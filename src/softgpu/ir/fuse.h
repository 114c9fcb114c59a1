// SPDX-License-Identifier: Apache-2.0
// Ops that are cheaper together, found after the basic blocks and before registers are allocated.
// Every PTX instruction is still counted, and whatever can fault keeps an op with a line of its
// own.
#pragma once

#include "softgpu/ir/draft.h"
#include "softgpu/ir/flow.h"

namespace openmps::softgpu::ir {

void fuse(DraftFunction& function, const Flow& flow);

}  // namespace openmps::softgpu::ir
