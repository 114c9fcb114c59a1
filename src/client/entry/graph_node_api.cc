// SPDX-License-Identifier: Apache-2.0
// Nodes of graphs: making them, and reading and changing their parameters. Implementations behind
// the generated entry points, on the program's threads.
#include <string.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "api/client_impl.h"
#include "client/graphs/graph.h"
#include "client/session/enter.h"
#include "client/session/graph_condition.h"
#include "client/session/graph_params.h"
#include "cuda/versions.h"

namespace openmps::client {
namespace {

// What every call that makes a node has in common: where it goes, and behind what.
struct Addition {
  CUgraphNode* out;
  CUgraph graph;
  const CUgraphNode* dependencies;
  const CUgraphEdgeData* data;
  size_t count;
};

// A node that does nothing on a device needs no context: then *context is the first device's.
CUresult enter_graph(CUgraphNodeType type, Session** session, Context** context) {
  const CUresult result = enter(session, context);
  const bool needs_none = type == CU_GRAPH_NODE_TYPE_EMPTY || type == CU_GRAPH_NODE_TYPE_HOST;
  if (result != CUDA_ERROR_INVALID_CONTEXT || !needs_none) return result;
  *context = (*session)->contexts.primary[0];
  return CUDA_SUCCESS;
}

// `read(session, context, &work)` makes the work of the new node.
template <typename Read>
CUresult add_read(const Addition& addition, CUgraphNodeType type, Read&& read) {
  Session* session = nullptr;
  Context* context = nullptr;
  OPENMPS_CUDA_CHECK(enter_graph(type, &session, &context));
  const std::lock_guard guard(session->graphs.lock);
  Graph* graph = session->graphs.find(addition.graph);
  if (graph == nullptr || addition.out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<GraphEdge> edges;
  OPENMPS_CUDA_CHECK(session->graphs.find_edges_locked(*graph, addition.dependencies, addition.data,
                                                       addition.count, &edges));
  Work work;
  OPENMPS_CUDA_CHECK(read(*session, *context, &work));
  if (const auto* free = std::get_if<FreeWork>(&work)) {
    OPENMPS_CUDA_CHECK(session->graphs.check_free_locked(*graph, free->address));
  }
  GraphNode* node = nullptr;
  OPENMPS_CUDA_CHECK(session->graphs.add_node_locked(*graph, std::move(work), edges, &node));
  if (const auto* child = std::get_if<ChildWork>(&node->work)) child->graph->owner = node;
  if (const auto* conditional = std::get_if<ConditionalWork>(&node->work)) {
    for (Graph* body : conditional->bodies) body->owner = node;
  }
  *addition.out = node->as<CUgraphNode>();
  return CUDA_SUCCESS;
}

// The same from what the program says of it (graph_params.h).
template <typename Parameters>
CUresult add(const Addition& addition, CUgraphNodeType type, Parameters* parameters) {
  return add_read(addition, type, [&](Session& session, Context& context, Work* work) {
    return read_node(session, context, parameters, work);
  });
}

// `use(session, context, node)` of a node of that type.
template <typename Use>
CUresult with_node(CUgraphNode handle, CUgraphNodeType type, Use&& use) {
  Session* session = nullptr;
  Context* context = nullptr;
  OPENMPS_CUDA_CHECK(enter_graph(type, &session, &context));
  const std::lock_guard guard(session->graphs.lock);
  GraphNode* node = session->graphs.nodes.find(handle);
  if (node == nullptr || node->type != type) return CUDA_ERROR_INVALID_VALUE;
  return use(*session, *context, *node);
}

template <typename Parameters>
CUresult change(CUgraphNode handle, CUgraphNodeType type, Parameters* parameters) {
  return with_node(handle, type, [&](Session& session, Context& context, GraphNode& node) {
    Work work;
    OPENMPS_CUDA_CHECK(read_node(session, context, parameters, &work));
    node.work = std::move(work);
    return CUDA_SUCCESS;
  });
}

template <typename Kind, typename Value>
CUresult get(CUgraphNode handle, CUgraphNodeType type, Value Kind::*field, Value* value) {
  return with_node(handle, type, [&](Session&, Context&, GraphNode& node) {
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *value = std::get<Kind>(node.work).*field;
    return CUDA_SUCCESS;
  });
}

// A kernel's new parameters leave its attributes alone.
CUresult change_kernel(Session& session, Context& context,
                       const CUDA_KERNEL_NODE_PARAMS* parameters, GraphNode& node) {
  Work work;
  OPENMPS_CUDA_CHECK(read_node(session, context, parameters, &work));
  auto& fresh = std::get<KernelWork>(work);
  auto& old = std::get<KernelWork>(node.work);
  fresh.attributes = std::move(old.attributes);
  fresh.shape.flags = old.shape.flags;
  node.work = std::move(work);
  return CUDA_SUCCESS;
}

CUresult read_child(Session& session, CUgraph child, CUgraph parent,
                    CUgraphChildGraphNodeOwnership ownership, Work* work) {
  const Graph* original = session.graphs.find(child);
  if (original == nullptr || child == parent) return CUDA_ERROR_INVALID_VALUE;
  // Allocations of a child would have two owners.
  if (ownership != CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE) return CUDA_ERROR_NOT_SUPPORTED;
  ChildWork made;
  OPENMPS_CUDA_CHECK(session.graphs.clone_locked(*original, &made.graph));
  *work = made;
  return CUDA_SUCCESS;
}

CUlaunchAttribute* find_attribute(KernelWork& kernel, CUlaunchAttributeID id) {
  const auto found =
      std::find_if(kernel.attributes.begin(), kernel.attributes.end(),
                   [id](const CUlaunchAttribute& attribute) { return attribute.id == id; });
  return found == kernel.attributes.end() ? nullptr : &*found;
}

// The attributes that CUDA documents for kernel nodes.
bool is_node_attribute(CUlaunchAttributeID id) {
  switch (id) {
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT: return true;
    default: return false;
  }
}

}  // namespace

namespace impl {

// ---- Kernels ------------------------------------------------------------------------------------

CUresult cuGraphAddKernelNode_v2(CUgraphNode* phGraphNode, CUgraph hGraph,
                                 const CUgraphNode* dependencies, size_t numDependencies,
                                 const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  return add({phGraphNode, hGraph, dependencies, nullptr, numDependencies},
             CU_GRAPH_NODE_TYPE_KERNEL, nodeParams);
}

CUresult cuGraphAddKernelNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                              const CUgraphNode* dependencies, size_t numDependencies,
                              const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto wide = cuda::as_version<CUDA_KERNEL_NODE_PARAMS>(*nodeParams);
  return impl::cuGraphAddKernelNode_v2(phGraphNode, hGraph, dependencies, numDependencies, &wide);
}

CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  return with_node(hNode, CU_GRAPH_NODE_TYPE_KERNEL,
                   [&](Session& session, Context&, GraphNode& node) {
                     if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
                     write_kernel(session, std::get<KernelWork>(node.work), nodeParams);
                     return CUDA_SUCCESS;
                   });
}

CUresult cuGraphKernelNodeGetParams(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUDA_KERNEL_NODE_PARAMS wide{};
  OPENMPS_CUDA_CHECK(impl::cuGraphKernelNodeGetParams_v2(hNode, &wide));
  *nodeParams = cuda::as_version<CUDA_KERNEL_NODE_PARAMS_v1>(wide);
  return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode hNode,
                                       const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  return with_node(hNode, CU_GRAPH_NODE_TYPE_KERNEL,
                   [&](Session& session, Context& context, GraphNode& node) {
                     return change_kernel(session, context, nodeParams, node);
                   });
}

CUresult cuGraphKernelNodeSetParams(CUgraphNode hNode,
                                    const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto wide = cuda::as_version<CUDA_KERNEL_NODE_PARAMS>(*nodeParams);
  return impl::cuGraphKernelNodeSetParams_v2(hNode, &wide);
}

CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode dst, CUgraphNode src) {
  return with_node(dst, CU_GRAPH_NODE_TYPE_KERNEL,
                   [&](Session& session, Context&, GraphNode& node) {
                     const GraphNode* from = session.graphs.nodes.find(src);
                     if (from == nullptr || from->type != CU_GRAPH_NODE_TYPE_KERNEL) {
                       return CUDA_ERROR_INVALID_VALUE;
                     }
                     const auto& source = std::get<KernelWork>(from->work);
                     auto& target = std::get<KernelWork>(node.work);
                     target.attributes = source.attributes;
                     target.shape.flags = source.shape.flags;
                     return CUDA_SUCCESS;
                   });
}

CUresult cuGraphKernelNodeGetAttribute(CUgraphNode hNode, CUkernelNodeAttrID attr,
                                       CUkernelNodeAttrValue* value_out) {
  return with_node(hNode, CU_GRAPH_NODE_TYPE_KERNEL, [&](Session&, Context&, GraphNode& node) {
    if (value_out == nullptr || !is_node_attribute(attr)) return CUDA_ERROR_INVALID_VALUE;
    auto& kernel = std::get<KernelWork>(node.work);
    memset(value_out, 0, sizeof(*value_out));
    const CUlaunchAttribute* attribute = find_attribute(kernel, attr);
    if (attribute != nullptr) {
      *value_out = attribute->value;
    } else if (attr == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) {
      value_out->cooperative = (kernel.shape.flags & wire::kLaunchCooperative) != 0 ? 1 : 0;
    }
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphKernelNodeSetAttribute(CUgraphNode hNode, CUkernelNodeAttrID attr,
                                       const CUkernelNodeAttrValue* value) {
  return with_node(
      hNode, CU_GRAPH_NODE_TYPE_KERNEL, [&](Session& session, Context&, GraphNode& node) {
        if (value == nullptr || !is_node_attribute(attr)) return CUDA_ERROR_INVALID_VALUE;
        auto& kernel = std::get<KernelWork>(node.work);
        OPENMPS_CUDA_CHECK(check_kernel_attribute(session, kernel, {attr, {}, *value}));
        if (attr == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) {
          kernel.shape.flags = value->cooperative != 0 ? wire::kLaunchCooperative : 0;
          return CUDA_SUCCESS;
        }
        CUlaunchAttribute* attribute = find_attribute(kernel, attr);
        if (attribute == nullptr) attribute = &kernel.attributes.emplace_back();
        attribute->id = attr;
        attribute->value = *value;
        return CUDA_SUCCESS;
      });
}

// ---- Copies, fills, host functions --------------------------------------------------------------

CUresult cuGraphAddMemcpyNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                              const CUgraphNode* dependencies, size_t numDependencies,
                              const CUDA_MEMCPY3D* copyParams, CUcontext) {
  return add({phGraphNode, hGraph, dependencies, nullptr, numDependencies},
             CU_GRAPH_NODE_TYPE_MEMCPY, copyParams);
}
CUresult cuGraphMemcpyNodeGetParams(CUgraphNode hNode, CUDA_MEMCPY3D* nodeParams) {
  return get(hNode, CU_GRAPH_NODE_TYPE_MEMCPY, &CopyWork::parameters, nodeParams);
}
CUresult cuGraphMemcpyNodeSetParams(CUgraphNode hNode, const CUDA_MEMCPY3D* nodeParams) {
  return change(hNode, CU_GRAPH_NODE_TYPE_MEMCPY, nodeParams);
}

CUresult cuGraphAddMemsetNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                              const CUgraphNode* dependencies, size_t numDependencies,
                              const CUDA_MEMSET_NODE_PARAMS* memsetParams, CUcontext) {
  return add({phGraphNode, hGraph, dependencies, nullptr, numDependencies},
             CU_GRAPH_NODE_TYPE_MEMSET, memsetParams);
}
CUresult cuGraphMemsetNodeGetParams(CUgraphNode hNode, CUDA_MEMSET_NODE_PARAMS* nodeParams) {
  return get(hNode, CU_GRAPH_NODE_TYPE_MEMSET, &FillWork::parameters, nodeParams);
}
CUresult cuGraphMemsetNodeSetParams(CUgraphNode hNode, const CUDA_MEMSET_NODE_PARAMS* nodeParams) {
  return change(hNode, CU_GRAPH_NODE_TYPE_MEMSET, nodeParams);
}

CUresult cuGraphAddHostNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                            const CUgraphNode* dependencies, size_t numDependencies,
                            const CUDA_HOST_NODE_PARAMS* nodeParams) {
  return add({phGraphNode, hGraph, dependencies, nullptr, numDependencies}, CU_GRAPH_NODE_TYPE_HOST,
             nodeParams);
}
CUresult cuGraphHostNodeGetParams(CUgraphNode hNode, CUDA_HOST_NODE_PARAMS* nodeParams) {
  return get(hNode, CU_GRAPH_NODE_TYPE_HOST, &HostWork::parameters, nodeParams);
}
CUresult cuGraphHostNodeSetParams(CUgraphNode hNode, const CUDA_HOST_NODE_PARAMS* nodeParams) {
  return change(hNode, CU_GRAPH_NODE_TYPE_HOST, nodeParams);
}

// ---- Child graphs, empty nodes ------------------------------------------------------------------

CUresult cuGraphAddChildGraphNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                  const CUgraphNode* dependencies, size_t numDependencies,
                                  CUgraph childGraph) {
  return add_read({phGraphNode, hGraph, dependencies, nullptr, numDependencies},
                  CU_GRAPH_NODE_TYPE_GRAPH, [&](Session& session, Context&, Work* work) {
                    return read_child(session, childGraph, hGraph,
                                      CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE, work);
                  });
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode hNode, CUgraph* phGraph) {
  return with_node(hNode, CU_GRAPH_NODE_TYPE_GRAPH, [&](Session&, Context&, GraphNode& node) {
    if (phGraph == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *phGraph = std::get<ChildWork>(node.work).graph->as<CUgraph>();
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphAddEmptyNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                             const CUgraphNode* dependencies, size_t numDependencies) {
  return add_read({phGraphNode, hGraph, dependencies, nullptr, numDependencies},
                  CU_GRAPH_NODE_TYPE_EMPTY, [](Session&, Context&, Work*) { return CUDA_SUCCESS; });
}

// ---- Events -------------------------------------------------------------------------------------

CUresult cuGraphAddEventRecordNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                   const CUgraphNode* dependencies, size_t numDependencies,
                                   CUevent event) {
  const RecordWork named{event};
  return add({phGraphNode, hGraph, dependencies, nullptr, numDependencies},
             CU_GRAPH_NODE_TYPE_EVENT_RECORD, &named);
}
CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode hNode, CUevent* event_out) {
  return get(hNode, CU_GRAPH_NODE_TYPE_EVENT_RECORD, &RecordWork::event, event_out);
}
CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode hNode, CUevent event) {
  const RecordWork named{event};
  return change(hNode, CU_GRAPH_NODE_TYPE_EVENT_RECORD, &named);
}

CUresult cuGraphAddEventWaitNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                 const CUgraphNode* dependencies, size_t numDependencies,
                                 CUevent event) {
  const WaitWork named{event};
  return add({phGraphNode, hGraph, dependencies, nullptr, numDependencies},
             CU_GRAPH_NODE_TYPE_WAIT_EVENT, &named);
}
CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode hNode, CUevent* event_out) {
  return get(hNode, CU_GRAPH_NODE_TYPE_WAIT_EVENT, &WaitWork::event, event_out);
}
CUresult cuGraphEventWaitNodeSetEvent(CUgraphNode hNode, CUevent event) {
  const WaitWork named{event};
  return change(hNode, CU_GRAPH_NODE_TYPE_WAIT_EVENT, &named);
}

// ---- Values in memory ---------------------------------------------------------------------------

CUresult cuGraphAddBatchMemOpNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                  const CUgraphNode* dependencies, size_t numDependencies,
                                  const CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams) {
  return add({phGraphNode, hGraph, dependencies, nullptr, numDependencies},
             CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, nodeParams);
}

CUresult cuGraphBatchMemOpNodeGetParams(CUgraphNode hNode,
                                        CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams_out) {
  return with_node(
      hNode, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, [&](Session&, Context&, GraphNode& node) {
        if (nodeParams_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
        auto& words = std::get<WordsWork>(node.work);
        *nodeParams_out = {words.context, static_cast<unsigned int>(words.operations.size()),
                           words.operations.data(), words.flags};
        return CUDA_SUCCESS;
      });
}

CUresult cuGraphBatchMemOpNodeSetParams(CUgraphNode hNode,
                                        const CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams) {
  return change(hNode, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, nodeParams);
}

// ---- Memory -------------------------------------------------------------------------------------

CUresult cuGraphAddMemAllocNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                const CUgraphNode* dependencies, size_t numDependencies,
                                CUDA_MEM_ALLOC_NODE_PARAMS* nodeParams) {
  return add({phGraphNode, hGraph, dependencies, nullptr, numDependencies},
             CU_GRAPH_NODE_TYPE_MEM_ALLOC, nodeParams);
}
CUresult cuGraphMemAllocNodeGetParams(CUgraphNode hNode, CUDA_MEM_ALLOC_NODE_PARAMS* params_out) {
  return get(hNode, CU_GRAPH_NODE_TYPE_MEM_ALLOC, &AllocationWork::parameters, params_out);
}

CUresult cuGraphAddMemFreeNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                               const CUgraphNode* dependencies, size_t numDependencies,
                               CUdeviceptr dptr) {
  return add_read({phGraphNode, hGraph, dependencies, nullptr, numDependencies},
                  CU_GRAPH_NODE_TYPE_MEM_FREE, [&](Session&, Context&, Work* work) {
                    *work = FreeWork{dptr};
                    return CUDA_SUCCESS;
                  });
}
CUresult cuGraphMemFreeNodeGetParams(CUgraphNode hNode, CUdeviceptr* dptr_out) {
  return get(hNode, CU_GRAPH_NODE_TYPE_MEM_FREE, &FreeWork::address, dptr_out);
}

// ---- Nodes of any kind --------------------------------------------------------------------------

CUresult cuGraphAddNode_v2(CUgraphNode* phGraphNode, CUgraph hGraph,
                           const CUgraphNode* dependencies, const CUgraphEdgeData* dependencyData,
                           size_t numDependencies, CUgraphNodeParams* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return add_read({phGraphNode, hGraph, dependencies, dependencyData, numDependencies},
                  nodeParams->type, [&](Session& session, Context& context, Work* work) {
                    switch (nodeParams->type) {
                      case CU_GRAPH_NODE_TYPE_GRAPH:
                        return read_child(session, nodeParams->graph.graph, hGraph,
                                          nodeParams->graph.ownership, work);
                      case CU_GRAPH_NODE_TYPE_CONDITIONAL:
                        return read_conditional(session.graphs, *session.graphs.find(hGraph),
                                                &nodeParams->conditional, work);
                      default: return read_node(session, context, nodeParams, work);
                    }
                  });
}

CUresult cuGraphNodeSetParams(CUgraphNode hNode, CUgraphNodeParams* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  switch (nodeParams->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
      const auto kernel = cuda::as_version<CUDA_KERNEL_NODE_PARAMS>(nodeParams->kernel);
      return impl::cuGraphKernelNodeSetParams_v2(hNode, &kernel);
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY:
    case CU_GRAPH_NODE_TYPE_MEMSET:
    case CU_GRAPH_NODE_TYPE_HOST:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: return change(hNode, nodeParams->type, nodeParams);
    default: return CUDA_ERROR_NOT_SUPPORTED;
  }
}

}  // namespace impl
}  // namespace openmps::client
