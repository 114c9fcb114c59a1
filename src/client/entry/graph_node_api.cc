// SPDX-License-Identifier: Apache-2.0
// Nodes of graphs: making them, and reading and changing their parameters. Implementations behind
// the generated entry points, on the program's threads.

#include <algorithm>
#include <cstring>
#include <unordered_set>
#include <utility>
#include <vector>

#include "api/client_handlers.h"
#include "client/entry/graph_nodes.h"
#include "client/session/graph_condition.h"
#include "cuda/launch_attributes.h"
#include "cuda/versions.h"

namespace openmps::client {
namespace {

CUresult read_child(Session& session, CUgraph child, CUgraph parent,
                    CUgraphChildGraphNodeOwnership ownership, Work* work)
    REQUIRES(session.graphs.lock) {
  Graph* original = session.graphs.find(child);
  if (original == nullptr || child == parent) return CUDA_ERROR_INVALID_VALUE;
  if (is_moved(*original)) return CUDA_ERROR_NOT_SUPPORTED;
  ChildWork made;
  switch (ownership) {
    case CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE:
      OPENMPS_CUDA_CHECK(session.graphs.clone_locked(*original, &made.graph));
      break;
    case CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE:
      OPENMPS_CUDA_CHECK(Graphs::check_move_locked(*original, *session.graphs.find(parent)));
      made = {original, true};
      break;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  *work = made;
  return CUDA_SUCCESS;
}

CUlaunchAttribute* find_attribute(KernelWork& kernel, CUlaunchAttributeID id) {
  const auto found =
      std::find_if(kernel.attributes.begin(), kernel.attributes.end(),
                   [id](const CUlaunchAttribute& attribute) { return attribute.id == id; });
  return found == kernel.attributes.end() ? nullptr : &*found;
}

bool is_node_attribute(CUlaunchAttributeID id) {
  const cuda::LaunchAttributeFacts* const facts = cuda::find_launch_attribute(id);
  return facts != nullptr && facts->of_nodes;
}

}  // namespace

CUresult enter_graph(CUgraphNodeType type, Session** session, Context** context) {
  const CUresult result = enter(session, context);
  const bool needs_none = type == CU_GRAPH_NODE_TYPE_EMPTY || type == CU_GRAPH_NODE_TYPE_HOST;
  if (result != CUDA_ERROR_INVALID_CONTEXT || !needs_none) return result;
  *context = (*session)->contexts.primary[0];
  return CUDA_SUCCESS;
}

CUresult find_place(const Addition& addition, Session& session, Graph** graph,
                    std::vector<GraphEdge>* edges) {
  *graph = session.graphs.find(addition.graph);
  if (*graph == nullptr || addition.out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  OPENMPS_CUDA_CHECK(session.graphs.find_edges_locked(**graph, addition.dependencies, addition.data,
                                                      addition.count, edges));
  // It depends on no node twice.
  std::unordered_set<const GraphNode*> seen;
  for (const GraphEdge& edge : *edges) {
    if (!seen.insert(edge.node).second) return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult place_node(const Addition& addition, Session& session, Graph& graph,
                    const std::vector<GraphEdge>& edges, Work work) {
  if (const auto* free = std::get_if<FreeWork>(&work)) {
    OPENMPS_CUDA_CHECK(session.graphs.check_free_locked(graph, free->address));
  }
  const bool adds_memory =
      std::holds_alternative<AllocationWork>(work) || std::holds_alternative<FreeWork>(work);
  if (adds_memory && is_moved(graph)) return CUDA_ERROR_NOT_SUPPORTED;
  GraphNode* node = nullptr;
  OPENMPS_CUDA_CHECK(session.graphs.add_node_locked(graph, std::move(work), edges, &node));
  if (const auto* child = std::get_if<ChildWork>(&node->work)) child->graph->owner = node;
  if (const auto* conditional = std::get_if<ConditionalWork>(&node->work)) {
    for (Graph* body : conditional->bodies) body->owner = node;
  }
  *addition.out = node->as<CUgraphNode>();
  return CUDA_SUCCESS;
}

void keep_attributes(Work& old, Work* fresh) {
  auto* kernel = std::get_if<KernelWork>(fresh);
  if (kernel == nullptr) return;
  auto& before = std::get<KernelWork>(old);
  kernel->attributes = std::move(before.attributes);
  kernel->shape.flags = before.shape.flags;
}

bool may_change(CUgraphNodeType type) {
  switch (type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
    case CU_GRAPH_NODE_TYPE_MEMCPY:
    case CU_GRAPH_NODE_TYPE_MEMSET:
    case CU_GRAPH_NODE_TYPE_HOST:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: return true;
    default: return false;
  }
}

namespace impl {

// ---- Kernels ------------------------------------------------------------------------------------

CUresult cuGraphAddKernelNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                              const CUgraphNode* dependencies, size_t numDependencies,
                              const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto wide = cuda::as_version<CUDA_KERNEL_NODE_PARAMS>(*nodeParams);
  return impl::cuGraphAddKernelNode_v2(phGraphNode, hGraph, dependencies, numDependencies, &wide);
}

CUresult cuGraphKernelNodeGetParams_v2(Session& session, Context&, GraphNode& node,
                                       CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  auto* kernel = std::get_if<KernelWork>(&node.work);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_VALUE;
  write_kernel(session, *kernel, nodeParams);
  return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeGetParams(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUDA_KERNEL_NODE_PARAMS wide{};
  OPENMPS_CUDA_CHECK(impl::cuGraphKernelNodeGetParams_v2(hNode, &wide));
  *nodeParams = cuda::as_version<CUDA_KERNEL_NODE_PARAMS_v1>(wide);
  return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeSetParams(CUgraphNode hNode,
                                    const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto wide = cuda::as_version<CUDA_KERNEL_NODE_PARAMS>(*nodeParams);
  return impl::cuGraphKernelNodeSetParams_v2(hNode, &wide);
}

CUresult cuGraphKernelNodeCopyAttributes(Session&, Context&, GraphNode& dst, GraphNode& src) {
  const auto* source = std::get_if<KernelWork>(&src.work);
  auto* target = std::get_if<KernelWork>(&dst.work);
  if (source == nullptr || target == nullptr) return CUDA_ERROR_INVALID_VALUE;
  target->attributes = source->attributes;
  target->shape.flags = source->shape.flags;
  return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeGetAttribute(Session&, Context&, GraphNode& node, CUkernelNodeAttrID attr,
                                       CUkernelNodeAttrValue* value_out) {
  auto* kernel = std::get_if<KernelWork>(&node.work);
  if (kernel == nullptr || !is_node_attribute(attr)) return CUDA_ERROR_INVALID_VALUE;
  memset(value_out, 0, sizeof(*value_out));
  const CUlaunchAttribute* attribute = find_attribute(*kernel, attr);
  if (attribute != nullptr) {
    *value_out = attribute->value;
  } else if (attr == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) {
    value_out->cooperative = (kernel->shape.flags & wire::kLaunchCooperative) != 0 ? 1 : 0;
  }
  return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeSetAttribute(Session& session, Context&, GraphNode& node,
                                       CUkernelNodeAttrID attr,
                                       const CUkernelNodeAttrValue* value) {
  auto* kernel = std::get_if<KernelWork>(&node.work);
  if (kernel == nullptr || !is_node_attribute(attr)) return CUDA_ERROR_INVALID_VALUE;
  OPENMPS_CUDA_CHECK(check_kernel_attribute(session, *kernel, {attr, {}, *value}));
  if (attr == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) {
    kernel->shape.flags = value->cooperative != 0 ? wire::kLaunchCooperative : 0;
    return CUDA_SUCCESS;
  }
  CUlaunchAttribute* attribute = find_attribute(*kernel, attr);
  if (attribute == nullptr) attribute = &kernel->attributes.emplace_back();
  attribute->id = attr;
  attribute->value = *value;
  return CUDA_SUCCESS;
}

// ---- Other kinds --------------------------------------------------------------------------------

CUresult cuGraphHostNodeGetParams(CUgraphNode hNode, CUDA_HOST_NODE_PARAMS* nodeParams) {
  return with_node(hNode, CU_GRAPH_NODE_TYPE_HOST, [&](Session&, Context&, GraphNode& node) {
    if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return get_work(node, &HostWork::parameters, nodeParams);
  });
}

CUresult cuGraphAddChildGraphNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                  const CUgraphNode* dependencies, size_t numDependencies,
                                  CUgraph childGraph) {
  return add_read({phGraphNode, hGraph, dependencies, nullptr, numDependencies},
                  CU_GRAPH_NODE_TYPE_GRAPH, [&](Session& session, Context&, Work* work) {
                    session.graphs.lock.assert_held();
                    return read_child(session, childGraph, hGraph,
                                      CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE, work);
                  });
}

CUresult cuGraphChildGraphNodeGetGraph(Session&, Context&, GraphNode& node, CUgraph* phGraph) {
  const auto* child = std::get_if<ChildWork>(&node.work);
  if (child == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *phGraph = child->graph->as<CUgraph>();
  return CUDA_SUCCESS;
}

CUresult cuGraphAddEmptyNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                             const CUgraphNode* dependencies, size_t numDependencies) {
  return add_read({phGraphNode, hGraph, dependencies, nullptr, numDependencies},
                  CU_GRAPH_NODE_TYPE_EMPTY, [](Session&, Context&, Work*) { return CUDA_SUCCESS; });
}

CUresult cuGraphBatchMemOpNodeGetParams(Session&, Context&, GraphNode& node,
                                        CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams_out) {
  auto* words = std::get_if<WordsWork>(&node.work);
  if (words == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *nodeParams_out = {words->context, static_cast<unsigned int>(words->operations.size()),
                     words->operations.data(), words->flags};
  return CUDA_SUCCESS;
}

// ---- Nodes of any kind --------------------------------------------------------------------------

CUresult cuGraphAddNode_v2(CUgraphNode* phGraphNode, CUgraph hGraph,
                           const CUgraphNode* dependencies, const CUgraphEdgeData* dependencyData,
                           size_t numDependencies, CUgraphNodeParams* nodeParams) {
  if (nodeParams == nullptr || nodeParams->reserved2 != 0) return CUDA_ERROR_INVALID_VALUE;
  return add_read({phGraphNode, hGraph, dependencies, dependencyData, numDependencies},
                  nodeParams->type, [&](Session& session, Context& context, Work* work) {
                    session.graphs.lock.assert_held();
                    switch (nodeParams->type) {
                      case CU_GRAPH_NODE_TYPE_GRAPH:
                        return read_child(session, nodeParams->graph.graph, hGraph,
                                          nodeParams->graph.ownership, work);
                      case CU_GRAPH_NODE_TYPE_CONDITIONAL:
                        return read_conditional(session.contexts, session.graphs,
                                                *session.graphs.find(hGraph),
                                                &nodeParams->conditional, work);
                      default: return read_node(session, context, nodeParams, work);
                    }
                  });
}

CUresult cuGraphNodeSetParams(CUgraphNode hNode, CUgraphNodeParams* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return may_change(nodeParams->type) ? set_node(hNode, nodeParams) : CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace impl
}  // namespace openmps::client
