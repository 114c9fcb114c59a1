// SPDX-License-Identifier: Apache-2.0
// See graph_condition.h.
#include "client/session/graph_condition.h"

#include <algorithm>
#include <utility>

#include "api/client_handlers.h"
#include "base/mutex.h"
#include "client/session/enter.h"

namespace openmps::client {
namespace {

bool is_good_size(CUgraphConditionalNodeType type, unsigned int size) {
  switch (type) {
    case CU_GRAPH_COND_TYPE_IF: return size == 1 || size == 2;
    case CU_GRAPH_COND_TYPE_WHILE: return size == 1;
    case CU_GRAPH_COND_TYPE_SWITCH: return size >= 1 && size <= wire::kMaxConditionalBodies;
    default: return false;
  }
}

// How many nodes of that type `graph` is nested in.
uint32_t depth_of(const Graph& graph, CUgraphNodeType type) {
  uint32_t depth = 0;
  for (const GraphNode* node = graph.owner; node != nullptr; node = node->graph->owner) {
    depth += node->type == type ? 1 : 0;
  }
  return depth;
}

Graph& root_of(Graph& graph) { return const_cast<Graph&>(root_of(std::as_const(graph))); }

}  // namespace

const Graph& root_of(const Graph& graph) {
  const Graph* root = &graph;
  while (root->owner != nullptr) root = root->owner->graph;
  return *root;
}

bool is_in_body(const Graph& graph) { return depth_of(graph, CU_GRAPH_NODE_TYPE_CONDITIONAL) != 0; }

CUresult read_conditional(const Contexts& contexts, Graphs& graphs, Graph& graph,
                          CUDA_CONDITIONAL_NODE_PARAMS* parameters, Work* work) {
  if (!is_good_size(parameters->type, parameters->size)) return CUDA_ERROR_INVALID_VALUE;
  std::vector<Graph::Condition>& conditions = root_of(graph).conditions;
  const auto condition =
      std::find_if(conditions.begin(), conditions.end(), [&](const Graph::Condition& known) {
        return known.handle == parameters->handle && !known.used;
      });
  if (condition == conditions.end()) return CUDA_ERROR_INVALID_VALUE;
  if (contexts.differ(parameters->ctx, condition->context)) return CUDA_ERROR_INVALID_VALUE;
  // CUDA documents that a graph with conditional nodes can't be a child graph.
  if (depth_of(graph, CU_GRAPH_NODE_TYPE_GRAPH) != 0 ||
      depth_of(graph, CU_GRAPH_NODE_TYPE_CONDITIONAL) >= wire::kMaxConditionalDepth) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  ConditionalWork conditional;
  conditional.handle = parameters->handle;
  conditional.type = parameters->type;
  for (unsigned int i = 0; i < parameters->size; ++i) {
    Graph* body = nullptr;
    const CUresult result = graphs.create_locked(&body);
    if (result != CUDA_SUCCESS) {
      for (Graph* made : conditional.bodies) graphs.destroy_locked(made);
      return result;
    }
    conditional.bodies.push_back(body);
    conditional.handles.push_back(body->as<CUgraph>());
  }
  condition->used = true;
  parameters->phGraph_out = conditional.handles.data();  // valid after the move below
  *work = std::move(conditional);
  return CUDA_SUCCESS;
}

CUresult check_conditionals(const Graph& graph, CUgraphInstantiateResult* reason) {
  if (is_in_body(graph)) return CUDA_ERROR_INVALID_VALUE;
  const bool unused =
      std::any_of(graph.conditions.begin(), graph.conditions.end(),
                  [](const Graph::Condition& condition) { return !condition.used; });
  if (unused) {
    *reason = CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED;
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

namespace impl {

// A handle belongs to the outermost graph, with which bodies are instantiated.
CUresult cuGraphConditionalHandleCreate(Session& session, Context& current,
                                        CUgraphConditionalHandle* pHandle_out, Graph& graph,
                                        CUcontext ctx, unsigned int defaultLaunchValue,
                                        unsigned int flags) {
  Context* context = &current;
  if (ctx != nullptr) OPENMPS_CUDA_CHECK(session.contexts.look_up(ctx, &context));
  if (pHandle_out == nullptr || (flags & ~CU_GRAPH_COND_ASSIGN_DEFAULT) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Graph& root = root_of(graph);
  wire::ConditionCreate::Reply reply{};
  OPENMPS_CUDA_CHECK(
      session.channel.call(wire::ConditionCreate{root.id, context->wire_device, defaultLaunchValue,
                                                 flags, context->sms, context->green_id()},
                           &reply));
  root.conditions.push_back({reply.handle, context->as<CUcontext>(), false});
  *pHandle_out = reply.handle;
  return CUDA_SUCCESS;
}

}  // namespace impl
}  // namespace openmps::client
