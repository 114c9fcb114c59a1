// SPDX-License-Identifier: Apache-2.0
// Graphs, their edges, and the memory that graphs own: implementations behind the generated entry
// points, on the program's threads. Nodes are in graph_node_api.cc, executable graphs in
// graph_exec_api.cc.
#include <string.h>

#include <algorithm>
#include <string>
#include <vector>

#include "api/client_impl.h"
#include "client/enter.h"
#include "client/graph.h"
#include "client/graph_dot.h"

namespace openmps::client {
namespace {

using Guard = std::unique_lock<std::mutex>;

CUresult find_graph(CUgraph handle, Session** session, Graph** graph, Guard* guard) {
  OPENMPS_CUDA_CHECK(enter(session));
  *guard = Guard((*session)->graphs.lock);
  *graph = (*session)->graphs.find(handle);
  return *graph != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult find_node(CUgraphNode handle, Session** session, GraphNode** node, Guard* guard) {
  OPENMPS_CUDA_CHECK(enter(session));
  *guard = Guard((*session)->graphs.lock);
  *node = (*session)->graphs.nodes.find(handle);
  return *node != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// CUDA's way to return a list: the count only, or as many as there is room for, the rest null.
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

// The neighbours of a node on one side. `knows_data`: the call can return the kinds of edges.
CUresult get_neighbours(CUgraphNode handle, std::vector<GraphEdge> GraphNode::*side,
                        CUgraphNode* nodes, CUgraphEdgeData* data, size_t* count) {
  Session* session = nullptr;
  GraphNode* node = nullptr;
  Guard guard;
  OPENMPS_CUDA_CHECK(find_node(handle, &session, &node, &guard));
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::vector<GraphEdge>& edges = node->*side;
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
CUresult change_edges(CUgraph handle, const CUgraphNode* from, const CUgraphNode* to,
                      const CUgraphEdgeData* data, size_t count, EdgeChange change) {
  Session* session = nullptr;
  Graph* graph = nullptr;
  Guard guard;
  OPENMPS_CUDA_CHECK(find_graph(handle, &session, &graph, &guard));
  std::vector<GraphEdge> sources;
  std::vector<GraphEdge> targets;
  OPENMPS_CUDA_CHECK(session->graphs.find_edges_locked(*graph, from, data, count, &sources));
  OPENMPS_CUDA_CHECK(session->graphs.find_edges_locked(*graph, to, nullptr, count, &targets));
  const bool removes = change == EdgeChange::kRemove;
  if (removes && has_memory(*graph)) return CUDA_ERROR_NOT_SUPPORTED;
  const EdgeChange undo = removes ? EdgeChange::kAdd : EdgeChange::kRemove;
  for (size_t i = 0; i < count; ++i) {
    const CUresult result = change_edge(change, sources[i], targets[i]);
    if (result == CUDA_SUCCESS) continue;
    while (i-- > 0) static_cast<void>(change_edge(undo, sources[i], targets[i]));
    return result;
  }
  return CUDA_SUCCESS;
}

CUresult check_memory_query(CUdevice device, const void* value, Session** session) {
  OPENMPS_CUDA_CHECK(enter(session));
  if (!(*session)->valid_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  return value != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

namespace impl {

CUresult cuGraphCreate(CUgraph* phGraph, unsigned int flags) {
  Session* session = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session));
  if (phGraph == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const Guard guard(session->graphs.lock);
  Graph* graph = nullptr;
  OPENMPS_CUDA_CHECK(session->graphs.create_locked(&graph));
  *phGraph = graph->as<CUgraph>();
  return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph hGraph) {
  Session* session = nullptr;
  Graph* graph = nullptr;
  Guard guard;
  OPENMPS_CUDA_CHECK(find_graph(hGraph, &session, &graph, &guard));
  if (graph->owner != nullptr) return CUDA_ERROR_INVALID_VALUE;  // goes with its node
  for (const GraphNode* node : graph->nodes) session->captures.forget(node);
  session->captures.forget(graph);
  session->graphs.destroy_locked(graph);
  return CUDA_SUCCESS;
}

CUresult cuGraphClone(CUgraph* phGraphClone, CUgraph originalGraph) {
  Session* session = nullptr;
  Graph* graph = nullptr;
  Graph* clone = nullptr;
  Guard guard;
  OPENMPS_CUDA_CHECK(find_graph(originalGraph, &session, &graph, &guard));
  if (phGraphClone == nullptr) return CUDA_ERROR_INVALID_VALUE;
  OPENMPS_CUDA_CHECK(session->graphs.clone_locked(*graph, &clone));
  *phGraphClone = clone->as<CUgraph>();
  return CUDA_SUCCESS;
}

CUresult cuGraphNodeFindInClone(CUgraphNode* phNode, CUgraphNode hOriginalNode,
                                CUgraph hClonedGraph) {
  Session* session = nullptr;
  Graph* clone = nullptr;
  Guard guard;
  OPENMPS_CUDA_CHECK(find_graph(hClonedGraph, &session, &clone, &guard));
  if (phNode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (const GraphNode* node : clone->nodes) {
    if (node->original != reinterpret_cast<uint64_t>(hOriginalNode) || node->original == 0)
      continue;
    *phNode = handle_of(node);
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphGetNodes(CUgraph hGraph, CUgraphNode* nodes, size_t* numNodes) {
  Session* session = nullptr;
  Graph* graph = nullptr;
  Guard guard;
  OPENMPS_CUDA_CHECK(find_graph(hGraph, &session, &graph, &guard));
  if (numNodes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  deliver(graph->nodes, nodes, *numNodes, handle_of);
  *numNodes = count_of(graph->nodes.size(), nodes != nullptr, *numNodes);
  return CUDA_SUCCESS;
}

CUresult cuGraphGetRootNodes(CUgraph hGraph, CUgraphNode* rootNodes, size_t* numRootNodes) {
  Session* session = nullptr;
  Graph* graph = nullptr;
  Guard guard;
  OPENMPS_CUDA_CHECK(find_graph(hGraph, &session, &graph, &guard));
  if (numRootNodes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<GraphNode*> roots;
  for (GraphNode* node : graph->nodes) {
    if (node->dependencies.empty()) roots.push_back(node);
  }
  deliver(roots, rootNodes, *numRootNodes, handle_of);
  *numRootNodes = count_of(roots.size(), rootNodes != nullptr, *numRootNodes);
  return CUDA_SUCCESS;
}

CUresult cuGraphGetEdges_v2(CUgraph hGraph, CUgraphNode* from, CUgraphNode* to,
                            CUgraphEdgeData* edgeData, size_t* numEdges) {
  Session* session = nullptr;
  Graph* graph = nullptr;
  Guard guard;
  OPENMPS_CUDA_CHECK(find_graph(hGraph, &session, &graph, &guard));
  if (numEdges == nullptr || (from == nullptr) != (to == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  std::vector<GraphEdge> sources;
  std::vector<GraphNode*> targets;
  for (GraphNode* node : graph->nodes) {
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

CUresult cuGraphGetEdges(CUgraph hGraph, CUgraphNode* from, CUgraphNode* to, size_t* numEdges) {
  return impl::cuGraphGetEdges_v2(hGraph, from, to, nullptr, numEdges);
}

CUresult cuGraphNodeGetDependencies_v2(CUgraphNode hNode, CUgraphNode* dependencies,
                                       CUgraphEdgeData* edgeData, size_t* numDependencies) {
  return get_neighbours(hNode, &GraphNode::dependencies, dependencies, edgeData, numDependencies);
}
CUresult cuGraphNodeGetDependencies(CUgraphNode hNode, CUgraphNode* dependencies,
                                    size_t* numDependencies) {
  return get_neighbours(hNode, &GraphNode::dependencies, dependencies, nullptr, numDependencies);
}
CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode hNode, CUgraphNode* dependentNodes,
                                         CUgraphEdgeData* edgeData, size_t* numDependentNodes) {
  return get_neighbours(hNode, &GraphNode::dependents, dependentNodes, edgeData, numDependentNodes);
}
CUresult cuGraphNodeGetDependentNodes(CUgraphNode hNode, CUgraphNode* dependentNodes,
                                      size_t* numDependentNodes) {
  return get_neighbours(hNode, &GraphNode::dependents, dependentNodes, nullptr, numDependentNodes);
}

CUresult cuGraphAddDependencies_v2(CUgraph hGraph, const CUgraphNode* from, const CUgraphNode* to,
                                   const CUgraphEdgeData* edgeData, size_t numDependencies) {
  return change_edges(hGraph, from, to, edgeData, numDependencies, EdgeChange::kAdd);
}
CUresult cuGraphAddDependencies(CUgraph hGraph, const CUgraphNode* from, const CUgraphNode* to,
                                size_t numDependencies) {
  return impl::cuGraphAddDependencies_v2(hGraph, from, to, nullptr, numDependencies);
}
CUresult cuGraphRemoveDependencies_v2(CUgraph hGraph, const CUgraphNode* from,
                                      const CUgraphNode* to, const CUgraphEdgeData* edgeData,
                                      size_t numDependencies) {
  return change_edges(hGraph, from, to, edgeData, numDependencies, EdgeChange::kRemove);
}
CUresult cuGraphRemoveDependencies(CUgraph hGraph, const CUgraphNode* from, const CUgraphNode* to,
                                   size_t numDependencies) {
  return impl::cuGraphRemoveDependencies_v2(hGraph, from, to, nullptr, numDependencies);
}

CUresult cuGraphDestroyNode(CUgraphNode hNode) {
  Session* session = nullptr;
  GraphNode* node = nullptr;
  Guard guard;
  OPENMPS_CUDA_CHECK(find_node(hNode, &session, &node, &guard));
  if (has_memory(*node->graph)) return CUDA_ERROR_NOT_SUPPORTED;
  session->captures.forget(node);
  session->graphs.remove_node_locked(node);
  return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetType(CUgraphNode hNode, CUgraphNodeType* type) {
  Session* session = nullptr;
  GraphNode* node = nullptr;
  Guard guard;
  OPENMPS_CUDA_CHECK(find_node(hNode, &session, &node, &guard));
  if (type == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *type = node->type;
  return CUDA_SUCCESS;
}

CUresult cuGraphDebugDotPrint(CUgraph hGraph, const char* path, unsigned int flags) {
  Session* session = nullptr;
  Graph* graph = nullptr;
  Guard guard;
  OPENMPS_CUDA_CHECK(find_graph(hGraph, &session, &graph, &guard));
  if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return write_dot(*session, *graph, path, flags);
}

// ---- Memory of graphs ---------------------------------------------------------------------------

CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void* value) {
  Session* session = nullptr;
  OPENMPS_CUDA_CHECK(check_memory_query(device, value, &session));
  uint64_t bytes = 0;
  OPENMPS_CUDA_CHECK(session->graph_memory.attribute(device, attr, &bytes));
  memcpy(value, &bytes, sizeof(bytes));
  return CUDA_SUCCESS;
}

// Only the high-water marks can be set, and only to zero.
CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void* value) {
  Session* session = nullptr;
  OPENMPS_CUDA_CHECK(check_memory_query(device, value, &session));
  uint64_t wanted = 0;
  memcpy(&wanted, value, sizeof(wanted));
  if (wanted != 0) return CUDA_ERROR_INVALID_VALUE;
  return session->graph_memory.reset(device, attr);
}

CUresult cuDeviceGraphMemTrim(CUdevice device) {
  Session* session = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session));
  if (!session->valid_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  session->graph_memory.trim(device);
  session->memory.trim();
  return CUDA_SUCCESS;
}

}  // namespace impl
}  // namespace openmps::client
