// SPDX-License-Identifier: Apache-2.0
// The structure of graphs. See graph.h.
#include "client/graph.h"

#include <string.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "client/graph_condition.h"
#include "client/session.h"

namespace openmps::client {
namespace {

bool reaches(const GraphNode& from, const GraphNode& to) {
  std::vector<const GraphNode*> open{&from};
  std::unordered_set<const GraphNode*> seen;
  while (!open.empty()) {
    const GraphNode* node = open.back();
    open.pop_back();
    if (node == &to) return true;
    if (!seen.insert(node).second) continue;
    for (const GraphEdge& edge : node->dependents) open.push_back(edge.node);
  }
  return false;
}

// For one more. The capacity doubles, as with push_back().
template <typename T>
void make_room(std::vector<T>& list) {
  if (list.size() == list.capacity()) list.reserve(std::max<size_t>(8, 2 * list.size()));
}

auto find_edge(std::vector<GraphEdge>& edges, const GraphNode* node) {
  return std::find_if(edges.begin(), edges.end(),
                      [node](const GraphEdge& edge) { return edge.node == node; });
}

void erase_edge(std::vector<GraphEdge>& edges, const GraphNode* node) {
  std::erase_if(edges, [node](const GraphEdge& edge) { return edge.node == node; });
}

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

CUresult add_node_locked(Session& session, Graph& graph, CUgraphNodeType type, Work work,
                         std::span<const GraphEdge> dependencies, GraphNode** node) {
  // All memory first: a node is in the graph with all its edges, or not at all.
  std::vector<GraphEdge> edges;
  edges.reserve(dependencies.size());
  for (const GraphEdge& edge : dependencies) {
    if (find_edge(edges, edge.node) == edges.end()) edges.push_back(edge);
  }
  for (const GraphEdge& edge : edges) make_room(edge.node->dependents);
  make_room(graph.nodes);
  GraphNode* made = session.graph_nodes.allocate();
  if (made == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  made->graph = &graph;
  made->type = type;
  made->work = std::move(work);
  for (const GraphEdge& edge : edges) edge.node->dependents.push_back({made, edge.data});
  made->dependencies = std::move(edges);
  graph.nodes.push_back(made);
  session.graph_nodes.publish(made);
  *node = made;
  return CUDA_SUCCESS;
}

void remove_node_locked(Session& session, GraphNode* node) {
  for (const GraphEdge& edge : node->dependencies) erase_edge(edge.node->dependents, node);
  for (const GraphEdge& edge : node->dependents) erase_edge(edge.node->dependencies, node);
  std::erase(node->graph->nodes, node);
  retire_node(session, node);
}

CUresult add_edge_locked(GraphNode& from, GraphNode& to, const CUgraphEdgeData& data) {
  if (from.graph != to.graph || reaches(to, from)) return CUDA_ERROR_INVALID_VALUE;
  if (find_edge(to.dependencies, &from) != to.dependencies.end()) return CUDA_ERROR_INVALID_VALUE;
  make_room(to.dependencies);
  make_room(from.dependents);
  to.dependencies.push_back({&from, data});
  from.dependents.push_back({&to, data});
  return CUDA_SUCCESS;
}

CUresult remove_edge_locked(GraphNode& from, GraphNode& to, const CUgraphEdgeData& data) {
  const auto edge = find_edge(to.dependencies, &from);
  if (edge == to.dependencies.end()) return CUDA_ERROR_INVALID_VALUE;
  if (memcmp(&edge->data, &data, sizeof(data)) != 0) return CUDA_ERROR_INVALID_VALUE;
  to.dependencies.erase(edge);
  erase_edge(from.dependents, &to);
  return CUDA_SUCCESS;
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
      result = add_node_locked(session, **clone, node->type, std::move(work), {}, &twin);
      if (inner != nullptr && result == CUDA_SUCCESS) inner->owner = twin;
    }
    if (result != CUDA_SUCCESS) {
      destroy_graph_locked(session, *clone);
      return result;
    }
    twin->original = node->handle;
    twins[node] = twin;
  }
  for (const GraphNode* node : graph.nodes) {
    const auto translate = [&twins](const std::vector<GraphEdge>& edges) {
      std::vector<GraphEdge> copies;
      for (const GraphEdge& edge : edges) copies.push_back({twins[edge.node], edge.data});
      return copies;
    };
    twins[node]->dependencies = translate(node->dependencies);
    twins[node]->dependents = translate(node->dependents);
  }
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

std::vector<GraphNode*> topological_order(const Graph& graph) {
  std::unordered_map<const GraphNode*, size_t> missing;
  std::vector<GraphNode*> order;
  order.reserve(graph.nodes.size());
  for (GraphNode* node : graph.nodes) {
    missing[node] = node->dependencies.size();
    if (node->dependencies.empty()) order.push_back(node);
  }
  for (size_t i = 0; i < order.size(); ++i) {
    for (const GraphEdge& edge : order[i]->dependents) {
      if (--missing[edge.node] == 0) order.push_back(edge.node);
    }
  }
  return order;
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
