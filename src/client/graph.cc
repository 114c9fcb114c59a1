// SPDX-License-Identifier: Apache-2.0
// The structure of graphs. See graph.h.
#include "client/graph.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "client/graph_condition.h"
#include "client/session.h"

namespace openmps::client {
namespace {

// The object's memory goes at once: a table keeps what it recycles.
void retire_node(Session& session, GraphNode* node) {
  if (auto* child = std::get_if<ChildWork>(&node->work)) {
    destroy_graph_locked(session, child->graph);
  }
  if (auto* conditional = std::get_if<ConditionalWork>(&node->work)) {
    for (Graph* body : conditional->bodies) destroy_graph_locked(session, body);
  }
  node->work = Work();
  node->dependencies = std::vector<GraphEdge>();
  node->dependents = std::vector<GraphEdge>();
  node->graph = nullptr;
  if (session.graph_nodes.retire(node)) session.graph_nodes.recycle(node);
}

}  // namespace

CUresult create_graph_locked(Session& session, Graph** graph) {
  *graph = session.graphs.allocate();
  if (*graph == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  session.graphs.publish(*graph);
  return CUDA_SUCCESS;
}

void destroy_graph_locked(Session& session, Graph* graph) {
  for (GraphNode* node : graph->nodes) retire_node(session, node);
  graph->nodes = std::vector<GraphNode*>();
  graph->owner = nullptr;
  graph->user_objects = std::vector<UserObjectReference>();
  graph->instance = nullptr;
  forget_conditions_locked(session, *graph);
  if (session.graphs.retire(graph)) session.graphs.recycle(graph);
}

CUresult add_node_locked(Session& session, Graph& graph, Work work,
                         std::span<const GraphEdge> dependencies, GraphNode** node) {
  // All memory first: a node is in the graph with all its edges, or not at all.
  std::vector<GraphEdge> edges = prepare_links(dependencies);
  make_room(graph.nodes);
  GraphNode* made = session.graph_nodes.allocate();
  if (made == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  attach_new(*made, std::move(edges));
  made->graph = &graph;
  made->type = type_of(work);
  made->work = std::move(work);
  graph.nodes.push_back(made);
  session.graph_nodes.publish(made);
  *node = made;
  return CUDA_SUCCESS;
}

void remove_node_locked(Session& session, GraphNode* node) {
  detach(*node);
  std::erase(node->graph->nodes, node);
  retire_node(session, node);
}

CUresult add_edge_locked(GraphNode& from, GraphNode& to, const CUgraphEdgeData& data) {
  const bool done = from.graph == to.graph && link(from, to, data) == cuda::LinkResult::kDone;
  return done ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult remove_edge_locked(GraphNode& from, GraphNode& to, const CUgraphEdgeData& data) {
  return unlink(from, to, data) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult clone_graph_locked(Session& session, const Graph& graph, Graph** clone) {
  if (is_unique(graph)) return CUDA_ERROR_NOT_SUPPORTED;
  CUresult result = create_graph_locked(session, clone);
  if (result != CUDA_SUCCESS) return result;
  (*clone)->user_objects = graph.user_objects;
  std::unordered_map<const GraphNode*, GraphNode*> twins;
  for (const GraphNode* node : graph.nodes) {
    GraphNode* twin = nullptr;
    Work work = node->work;
    auto* child = std::get_if<ChildWork>(&work);
    if (child != nullptr) result = clone_graph_locked(session, *child->graph, &child->graph);
    if (result == CUDA_SUCCESS) {
      Graph* inner = child == nullptr ? nullptr : child->graph;
      result = add_node_locked(session, **clone, std::move(work), {}, &twin);
      if (inner != nullptr && result == CUDA_SUCCESS) inner->owner = twin;
    }
    if (result != CUDA_SUCCESS) {
      destroy_graph_locked(session, *clone);
      return result;
    }
    twin->original = node->handle;
    twins[node] = twin;
  }
  copy_links(graph.nodes, twins);
  return CUDA_SUCCESS;
}

namespace {

bool has_type(const Graph& graph, std::span<const CUgraphNodeType> types) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [types](const GraphNode* node) {
    const auto* child = std::get_if<ChildWork>(&node->work);
    return std::find(types.begin(), types.end(), node->type) != types.end() ||
           (child != nullptr && has_type(*child->graph, types));
  });
}

}  // namespace

bool has_memory(const Graph& graph) {
  static constexpr CUgraphNodeType kTypes[] = {CU_GRAPH_NODE_TYPE_MEM_ALLOC,
                                               CU_GRAPH_NODE_TYPE_MEM_FREE};
  return has_type(graph, kTypes);
}

bool is_unique(const Graph& graph) {
  static constexpr CUgraphNodeType kTypes[] = {CU_GRAPH_NODE_TYPE_CONDITIONAL};
  return has_memory(graph) || has_type(graph, kTypes);
}

CUresult check_free_locked(const Session& session, const Graph& graph, CUdeviceptr address) {
  const bool freed =
      std::any_of(graph.nodes.begin(), graph.nodes.end(), [address](const GraphNode* node) {
        const auto* free = std::get_if<FreeWork>(&node->work);
        return free != nullptr && free->address == address;
      });
  return !freed && session.graph_memory.owns(address) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult find_edges_locked(const Session& session, const Graph& graph, const CUgraphNode* handles,
                           const CUgraphEdgeData* data, size_t count,
                           std::vector<GraphEdge>* edges) {
  if (count != 0 && handles == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    GraphNode* node = session.graph_nodes.find(handles[i]);
    if (node == nullptr || node->graph != &graph) return CUDA_ERROR_INVALID_VALUE;
    edges->push_back({node, data == nullptr ? CUgraphEdgeData{} : data[i]});
  }
  return CUDA_SUCCESS;
}

}  // namespace openmps::client
