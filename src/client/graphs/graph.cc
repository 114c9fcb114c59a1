// SPDX-License-Identifier: Apache-2.0
// The structure of graphs. See graph.h.
#include "client/graphs/graph.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "client/check.h"
#include "wire/commands/graph.h"

namespace openmps::client {

// The object's memory goes at once: a table keeps what it recycles.
void Graphs::retire_node(GraphNode* node) {
  if (auto* child = std::get_if<ChildWork>(&node->work)) {
    destroy_locked(child->graph);
  }
  if (auto* conditional = std::get_if<ConditionalWork>(&node->work)) {
    for (Graph* body : conditional->bodies) destroy_locked(body);
  }
  node->work = Work();
  node->dependencies = std::vector<GraphEdge>();
  node->dependents = std::vector<GraphEdge>();
  node->graph = nullptr;
  if (nodes.retire(node)) nodes.recycle(node);
}

CUresult Graphs::create_locked(Graph** graph) {
  return make(graph, [](Graph&) { return CUDA_SUCCESS; });
}

void Graphs::destroy_locked(Graph* graph) {
  for (GraphNode* node : graph->nodes) retire_node(node);
  graph->nodes = std::vector<GraphNode*>();
  graph->owner = nullptr;
  graph->user_objects = std::vector<UserObjectReference>();
  graph->instance = nullptr;
  if (!graph->conditions.empty()) {
    graph->conditions.clear();
    // An ended session has nothing to forget.
    static_cast<void>(channel_.push(wire::GraphForget{graph->id}));
  }
  if (retire(graph)) recycle(graph);
}

CUresult Graphs::add_node_locked(Graph& graph, Work work, std::span<const GraphEdge> dependencies,
                                 GraphNode** node) {
  // All memory first: a node is in the graph with all its edges, or not at all.
  std::vector<GraphEdge> edges = prepare_links(dependencies);
  reserve_one(graph.nodes);
  GraphNode* made = nodes.allocate();
  if (made == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  attach_new(*made, std::move(edges));
  made->graph = &graph;
  made->type = type_of(work);
  made->work = std::move(work);
  graph.nodes.push_back(made);
  nodes.publish(made);
  *node = made;
  return CUDA_SUCCESS;
}

void Graphs::remove_node_locked(GraphNode* node) {
  detach(*node);
  std::erase(node->graph->nodes, node);
  retire_node(node);
}

CUresult add_edge_locked(GraphNode& from, GraphNode& to, const CUgraphEdgeData& data) {
  const bool done = from.graph == to.graph && link(from, to, data) == cuda::LinkResult::kDone;
  return done ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult remove_edge_locked(GraphNode& from, GraphNode& to, const CUgraphEdgeData& data) {
  return unlink(from, to, data) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult Graphs::clone_locked(const Graph& graph, Graph** clone) {
  if (is_unique(graph)) return CUDA_ERROR_NOT_SUPPORTED;
  CUresult result = create_locked(clone);
  if (result != CUDA_SUCCESS) return result;
  (*clone)->user_objects = graph.user_objects;
  std::unordered_map<const GraphNode*, GraphNode*> copy_of;
  for (const GraphNode* node : graph.nodes) {
    GraphNode* copy = nullptr;
    Work work = node->work;
    auto* child = std::get_if<ChildWork>(&work);
    if (child != nullptr) {
      child->moved = false;
      result = clone_locked(*child->graph, &child->graph);
    }
    if (result == CUDA_SUCCESS) {
      Graph* inner = child == nullptr ? nullptr : child->graph;
      result = add_node_locked(**clone, std::move(work), {}, &copy);
      if (inner != nullptr && result == CUDA_SUCCESS) inner->owner = copy;
    }
    if (result != CUDA_SUCCESS) {
      destroy_locked(*clone);
      return result;
    }
    copy->original = node->handle;
    copy_of[node] = copy;
  }
  copy_links(graph.nodes, copy_of);
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

namespace {

bool has_conditional(const Graph& graph) {
  static constexpr CUgraphNodeType kTypes[] = {CU_GRAPH_NODE_TYPE_CONDITIONAL};
  return has_type(graph, kTypes);
}

}  // namespace

bool is_unique(const Graph& graph) { return has_memory(graph) || has_conditional(graph); }

bool is_moved(const Graph& graph) {
  const auto* child = graph.owner == nullptr ? nullptr : std::get_if<ChildWork>(&graph.owner->work);
  return child != nullptr && child->moved;
}

CUresult Graphs::check_move_locked(const Graph& graph, const Graph& parent) {
  if (graph.owner != nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (const Graph* above = &parent;; above = above->owner->graph) {
    if (above == &graph) return CUDA_ERROR_INVALID_VALUE;
    if (above->owner == nullptr) break;
  }
  return has_conditional(graph) ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

CUresult Graphs::check_free_locked(const Graph& graph, CUdeviceptr address) const {
  const bool freed =
      std::any_of(graph.nodes.begin(), graph.nodes.end(), [address](const GraphNode* node) {
        const auto* free = std::get_if<FreeWork>(&node->work);
        return free != nullptr && free->address == address;
      });
  return !freed && memory_.owns(address) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult Graphs::find_edges_locked(const Graph& graph, const CUgraphNode* handles,
                                   const CUgraphEdgeData* data, size_t count,
                                   std::vector<GraphEdge>* edges) const {
  if (count != 0 && handles == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    GraphNode* node = nodes.find(handles[i]);
    if (node == nullptr || node->graph != &graph) return CUDA_ERROR_INVALID_VALUE;
    edges->push_back({node, data == nullptr ? CUgraphEdgeData{} : data[i]});
  }
  return CUDA_SUCCESS;
}

}  // namespace openmps::client
