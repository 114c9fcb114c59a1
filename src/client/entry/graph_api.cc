// SPDX-License-Identifier: Apache-2.0
// Graphs, their edges, and the memory that graphs own: implementations behind the generated entry
// points, on the program's threads. Nodes are in graph_node_api.cc, executable graphs in
// graph_exec_api.cc.

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "api/client_handlers.h"
#include "base/mutex.h"
#include "client/graphs/graph.h"
#include "client/session/enter.h"

namespace openmps::client {
namespace {

// CUDA's way to return a list: the count only, or as many as the caller's array takes, the rest
// null.
template <typename Items, typename Out, typename Get>
void deliver(const Items& items, Out* out, size_t room, Get&& get) {
  for (size_t i = 0; out != nullptr && i < room; ++i) {
    out[i] = i < items.size() ? get(items[i]) : Out{};
  }
}
size_t count_of(size_t items, bool lists, size_t room) {
  return lists ? std::min(items, room) : items;
}

CUgraphNode handle_of(const GraphNode* node) { return node->as<CUgraphNode>(); }

bool is_plain(const std::vector<GraphEdge>& edges) {
  return std::all_of(edges.begin(), edges.end(), [](const GraphEdge& edge) {
    const CUgraphEdgeData plain{};
    return memcmp(&edge.data, &plain, sizeof(plain)) == 0;
  });
}

// The neighbours of a node on one side.
CUresult get_neighbours(const std::vector<GraphEdge>& edges, CUgraphNode* nodes,
                        CUgraphEdgeData* data, size_t* count) {
  if (nodes != nullptr && data == nullptr && !is_plain(edges)) return CUDA_ERROR_LOSSY_QUERY;
  deliver(edges, nodes, *count, [](const GraphEdge& edge) { return handle_of(edge.node); });
  deliver(edges, data, *count, [](const GraphEdge& edge) { return edge.data; });
  *count = count_of(edges.size(), nodes != nullptr, *count);
  return CUDA_SUCCESS;
}

enum class EdgeChange { kAdd, kRemove };

CUresult change_edge(EdgeChange change, const GraphEdge& from, const GraphEdge& to) {
  return change == EdgeChange::kAdd ? add_edge_locked(*from.node, *to.node, from.data)
                                    : remove_edge_locked(*from.node, *to.node, from.data);
}

// Adds or removes edges; all of them or none.
CUresult change_edges(Session& session, const Graph& graph, const CUgraphNode* from,
                      const CUgraphNode* to, const CUgraphEdgeData* data, size_t count,
                      EdgeChange change) REQUIRES(session.graphs.lock) {
  std::vector<GraphEdge> sources;
  std::vector<GraphEdge> targets;
  OPENMPS_CUDA_CHECK(session.graphs.find_edges_locked(graph, from, data, count, &sources));
  OPENMPS_CUDA_CHECK(session.graphs.find_edges_locked(graph, to, nullptr, count, &targets));
  const bool removes = change == EdgeChange::kRemove;
  if (removes && has_memory(graph)) return CUDA_ERROR_NOT_SUPPORTED;
  const EdgeChange undo = removes ? EdgeChange::kAdd : EdgeChange::kRemove;
  for (size_t i = 0; i < count; ++i) {
    const CUresult result = change_edge(change, sources[i], targets[i]);
    if (result == CUDA_SUCCESS) continue;
    while (i-- > 0) static_cast<void>(change_edge(undo, sources[i], targets[i]));
    return result;
  }
  return CUDA_SUCCESS;
}

}  // namespace

namespace impl {

CUresult cuGraphCreate(Session& session, CUgraph* phGraph, unsigned int flags) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const MutexLock guard(session.graphs.lock);
  Graph* graph = nullptr;
  OPENMPS_CUDA_CHECK(session.graphs.create_locked(&graph));
  *phGraph = graph->as<CUgraph>();
  return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(Session& session, Graph& graph) {
  session.graphs.lock.assert_held();
  if (graph.owner != nullptr) return CUDA_ERROR_INVALID_VALUE;  // goes with its node
  for (const GraphNode* node : graph.nodes) session.captures.forget(node);
  session.captures.forget(&graph);
  session.graphs.destroy_locked(&graph);
  return CUDA_SUCCESS;
}

CUresult cuGraphClone(Session& session, CUgraph* phGraphClone, Graph& graph) {
  session.graphs.lock.assert_held();
  Graph* clone = nullptr;
  OPENMPS_CUDA_CHECK(session.graphs.clone_locked(graph, &clone));
  *phGraphClone = clone->as<CUgraph>();
  return CUDA_SUCCESS;
}

CUresult cuGraphNodeFindInClone(Session&, CUgraphNode* phNode, CUgraphNode hOriginalNode,
                                Graph& clone) {
  for (const GraphNode* node : clone.nodes) {
    if (node->original != reinterpret_cast<uint64_t>(hOriginalNode) || node->original == 0) {
      continue;
    }
    *phNode = handle_of(node);
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphGetNodes(Session&, Graph& graph, CUgraphNode* nodes, size_t* numNodes) {
  deliver(graph.nodes, nodes, *numNodes, handle_of);
  *numNodes = count_of(graph.nodes.size(), nodes != nullptr, *numNodes);
  return CUDA_SUCCESS;
}

CUresult cuGraphGetRootNodes(Session&, Graph& graph, CUgraphNode* rootNodes, size_t* numRootNodes) {
  std::vector<GraphNode*> roots;
  for (GraphNode* node : graph.nodes) {
    if (node->dependencies.empty()) roots.push_back(node);
  }
  deliver(roots, rootNodes, *numRootNodes, handle_of);
  *numRootNodes = count_of(roots.size(), rootNodes != nullptr, *numRootNodes);
  return CUDA_SUCCESS;
}

CUresult cuGraphGetEdges_v2(Session&, Graph& graph, CUgraphNode* from, CUgraphNode* to,
                            CUgraphEdgeData* edgeData, size_t* numEdges) {
  if ((from == nullptr) != (to == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  std::vector<GraphEdge> sources;
  std::vector<GraphNode*> targets;
  for (GraphNode* node : graph.nodes) {
    for (const GraphEdge& edge : node->dependencies) {
      sources.push_back(edge);
      targets.push_back(node);
    }
  }
  if (from != nullptr && edgeData == nullptr && !is_plain(sources)) return CUDA_ERROR_LOSSY_QUERY;
  deliver(sources, from, *numEdges, [](const GraphEdge& edge) { return handle_of(edge.node); });
  deliver(targets, to, *numEdges, handle_of);
  deliver(sources, edgeData, *numEdges, [](const GraphEdge& edge) { return edge.data; });
  *numEdges = count_of(sources.size(), from != nullptr, *numEdges);
  return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetDependencies_v2(Session&, GraphNode& node, CUgraphNode* dependencies,
                                       CUgraphEdgeData* edgeData, size_t* numDependencies) {
  return get_neighbours(node.dependencies, dependencies, edgeData, numDependencies);
}
CUresult cuGraphNodeGetDependentNodes_v2(Session&, GraphNode& node, CUgraphNode* dependentNodes,
                                         CUgraphEdgeData* edgeData, size_t* numDependentNodes) {
  return get_neighbours(node.dependents, dependentNodes, edgeData, numDependentNodes);
}

CUresult cuGraphAddDependencies_v2(Session& session, Graph& graph, const CUgraphNode* from,
                                   const CUgraphNode* to, const CUgraphEdgeData* edgeData,
                                   size_t numDependencies) {
  session.graphs.lock.assert_held();
  return change_edges(session, graph, from, to, edgeData, numDependencies, EdgeChange::kAdd);
}
CUresult cuGraphRemoveDependencies_v2(Session& session, Graph& graph, const CUgraphNode* from,
                                      const CUgraphNode* to, const CUgraphEdgeData* edgeData,
                                      size_t numDependencies) {
  session.graphs.lock.assert_held();
  return change_edges(session, graph, from, to, edgeData, numDependencies, EdgeChange::kRemove);
}

CUresult cuGraphDestroyNode(Session& session, GraphNode& node) {
  session.graphs.lock.assert_held();
  if (has_memory(*node.graph)) return CUDA_ERROR_NOT_SUPPORTED;
  session.captures.forget(&node);
  session.graphs.remove_node_locked(&node);
  return CUDA_SUCCESS;
}

// ---- Memory of graphs ---------------------------------------------------------------------------

CUresult cuDeviceGetGraphMemAttribute(Session& session, uint32_t device, CUgraphMem_attribute attr,
                                      void* value) {
  uint64_t bytes = 0;
  OPENMPS_CUDA_CHECK(session.graph_memory.attribute(device, attr, &bytes));
  memcpy(value, &bytes, sizeof(bytes));
  return CUDA_SUCCESS;
}

// Only the high-water marks can be set, and only to zero.
CUresult cuDeviceSetGraphMemAttribute(Session& session, uint32_t device, CUgraphMem_attribute attr,
                                      void* value) {
  uint64_t wanted = 0;
  memcpy(&wanted, value, sizeof(wanted));
  if (wanted != 0) return CUDA_ERROR_INVALID_VALUE;
  return session.graph_memory.reset(device, attr);
}

CUresult cuDeviceGraphMemTrim(Session& session, uint32_t device) {
  session.graph_memory.trim(device);
  session.memory.trim();
  return CUDA_SUCCESS;
}

}  // namespace impl
}  // namespace openmps::client
