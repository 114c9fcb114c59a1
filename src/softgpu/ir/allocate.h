// SPDX-License-Identifier: Apache-2.0
// Places for the values of a drafted function: the layout of its frame, and register allocation
// over live intervals.
#pragma once

#include "softgpu/ir/draft.h"
#include "softgpu/ir/flow.h"

namespace openmps::softgpu::ir {

// Gives each value its offset, and the code its frame: size, constants, special registers. `reuse`:
// registers that are not live at once share a place.
void allocate(DraftFunction& function, const Flow& flow, bool reuse);

}  // namespace openmps::softgpu::ir
