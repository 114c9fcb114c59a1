// SPDX-License-Identifier: Apache-2.0
// From the parsed module to Code, in stages that hand on a DraftFunction (draft.h): the statements
// (builder.h, lower_*.cc), the flow of control (flow.h), fusion (fuse.h), places for all values
// (allocate.h), and the ops (emit.h). Called by compile(); any thread.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "softgpu/ir/code.h"
#include "softgpu/ptx/ast.h"

namespace openmps::softgpu::ir {

struct LowerOptions {
  const HandlerTable& handlers;
  bool fusion = true;
  bool register_reuse = true;
};

// `shared_offsets`: of the function's own layout (shared_layout.h). Never fails: what can't be
// lowered faults when it is reached (Code::unsupported).
std::unique_ptr<Code> lower(const ptx::Module& module, int32_t function,
                            const std::map<int32_t, uint32_t>& shared_offsets,
                            const LowerOptions& options);

}  // namespace openmps::softgpu::ir
