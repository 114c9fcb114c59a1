// SPDX-License-Identifier: Apache-2.0
// Conditional nodes. Their handles are numbers of the driver's, since kernels are given them: the
// worker makes them on a graph of its own, which later becomes the executable graph's. Called with
// Graphs::lock held.
#pragma once

#include "client/graphs/graph.h"
#include "cuda/abi.h"

namespace openmps::client {

struct Context;
class Contexts;

// A handle for a node of `graph` or of a graph inside of it. Errors: CUDA_ERROR_INVALID_VALUE;
// CUDA_ERROR_OUT_OF_MEMORY: wire::kMaxConditions; what the driver says.
[[nodiscard]] CUresult create_condition_locked(Channel& channel, const Context& context,
                                               Graph& graph, unsigned int initial,
                                               unsigned int flags,
                                               CUgraphConditionalHandle* handle);

// The work of a node of `graph`, with empty bodies; parameters->phGraph_out is set. Errors:
// CUDA_ERROR_INVALID_VALUE: a handle that is none of the graph's, has a node already or is of a
// context with other SMs than the node's, a size that the type does not have;
// CUDA_ERROR_NOT_SUPPORTED: wire::kMaxConditionalDepth; in a child graph.
[[nodiscard]] CUresult read_conditional(const Contexts& contexts, Graphs& graphs, Graph& graph,
                                        CUDA_CONDITIONAL_NODE_PARAMS* parameters, Work* work)
    REQUIRES(graphs.lock);

// The graph belongs to a conditional node, or to something inside of one.
[[nodiscard]] bool is_in_body(const Graph& graph);
// The outermost graph around this one.
[[nodiscard]] const Graph& root_of(const Graph& graph);
// CUDA's rules for what is to be instantiated. Errors: CUDA_ERROR_INVALID_VALUE: a body by itself,
// or a handle without a node (`*reason` says so).
[[nodiscard]] CUresult check_conditionals(const Graph& graph, CUgraphInstantiateResult* reason);

}  // namespace openmps::client
