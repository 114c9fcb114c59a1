// SPDX-License-Identifier: Apache-2.0
// Conditional nodes of graphs: the handles that kernels set, and the bodies. graph_steps.h has the
// operation that runs a body as often as its condition says. API threads.
#pragma once

#include <memory>
#include <vector>

#include "cuda/status.h"
#include "softgpu/device/graph_mutex.h"
#include "softgpu/device/graphs/graph.h"
#include "softgpu/device/work/work.h"

namespace openmps::softgpu {

// cuGraphConditionalHandleCreate. `flags`: CU_GRAPH_COND_ASSIGN_DEFAULT or 0.
Result<CUgraphConditionalHandle> create_condition(Driver& driver, Graph& graph,
                                                  const Context& context, uint32_t initial,
                                                  unsigned flags);

// A conditional node of `graph` with empty bodies.
// CUDA_ERROR_INVALID_VALUE: a handle that is none or has a node already, a size that the type does
// not have, another context than the handle's.
Result<std::shared_ptr<GraphNode>> add_conditional_locked(
    Driver& driver, Graph& graph, const CUDA_CONDITIONAL_NODE_PARAMS& parameters,
    std::span<const GraphEdge> dependencies) REQUIRES(graph_mutex);

// The handles of a graph and its bodies.
void gather_conditions_locked(const Graph& graph,
                              std::vector<std::shared_ptr<Condition>>* conditions)
    REQUIRES(graph_mutex);

// What CUDA demands of a graph with conditional nodes before it is instantiated: handles in use,
// bodies of permitted nodes, whose kernels have the context of the handle.
// `conditions`: all handles of the graph.
Status check_conditionals_locked(const Graph& graph,
                                 std::vector<std::shared_ptr<Condition>>* conditions)
    REQUIRES(graph_mutex);

}  // namespace openmps::softgpu
