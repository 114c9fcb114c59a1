// SPDX-License-Identifier: Apache-2.0
// Graphs: nodes of work with dependencies. graph_exec.h has the executable snapshots of them. API
// threads.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "cuda/graph_structure.h"
#include "cuda/status.h"
#include "softgpu/device/graph_mutex.h"
#include "softgpu/device/schedule/operation.h"
#include "softgpu/device/user_object.h"
#include "softgpu/device/work/work.h"

namespace openmps::softgpu {

class Driver;
struct Graph;
struct GraphExec;
struct GraphNode;

// What edges say beyond "behind" is only remembered: nothing begins early here.
using GraphEdge = cuda::GraphLink<GraphNode>;

struct GraphNode : cuda::GraphLinks<GraphNode> {
  CUgraphNode handle = nullptr;
  Graph* graph = nullptr;  // the owner; null once removed
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  Work work;
  std::shared_ptr<Graph> child;                // CU_GRAPH_NODE_TYPE_GRAPH
  std::vector<std::shared_ptr<Graph>> bodies;  // of a conditional node
  std::vector<CUgraph> body_handles;           // what its maker was given
  bool enabled = true;
  CUgraphNode original = nullptr;             // in a clone: what it was made from
  std::vector<CUlaunchAttribute> attributes;  // of a kernel
  // The caller's view of the work, for cuGraph*NodeGetParams.
  std::vector<void*> kernel_parameter_pointers;
  CUDA_MEMCPY3D copy_parameters{};
  std::vector<CUstreamBatchMemOpParams> words_parameters;
};

struct Graph {
  CUgraph handle = nullptr;                       // null: inside a node or an exec
  std::vector<std::shared_ptr<GraphNode>> nodes;  // in order of creation
  std::vector<std::shared_ptr<UserObjectHold>> user_objects;
  std::vector<std::shared_ptr<Condition>> conditions;  // handles made for it
  std::vector<CUgraphConditionalHandle> condition_handles;
  bool is_body = false;                // of a conditional node, with which it goes
  bool moved = false;                  // into a child graph node, with which it goes
  std::weak_ptr<GraphExec> only_exec;  // of a graph that is_unique_locked()
};

std::shared_ptr<GraphNode> add_node_locked(Driver& driver, Graph& graph, Work work,
                                           std::span<const GraphEdge> dependencies)
    REQUIRES(graph_mutex);
// CUDA_ERROR_INVALID_VALUE: of different graphs, it exists, or would close a cycle.
Status add_edge_locked(GraphNode& from, GraphNode& to, const CUgraphEdgeData& data)
    REQUIRES(graph_mutex);
// CUDA_ERROR_INVALID_VALUE: there is none with these data.
Status remove_edge_locked(GraphNode& from, GraphNode& to, const CUgraphEdgeData& data)
    REQUIRES(graph_mutex);
void remove_node_locked(Driver& driver, GraphNode& node) REQUIRES(graph_mutex);
std::shared_ptr<Graph> clone_graph_locked(Driver& driver, const Graph& graph) REQUIRES(graph_mutex);
// The graph, a child or a body allocates or frees: its nodes and edges can't be removed (CUDA's
// rule).
[[nodiscard]] bool has_memory_locked(const Graph& graph) REQUIRES(graph_mutex);
// Kernels change nodes of the graph, of a child or of a body, which can't be removed (CUDA's rule).
[[nodiscard]] bool is_updatable_locked(const Graph& graph) REQUIRES(graph_mutex);
[[nodiscard]] bool has_conditional_locked(const Graph& graph) REQUIRES(graph_mutex);
// The graph has memory or conditional nodes, or is updatable: it can't be cloned, and has at most
// one executable graph.
[[nodiscard]] bool is_unique_locked(const Graph& graph) REQUIRES(graph_mutex);
// May the graph free it? CUDA_ERROR_INVALID_VALUE: not what an allocation node gave, or the graph
// frees it already.
Status check_free_locked(Driver& driver, const Graph& graph, uint64_t address)
    REQUIRES(graph_mutex);
// `other` is a child of the graph, at any depth.
[[nodiscard]] bool contains_locked(const Graph& graph, const Graph& other) REQUIRES(graph_mutex);
// The handles of a graph, its bodies and what was moved into it are no longer valid.
void retire_graph_locked(Driver& driver, Graph& graph) REQUIRES(graph_mutex);
// Kernels may change the node that a launch is or becomes. Its handle for them goes into `value`,
// where CUDA says that it is returned. CUDA_ERROR_INVALID_VALUE: neither 0 nor 1, or 0 for a node
// that is changed already.
Status make_updatable(Driver& driver, LaunchWork& work, CUlaunchAttributeValue* value);
Result<std::shared_ptr<Graph>> create_graph(Driver& driver);
Status destroy_graph(Driver& driver, CUgraph handle);

}  // namespace openmps::softgpu
