// SPDX-License-Identifier: Apache-2.0
// The stages of the lowering. See lower.h.
#include "softgpu/ir/lower.h"

#include "softgpu/ir/allocate.h"
#include "softgpu/ir/builder.h"
#include "softgpu/ir/emit.h"
#include "softgpu/ir/flow.h"
#include "softgpu/ir/fuse.h"

namespace openmps::softgpu::ir {

std::unique_ptr<Code> lower(const ptx::Module& module, int32_t function,
                            const std::map<int32_t, uint32_t>& shared_offsets,
                            const LowerOptions& options) {
  DraftFunction draft = Builder(module, function, shared_offsets).lower_statements();
  const Flow flow = find_flow(draft);
  if (options.fusion) fuse(draft, flow);
  allocate(draft, flow, options.register_reuse);
  emit_ops(draft, flow, options.handlers);
  return std::move(draft.code);
}

}  // namespace openmps::softgpu::ir
