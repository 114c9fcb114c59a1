// SPDX-License-Identifier: Apache-2.0
// Graphs and their edges. Any thread.
#include <stdio.h>

#include <map>
#include <string>

#include "softgpu/front/graph_front.h"

using namespace openmps;           // NOLINT: entry points live outside the namespace
using namespace openmps::softgpu;  // NOLINT: the same

namespace {

Status lossy() { return Status(CUDA_ERROR_LOSSY_QUERY, "the kinds of edges would be lost"); }

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
  for (const auto& node : graph.nodes)
    for (const GraphNode* dependency : node->dependencies)
      fprintf(file, "\"%s_%zu\" -> \"%s_%zu\";\n", prefix.c_str(), numbers[dependency],
              prefix.c_str(), numbers[node.get()]);
}

}  // namespace

// ---- Graphs -----------------------------------------------------------------------------------

CUresult cuGraphCreate(CUgraph* phGraph, unsigned int flags) {
  return with_driver([&](Driver& driver) -> Status {
    if (phGraph == nullptr || flags != 0) return invalid_value("a bad argument");
    Result<std::shared_ptr<Graph>> graph = create_graph(driver);
    if (!graph.ok()) return graph.status();
    *phGraph = (*graph)->handle;
    return Status();
  });
}

CUresult cuGraphDestroy(CUgraph hGraph) {
  return with_driver([&](Driver& driver) { return destroy_graph(driver, hGraph); });
}

CUresult cuGraphClone(CUgraph* phGraphClone, CUgraph originalGraph) {
  return with_graph(originalGraph, [&](Driver& driver, Graph& graph) -> Status {
    if (phGraphClone == nullptr) return no_result();
    std::lock_guard lock(graph_mutex());
    if (is_unique_locked(graph))
      return Status(CUDA_ERROR_NOT_SUPPORTED, "conditional and memory nodes can't be cloned");
    std::shared_ptr<Graph> copy = clone_graph_locked(driver, graph);
    copy->handle = driver.graphs.add(copy);
    *phGraphClone = copy->handle;
    return Status();
  });
}

CUresult cuGraphGetNodes(CUgraph hGraph, CUgraphNode* nodes, size_t* numNodes) {
  return with_graph(hGraph, [&](Driver&, Graph& graph) {
    std::lock_guard lock(graph_mutex());
    return deliver_nodes(graph.nodes, nodes, numNodes);
  });
}

CUresult cuGraphGetRootNodes(CUgraph hGraph, CUgraphNode* rootNodes, size_t* numRootNodes) {
  return with_graph(hGraph, [&](Driver&, Graph& graph) {
    std::lock_guard lock(graph_mutex());
    std::vector<GraphNode*> roots;
    for (const auto& node : graph.nodes)
      if (node->dependencies.empty()) roots.push_back(node.get());
    return deliver_nodes(roots, rootNodes, numRootNodes);
  });
}

CUresult cuGraphGetEdges_v2(CUgraph hGraph, CUgraphNode* from, CUgraphNode* to,
                            CUgraphEdgeData* edgeData, size_t* numEdges) {
  return with_graph(hGraph, [&](Driver&, Graph& graph) -> Status {
    if (numEdges == nullptr || (from == nullptr) != (to == nullptr)) return no_result();
    std::lock_guard lock(graph_mutex());
    std::vector<GraphNode*> sources;
    std::vector<GraphNode*> targets;
    bool plain = true;
    for (const auto& node : graph.nodes) {
      plain = plain && node->edge_data.empty();
      for (GraphNode* dependency : node->dependencies) {
        sources.push_back(dependency);
        targets.push_back(node.get());
      }
    }
    if (from != nullptr && edgeData == nullptr && !plain) return lossy();
    size_t room = *numEdges;
    for (size_t i = 0; edgeData != nullptr && i < std::min(room, sources.size()); ++i)
      edgeData[i] = edge_data_locked(*sources[i], *targets[i]);
    OPENMPS_RETURN_IF_ERROR(deliver_nodes(sources, from, numEdges));
    return from == nullptr ? Status() : deliver_nodes(targets, to, &room);
  });
}

CUresult cuGraphGetEdges(CUgraph hGraph, CUgraphNode* from, CUgraphNode* to, size_t* numEdges) {
  return cuGraphGetEdges_v2(hGraph, from, to, nullptr, numEdges);
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
    if (numDependencies == nullptr) return no_result();
    if (dependencies != nullptr && edgeData == nullptr && !node.edge_data.empty()) return lossy();
    size_t room = std::min(*numDependencies, node.dependencies.size());
    for (size_t i = 0; edgeData != nullptr && i < room; ++i)
      edgeData[i] = edge_data_locked(*node.dependencies[i], node);
    return deliver_nodes(node.dependencies, dependencies, numDependencies);
  });
}

CUresult cuGraphNodeGetDependencies(CUgraphNode hNode, CUgraphNode* dependencies,
                                    size_t* numDependencies) {
  return cuGraphNodeGetDependencies_v2(hNode, dependencies, nullptr, numDependencies);
}

CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode hNode, CUgraphNode* dependentNodes,
                                         CUgraphEdgeData* edgeData, size_t* numDependentNodes) {
  return with_node(hNode, [&](Driver&, GraphNode& node) -> Status {
    if (numDependentNodes == nullptr) return no_result();
    bool plain = true;
    for (const GraphNode* dependent : node.dependents)
      plain = plain && !dependent->edge_data.contains(&node);
    if (dependentNodes != nullptr && edgeData == nullptr && !plain) return lossy();
    size_t room = std::min(*numDependentNodes, node.dependents.size());
    for (size_t i = 0; edgeData != nullptr && i < room; ++i)
      edgeData[i] = edge_data_locked(node, *node.dependents[i]);
    return deliver_nodes(node.dependents, dependentNodes, numDependentNodes);
  });
}

CUresult cuGraphNodeGetDependentNodes(CUgraphNode hNode, CUgraphNode* dependentNodes,
                                      size_t* numDependentNodes) {
  return cuGraphNodeGetDependentNodes_v2(hNode, dependentNodes, nullptr, numDependentNodes);
}

CUresult cuGraphDestroyNode(CUgraphNode hNode) {
  return with_node(hNode, [&](Driver& driver, GraphNode& node) -> Status {
    if (has_memory_locked(*node.graph)) return memory_stays();
    remove_node_locked(driver, node);
    return Status();
  });
}

CUresult cuGraphAddDependencies_v2(CUgraph hGraph, const CUgraphNode* from, const CUgraphNode* to,
                                   const CUgraphEdgeData* edgeData, size_t numDependencies) {
  return with_graph(hGraph, [&](Driver& driver, Graph& graph) -> Status {
    std::lock_guard lock(graph_mutex());
    std::vector<GraphNode*> sources;
    std::vector<GraphNode*> targets;
    OPENMPS_RETURN_IF_ERROR(find_nodes(driver, graph, from, numDependencies, &sources));
    OPENMPS_RETURN_IF_ERROR(find_nodes(driver, graph, to, numDependencies, &targets));
    for (size_t i = 0; i < numDependencies; ++i) {
      OPENMPS_RETURN_IF_ERROR(add_dependency_locked(*sources[i], *targets[i]));
      if (edgeData != nullptr) set_edge_data_locked(*sources[i], *targets[i], edgeData[i]);
    }
    return Status();
  });
}

CUresult cuGraphAddDependencies(CUgraph hGraph, const CUgraphNode* from, const CUgraphNode* to,
                                size_t numDependencies) {
  return cuGraphAddDependencies_v2(hGraph, from, to, nullptr, numDependencies);
}

CUresult cuGraphRemoveDependencies_v2(CUgraph hGraph, const CUgraphNode* from,
                                      const CUgraphNode* to, const CUgraphEdgeData* edgeData,
                                      size_t numDependencies) {
  return with_graph(hGraph, [&](Driver& driver, Graph& graph) -> Status {
    std::lock_guard lock(graph_mutex());
    std::vector<GraphNode*> sources;
    std::vector<GraphNode*> targets;
    OPENMPS_RETURN_IF_ERROR(find_nodes(driver, graph, from, numDependencies, &sources));
    OPENMPS_RETURN_IF_ERROR(find_nodes(driver, graph, to, numDependencies, &targets));
    if (has_memory_locked(graph)) return memory_stays();
    for (size_t i = 0; i < numDependencies; ++i) {
      const CUgraphEdgeData wanted = edgeData == nullptr ? CUgraphEdgeData{} : edgeData[i];
      const CUgraphEdgeData is = edge_data_locked(*sources[i], *targets[i]);
      if (memcmp(&wanted, &is, sizeof is) != 0) return invalid_value("an edge of another kind");
      OPENMPS_RETURN_IF_ERROR(remove_dependency_locked(*sources[i], *targets[i]));
    }
    return Status();
  });
}

CUresult cuGraphRemoveDependencies(CUgraph hGraph, const CUgraphNode* from, const CUgraphNode* to,
                                   size_t numDependencies) {
  return cuGraphRemoveDependencies_v2(hGraph, from, to, nullptr, numDependencies);
}

CUresult cuGraphNodeFindInClone(CUgraphNode* phNode, CUgraphNode hOriginalNode,
                                CUgraph hClonedGraph) {
  return with_graph(hClonedGraph, [&](Driver&, Graph& graph) -> Status {
    if (phNode == nullptr) return no_result();
    std::lock_guard lock(graph_mutex());
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
    std::lock_guard lock(graph_mutex());
    fprintf(file, "digraph dot {\n");
    write_dot(file, graph, "node");
    fprintf(file, "}\n");
    return fclose(file) == 0 ? Status()
                             : Status(CUDA_ERROR_OPERATING_SYSTEM, "the file can't be written");
  });
}
