// SPDX-License-Identifier: Apache-2.0
// What makes, changes and reads a node of a graph, whatever its kind: `parameters` are those that
// CUDA has for the kind. Graphs and nodes are found first; their own errors are those of read_node
// (graph_params.h). On the program's threads.
#pragma once

#include <utility>
#include <variant>
#include <vector>

#include "base/mutex.h"
#include "client/session/enter.h"
#include "client/session/graph_exec.h"
#include "client/session/graph_params.h"

namespace openmps::client {

// The kind of node that parameters are for.
inline CUgraphNodeType node_type(const CUDA_KERNEL_NODE_PARAMS*) {
  return CU_GRAPH_NODE_TYPE_KERNEL;
}
inline CUgraphNodeType node_type(const CUDA_MEMCPY3D*) { return CU_GRAPH_NODE_TYPE_MEMCPY; }
inline CUgraphNodeType node_type(const CUDA_MEMSET_NODE_PARAMS*) {
  return CU_GRAPH_NODE_TYPE_MEMSET;
}
inline CUgraphNodeType node_type(const CUDA_HOST_NODE_PARAMS*) { return CU_GRAPH_NODE_TYPE_HOST; }
inline CUgraphNodeType node_type(const CUDA_EVENT_RECORD_NODE_PARAMS*) {
  return CU_GRAPH_NODE_TYPE_EVENT_RECORD;
}
inline CUgraphNodeType node_type(const CUDA_EVENT_WAIT_NODE_PARAMS*) {
  return CU_GRAPH_NODE_TYPE_WAIT_EVENT;
}
inline CUgraphNodeType node_type(const CUDA_BATCH_MEM_OP_NODE_PARAMS*) {
  return CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
}
inline CUgraphNodeType node_type(const CUDA_MEM_ALLOC_NODE_PARAMS*) {
  return CU_GRAPH_NODE_TYPE_MEM_ALLOC;
}
inline CUgraphNodeType node_type(const CUDA_MEM_FREE_NODE_PARAMS*) {
  return CU_GRAPH_NODE_TYPE_MEM_FREE;
}
inline CUgraphNodeType node_type(const CUgraphNodeParams* any) { return any->type; }

// A node that does nothing on a device needs no context: then *context is the first device's.
[[nodiscard]] CUresult enter_graph(CUgraphNodeType type, Session** session, Context** context);

// What every call that makes a node has in common: where it goes, and behind what.
struct Addition {
  CUgraphNode* out;
  CUgraph graph;
  const CUgraphNode* dependencies;
  const CUgraphEdgeData* data;
  size_t count;
};
[[nodiscard]] CUresult find_place(const Addition& addition, Session& session, Graph** graph,
                                  std::vector<GraphEdge>* edges) REQUIRES(session.graphs.lock);
[[nodiscard]] CUresult place_node(const Addition& addition, Session& session, Graph& graph,
                                  const std::vector<GraphEdge>& edges, Work work)
    REQUIRES(session.graphs.lock);

// `read(session, context, &work)` makes the work of the new node.
template <typename Read>
CUresult add_read(const Addition& addition, CUgraphNodeType type, Read&& read) {
  Session* session = nullptr;
  Context* context = nullptr;
  OPENMPS_CUDA_CHECK(enter_graph(type, &session, &context));
  const MutexLock guard(session->graphs.lock);
  Graph* graph = nullptr;
  std::vector<GraphEdge> edges;
  OPENMPS_CUDA_CHECK(find_place(addition, *session, &graph, &edges));
  Work work;
  OPENMPS_CUDA_CHECK(read(*session, *context, &work));
  return place_node(addition, *session, *graph, edges, std::move(work));
}

// `use(session, context, node)` of a node of that type.
template <typename Use>
CUresult with_node(CUgraphNode handle, CUgraphNodeType type, Use&& use) {
  Session* session = nullptr;
  Context* context = nullptr;
  OPENMPS_CUDA_CHECK(enter_graph(type, &session, &context));
  const MutexLock guard(session->graphs.lock);
  GraphNode* node = session->graphs.nodes.find(handle);
  if (node == nullptr || node->type != type) return CUDA_ERROR_INVALID_VALUE;
  return use(*session, *context, *node);
}

// A kernel's new parameters leave its attributes alone.
void keep_attributes(Work& old, Work* fresh);

// The kinds of nodes whose parameters cuGraphNodeSetParams and cuGraphExecNodeSetParams change.
[[nodiscard]] bool may_change(CUgraphNodeType type);

// ---- What the descriptions call; `named`: parameters that they make, or a pointer to them -------

template <typename Parameters>
Parameters* pointer_to(Parameters* parameters) {
  return parameters;
}
template <typename Parameters>
const Parameters* pointer_to(const Parameters& parameters) {
  return &parameters;
}

template <typename Parameters>
CUresult add_node(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                  const Parameters& named) {
  auto* parameters = pointer_to(named);
  return add_read({out, graph, dependencies, nullptr, count}, node_type(parameters),
                  [&](Session& session, Context& context, Work* work) {
                    return read_node(session, context, parameters, work);
                  });
}

template <typename Parameters>
CUresult set_node(CUgraphNode handle, const Parameters& named) {
  auto* parameters = pointer_to(named);
  return with_node(handle, node_type(parameters),
                   [&](Session& session, Context& context, GraphNode& node) {
                     Work work;
                     OPENMPS_CUDA_CHECK(read_node(session, context, parameters, &work));
                     keep_attributes(node.work, &work);
                     node.work = std::move(work);
                     return CUDA_SUCCESS;
                   });
}

// The work is read before the executable graph is looked at, as the driver does.
template <typename Parameters>
CUresult set_exec_node(CUgraphExec handle, CUgraphNode node, const Parameters& named) {
  Session* session = nullptr;
  Context* context = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session, &context));
  const MutexLock guard(session->graphs.lock);
  GraphExec* exec = session->graph_execs.find(handle);
  if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Work work;
  OPENMPS_CUDA_CHECK(read_node(*session, *context, pointer_to(named), &work));
  // Kernel nodes keep their kind of launch.
  if (auto* kernel = std::get_if<KernelWork>(&work)) {
    const GraphNode* original = session->graphs.nodes.find(node);
    if (original == nullptr || original->type != CU_GRAPH_NODE_TYPE_KERNEL) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    kernel->shape.flags = std::get<KernelWork>(original->work).shape.flags;
  }
  return session->graph_execs.set_work(*exec, node, work);
}

// One field of a node's work. Errors: CUDA_ERROR_INVALID_VALUE: it is of another kind.
template <typename Kind, typename Value>
CUresult get_work(const GraphNode& node, Value Kind::*field, Value* value) {
  const auto* work = std::get_if<Kind>(&node.work);
  if (work == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *value = work->*field;
  return CUDA_SUCCESS;
}

}  // namespace openmps::client
