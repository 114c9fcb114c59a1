// SPDX-License-Identifier: Apache-2.0
// Graphs and their edges. Any thread.

#include <cstdio>
#include <map>
#include <string>

#include "softgpu/front/graph_front.h"

using namespace openmps;           // NOLINT: entry points live outside the namespace
using namespace openmps::softgpu;  // NOLINT: entry points live outside the namespace

namespace {

Status memory_stays() {
  return Status(CUDA_ERROR_NOT_SUPPORTED, "a graph with memory nodes keeps its nodes and edges");
}

// Nodes by number, child graphs as clusters.
void write_dot(FILE* file, const Graph& graph, const std::string& prefix) {
  std::map<const GraphNode*, size_t> numbers;
  for (const auto& node : graph.nodes) {
    const size_t number = numbers.size();
    numbers[node.get()] = number;
    fprintf(file, "\"%s_%zu\" [label=\"%zu type %d\"];\n", prefix.c_str(), number, number,
            static_cast<int>(node->type));
    std::vector<std::shared_ptr<Graph>> inside = node->bodies;
    if (node->child != nullptr) inside.push_back(node->child);
    for (size_t i = 0; i < inside.size(); ++i) {
      const std::string inner = prefix + "_" + std::to_string(number) + "_" + std::to_string(i);
      fprintf(file, "subgraph cluster%s {\n", inner.c_str());
      write_dot(file, *inside[i], inner);
      fprintf(file, "}\n");
    }
  }
  for (const auto& node : graph.nodes) {
    for (const GraphEdge& edge : node->dependencies) {
      fprintf(file, "\"%s_%zu\" -> \"%s_%zu\";\n", prefix.c_str(), numbers[edge.node],
              prefix.c_str(), numbers[node.get()]);
    }
  }
}

}  // namespace

// ---- Graphs -----------------------------------------------------------------------------------

CUresult cuGraphCreate(CUgraph* phGraph, unsigned int flags) {
  return with_driver([&](Driver& driver) -> Status {
    if (phGraph == nullptr || flags != 0) return invalid_value("a bad argument");
    return deliver_handle(create_graph(driver), phGraph);
  });
}

CUresult cuGraphDestroy(CUgraph hGraph) {
  return with_driver([&](Driver& driver) { return destroy_graph(driver, hGraph); });
}

CUresult cuGraphClone(CUgraph* phGraphClone, CUgraph originalGraph) {
  return with_graph(originalGraph, [&](Driver& driver, Graph& graph) -> Status {
    if (phGraphClone == nullptr) return no_result();
    const MutexLock lock(graph_mutex);
    if (is_unique_locked(graph)) {
      return Status(CUDA_ERROR_NOT_SUPPORTED, "conditional and memory nodes can't be cloned");
    }
    std::shared_ptr<Graph> copy = clone_graph_locked(driver, graph);
    copy->handle = driver.graphs.add(copy);
    *phGraphClone = copy->handle;
    return Status();
  });
}

CUresult cuGraphGetNodes(CUgraph hGraph, CUgraphNode* nodes, size_t* numNodes) {
  return with_graph(hGraph, [&](Driver&, Graph& graph) {
    const MutexLock lock(graph_mutex);
    return deliver_nodes(graph.nodes, nodes, numNodes);
  });
}

CUresult cuGraphGetRootNodes(CUgraph hGraph, CUgraphNode* rootNodes, size_t* numRootNodes) {
  return with_graph(hGraph, [&](Driver&, Graph& graph) {
    const MutexLock lock(graph_mutex);
    std::vector<GraphNode*> roots;
    for (const auto& node : graph.nodes) {
      if (node->dependencies.empty()) roots.push_back(node.get());
    }
    return deliver_nodes(roots, rootNodes, numRootNodes);
  });
}

CUresult cuGraphGetEdges_v2(CUgraph hGraph, CUgraphNode* from, CUgraphNode* to,
                            CUgraphEdgeData* edgeData, size_t* numEdges) {
  return with_graph(hGraph, [&](Driver&, Graph& graph) -> Status {
    if (numEdges == nullptr || (from == nullptr) != (to == nullptr)) return no_result();
    const MutexLock lock(graph_mutex);
    std::vector<GraphEdge> sources;
    std::vector<GraphNode*> targets;
    for (const auto& node : graph.nodes) {
      sources.insert(sources.end(), node->dependencies.begin(), node->dependencies.end());
      targets.resize(sources.size(), node.get());
    }
    size_t capacity = *numEdges;
    OPENMPS_RETURN_IF_ERROR(deliver_edges(sources, from, edgeData, numEdges));
    return from == nullptr ? Status() : deliver_nodes(targets, to, &capacity);
  });
}

CUresult cuGraphNodeGetType(CUgraphNode hNode, CUgraphNodeType* type) {
  return with_node(hNode, [&](Driver&, GraphNode& node) -> Status {
    if (type == nullptr) return no_result();
    *type = node.type;
    return Status();
  });
}

CUresult cuGraphNodeGetDependencies_v2(CUgraphNode hNode, CUgraphNode* dependencies,
                                       CUgraphEdgeData* edgeData, size_t* numDependencies) {
  return with_node(hNode, [&](Driver&, GraphNode& node) -> Status {
    return deliver_edges(node.dependencies, dependencies, edgeData, numDependencies);
  });
}

CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode hNode, CUgraphNode* dependentNodes,
                                         CUgraphEdgeData* edgeData, size_t* numDependentNodes) {
  return with_node(hNode, [&](Driver&, GraphNode& node) -> Status {
    return deliver_edges(node.dependents, dependentNodes, edgeData, numDependentNodes);
  });
}

CUresult cuGraphDestroyNode(CUgraphNode hNode) {
  return with_node(hNode, [&](Driver& driver, GraphNode& node) REQUIRES(graph_mutex) -> Status {
    if (has_memory_locked(*node.graph)) return memory_stays();
    const auto* launch = std::get_if<LaunchWork>(&node.work);
    if (launch != nullptr && launch->device_node != nullptr) {
      return Status(CUDA_ERROR_NOT_SUPPORTED, "kernels change the node");
    }
    remove_node_locked(driver, node);
    return Status();
  });
}

CUresult cuGraphAddDependencies_v2(CUgraph hGraph, const CUgraphNode* from, const CUgraphNode* to,
                                   const CUgraphEdgeData* edgeData, size_t numDependencies) {
  return with_graph(hGraph, [&](Driver& driver, Graph& graph) -> Status {
    const MutexLock lock(graph_mutex);
    std::vector<GraphEdge> sources;
    std::vector<GraphEdge> targets;
    OPENMPS_RETURN_IF_ERROR(find_edges(driver, graph, from, edgeData, numDependencies, &sources));
    OPENMPS_RETURN_IF_ERROR(find_edges(driver, graph, to, nullptr, numDependencies, &targets));
    for (size_t i = 0; i < numDependencies; ++i) {
      OPENMPS_RETURN_IF_ERROR(add_edge_locked(*sources[i].node, *targets[i].node, sources[i].data));
    }
    return Status();
  });
}

CUresult cuGraphRemoveDependencies_v2(CUgraph hGraph, const CUgraphNode* from,
                                      const CUgraphNode* to, const CUgraphEdgeData* edgeData,
                                      size_t numDependencies) {
  return with_graph(hGraph, [&](Driver& driver, Graph& graph) -> Status {
    const MutexLock lock(graph_mutex);
    std::vector<GraphEdge> sources;
    std::vector<GraphEdge> targets;
    OPENMPS_RETURN_IF_ERROR(find_edges(driver, graph, from, edgeData, numDependencies, &sources));
    OPENMPS_RETURN_IF_ERROR(find_edges(driver, graph, to, nullptr, numDependencies, &targets));
    if (has_memory_locked(graph)) return memory_stays();
    for (size_t i = 0; i < numDependencies; ++i) {
      OPENMPS_RETURN_IF_ERROR(
          remove_edge_locked(*sources[i].node, *targets[i].node, sources[i].data));
    }
    return Status();
  });
}

CUresult cuGraphNodeFindInClone(CUgraphNode* phNode, CUgraphNode hOriginalNode,
                                CUgraph hClonedGraph) {
  return with_graph(hClonedGraph, [&](Driver&, Graph& graph) -> Status {
    if (phNode == nullptr) return no_result();
    const MutexLock lock(graph_mutex);
    for (const auto& node : graph.nodes) {
      if (node->original == nullptr || node->original != hOriginalNode) continue;
      *phNode = node->handle;
      return Status();
    }
    return invalid_value("not a clone of the node's graph");
  });
}

CUresult cuGraphDebugDotPrint(CUgraph hGraph, const char* path, unsigned int) {
  return with_graph(hGraph, [&](Driver&, Graph& graph) -> Status {
    if (path == nullptr) return invalid_value("no path");
    FILE* file = fopen(path, "we");
    if (file == nullptr) return Status(CUDA_ERROR_OPERATING_SYSTEM, "the file can't be written");
    const MutexLock lock(graph_mutex);
    fprintf(file, "digraph dot {\n");
    write_dot(file, graph, "node");
    fprintf(file, "}\n");
    return fclose(file) == 0 ? Status()
                             : Status(CUDA_ERROR_OPERATING_SYSTEM, "the file can't be written");
  });
}
