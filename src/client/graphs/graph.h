// SPDX-License-Identifier: Apache-2.0
// Graphs as the program sees them: nodes of work with dependencies. They live in this process only,
// whether built node by node or by capture; the worker gets a graph when it is instantiated
// (graph_exec.h). One lock guards the structure of all graphs: they are built rarely and briefly.
// Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "client/graphs/graph_memory.h"
#include "client/graphs/user_object.h"
#include "client/graphs/work.h"
#include "client/handle_table.h"
#include "client/link/channel.h"
#include "cuda/abi.h"
#include "cuda/graph_structure.h"

namespace openmps::client {

struct GraphNode;

using GraphEdge = cuda::GraphLink<GraphNode>;

struct GraphNode : Object, cuda::GraphLinks<GraphNode> {
  Graph* graph = nullptr;
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;  // of the work
  Work work;
  uint64_t original = 0;  // in a clone: the handle of the node that it was made from
};

struct Graph : Object {
  std::vector<GraphNode*> nodes;  // in order of creation
  GraphNode* owner = nullptr;     // the child graph or conditional node that it belongs to
  std::vector<UserObjectReference> user_objects;
  // Handles for conditional nodes of this graph and its bodies (graph_condition.h).
  struct Condition {
    CUgraphConditionalHandle handle = 0;
    CUcontext context = nullptr;  // of its node, too
    bool used = false;            // by a node
  };
  std::vector<Condition> conditions;
  CUgraphExec instance = nullptr;  // made last; counts for graphs that are is_unique()
};

// The graph or a child of it allocates or frees: its nodes and edges stay (CUDA's rule).
[[nodiscard]] bool has_memory(const Graph& graph);
// has_memory(), or there is a conditional node: CUDA does not clone it, and it has one executable
// graph at most.
[[nodiscard]] bool is_unique(const Graph& graph);

// It is the program's own, moved into a node by CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE.
[[nodiscard]] bool is_moved(const Graph& graph);

// All *_locked: `lock` held.
class Graphs : public HandleTable<Graph> {
 public:
  Graphs(Channel& channel, const GraphMemory& memory)
      : HandleTable<Graph>(HandleKind::kGraph), channel_(channel), memory_(memory) {}

  Mutex lock{LockRank::kClientGraphs};  // of all graphs
  HandleTable<GraphNode> nodes{HandleKind::kGraphNode};

  // Errors: CUDA_ERROR_OUT_OF_MEMORY: wire::kMaxObjects live.
  [[nodiscard]] CUresult create_locked(Graph** graph) REQUIRES(lock);
  void destroy_locked(Graph* graph) REQUIRES(lock);

  // A node behind `dependencies`; an edge that is named twice counts once. Errors: as above.
  [[nodiscard]] CUresult add_node_locked(Graph& graph, Work work,
                                         std::span<const GraphEdge> dependencies, GraphNode** node)
      REQUIRES(lock);
  void remove_node_locked(GraphNode* node) REQUIRES(lock);
  // The clone holds references of its own to the original's user objects. Errors:
  // CUDA_ERROR_NOT_SUPPORTED: it is_unique().
  [[nodiscard]] CUresult clone_locked(const Graph& graph, Graph** clone) REQUIRES(lock);
  // May it become a child of `parent`, as it is? Errors: CUDA_ERROR_INVALID_VALUE: it belongs to a
  // node, or the parent to one of its own; CUDA_ERROR_NOT_SUPPORTED: it has conditional nodes.
  [[nodiscard]] static CUresult check_move_locked(const Graph& graph, const Graph& parent);

  // May the graph free it? Errors: CUDA_ERROR_INVALID_VALUE: not what an allocation node gave, or
  // the graph frees it already.
  [[nodiscard]] CUresult check_free_locked(const Graph& graph, CUdeviceptr address) const
      REQUIRES(lock);
  // The nodes behind handles. Errors: CUDA_ERROR_INVALID_VALUE: one is no node, or not of `graph`.
  // `data` may be null: plain edges.
  [[nodiscard]] CUresult find_edges_locked(const Graph& graph, const CUgraphNode* handles,
                                           const CUgraphEdgeData* data, size_t count,
                                           std::vector<GraphEdge>* edges) const REQUIRES(lock);

 private:
  void retire_node(GraphNode* node) REQUIRES(lock);

  Channel& channel_;
  const GraphMemory& memory_;
};

// Errors: CUDA_ERROR_INVALID_VALUE: of different graphs, it exists already, or closes a cycle.
[[nodiscard]] CUresult add_edge_locked(GraphNode& from, GraphNode& to, const CUgraphEdgeData& data);
// Errors: CUDA_ERROR_INVALID_VALUE: there is none.
[[nodiscard]] CUresult remove_edge_locked(GraphNode& from, GraphNode& to,
                                          const CUgraphEdgeData& data);

}  // namespace openmps::client
