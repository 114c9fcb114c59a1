// SPDX-License-Identifier: Apache-2.0
// Conditional nodes. Kernels get the handles of conditions as arguments, so the handles are the
// driver's: the worker makes them on a graph that later becomes the executable graph. Called with
// Graphs::lock held.
#pragma once

#include "client/graphs/graph.h"
#include "cuda/abi.h"

namespace openmps::client {

class Contexts;

// Makes the work of a node of `graph`, with empty bodies; parameters->phGraph_out is set. Errors:
// CUDA_ERROR_INVALID_VALUE: the handle is not of the graph, has a node already or is of a context
// with other SMs than the node's, or the type does not have that size; CUDA_ERROR_NOT_SUPPORTED:
// wire::kMaxConditionalDepth, or the graph is a child graph.
[[nodiscard]] CUresult read_conditional(const Contexts& contexts, Graphs& graphs, Graph& graph,
                                        CUDA_CONDITIONAL_NODE_PARAMS* parameters, Work* work)
    REQUIRES(graphs.lock);

// The graph is a body of a conditional node, or is inside of one.
[[nodiscard]] bool is_in_body(const Graph& graph);
// The outermost graph around this one.
[[nodiscard]] const Graph& root_of(const Graph& graph);
// CUDA's rules for a graph that is to be instantiated. Errors: CUDA_ERROR_INVALID_VALUE: the graph
// is a body, or has a handle without a node (`*reason` is set).
[[nodiscard]] CUresult check_conditionals(const Graph& graph, CUgraphInstantiateResult* reason);

}  // namespace openmps::client
