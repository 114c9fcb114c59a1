// SPDX-License-Identifier: Apache-2.0
// The last stage of the lowering: the ops that the interpreter runs.
#pragma once

#include "softgpu/ir/draft.h"
#include "softgpu/ir/flow.h"

namespace openmps::softgpu::ir {

// Fills the ops of function.code. Its values have their places.
void emit_ops(const DraftFunction& function, const Flow& flow, const HandlerTable& handlers);

}  // namespace openmps::softgpu::ir
