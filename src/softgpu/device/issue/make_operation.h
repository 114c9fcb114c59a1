// SPDX-License-Identifier: Apache-2.0
// From work to operation. Called by API threads for stream calls and graph launches, and by workers
// for what kernels launch.
#pragma once

#include <memory>

#include "softgpu/device/schedule/execution_context.h"
#include "softgpu/device/work/work.h"

namespace openmps::softgpu {

// An operation for it in a stream of that context; a kernel's is its function's, which in a graph
// may be another. Not submitted.
OperationPtr make_operation(const Work& work, const std::shared_ptr<ExecutionContext>& execution,
                            const StreamQueue& stream, const WorkOrigin& origin = {});

}  // namespace openmps::softgpu
