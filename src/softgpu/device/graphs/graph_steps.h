// SPDX-License-Identifier: Apache-2.0
// The steps of executable graphs and of the bodies of conditional nodes, and the operations that
// they become when they come to the device while others of their graph run. API threads; what they
// submit, under the Scheduler's mutex.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "softgpu/device/schedule/execution_context.h"
#include "softgpu/device/schedule/operation.h"
#include "softgpu/device/work/work.h"

namespace openmps::softgpu {

class Submission;

struct GraphStep {
  CUgraphNode node = nullptr;  // of the graph it was made from, for cuGraphExec*NodeSetParams
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  Work work;
  bool enabled = true;
  std::vector<uint32_t> after;  // indices of earlier steps of this list
};

// What a launch has to do for it. One that kernels may switch on is there in any case.
[[nodiscard]] Work work_at_launch(const GraphStep& step);
// Of one step's operation, in a launch of that origin.
[[nodiscard]] WorkOrigin origin_of(const GraphStep& step, const WorkOrigin& launch);
// The nodes that kernels change begin with what the steps say.
void set_device_nodes(const std::vector<GraphStep>& steps);
[[nodiscard]] bool has_device_nodes(const std::vector<GraphStep>& steps);

// The step of a node, in a list that may be changed; null: none.
GraphStep* find_step(std::vector<GraphStep>& steps, CUgraphNode node);

// The chains that the steps make up: branches of an executable graph (stream_lots.h).
[[nodiscard]] uint32_t branches_of(const std::vector<GraphStep>& steps);

// An operation that comes to the device while others of its graph run, and what it waits for.
struct LateOperation {
  OperationPtr operation;
  std::vector<OperationPtr> after;
};
// What steps are to do in a stream of that context. `origin`: of all.
std::vector<LateOperation> late_operations(const std::vector<GraphStep>& steps,
                                           const std::shared_ptr<ExecutionContext>& execution,
                                           const StreamQueue& stream, const WorkOrigin& origin,
                                           MakeOperation make);
void submit_late(Submission& submission, std::span<const LateOperation> operations)
    REQUIRES(scheduler_mutex);

// A conditional node's operation, which runs a body as often as its condition says.
OperationPtr make_conditional(const ConditionalWork& work,
                              const std::shared_ptr<ExecutionContext>& execution,
                              const StreamQueue& stream, const WorkOrigin& origin,
                              MakeOperation make);

}  // namespace openmps::softgpu
