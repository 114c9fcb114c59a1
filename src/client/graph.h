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

#include "client/handle_table.h"
#include "client/user_object.h"
#include "client/work.h"
#include "cuda/abi.h"
#include "cuda/graph_structure.h"

namespace openmps::client {

struct GraphNode;
struct Session;

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
    bool used = false;  // by a node
  };
  std::vector<Condition> conditions;
  CUgraphExec instance = nullptr;  // made last; counts for graphs that are is_unique()
};

// ---- Structure. All *_locked: session.graph_lock held. ------------------------------------------

// Errors: CUDA_ERROR_OUT_OF_MEMORY: wire::kMaxObjects live.
[[nodiscard]] CUresult create_graph_locked(Session& session, Graph** graph);
void destroy_graph_locked(Session& session, Graph* graph);

// A node behind `dependencies`; an edge that is named twice counts once. Errors: as above.
[[nodiscard]] CUresult add_node_locked(Session& session, Graph& graph, Work work,
                                       std::span<const GraphEdge> dependencies, GraphNode** node);
void remove_node_locked(Session& session, GraphNode* node);

// Errors: CUDA_ERROR_INVALID_VALUE: of different graphs, it exists already, or closes a cycle.
[[nodiscard]] CUresult add_edge_locked(GraphNode& from, GraphNode& to, const CUgraphEdgeData& data);
// Errors: CUDA_ERROR_INVALID_VALUE: there is none.
[[nodiscard]] CUresult remove_edge_locked(GraphNode& from, GraphNode& to,
                                          const CUgraphEdgeData& data);

// The clone holds references of its own to the original's user objects. Errors:
// CUDA_ERROR_NOT_SUPPORTED: it is_unique().
[[nodiscard]] CUresult clone_graph_locked(Session& session, const Graph& graph, Graph** clone);

// The graph or a child of it allocates or frees: its nodes and edges stay (CUDA's rule).
[[nodiscard]] bool has_memory(const Graph& graph);
// The same, or there is a conditional node: CUDA does not clone it, and it has one executable graph
// at most.
[[nodiscard]] bool is_unique(const Graph& graph);
// May the graph free it? Errors: CUDA_ERROR_INVALID_VALUE: not what an allocation node gave, or the
// graph frees it already.
[[nodiscard]] CUresult check_free_locked(const Session& session, const Graph& graph,
                                         CUdeviceptr address);

// The nodes behind handles. Errors: CUDA_ERROR_INVALID_VALUE: one is no node, or not of `graph`.
// `data` may be null: plain edges.
[[nodiscard]] CUresult find_edges_locked(const Session& session, const Graph& graph,
                                         const CUgraphNode* handles, const CUgraphEdgeData* data,
                                         size_t count, std::vector<GraphEdge>* edges);

}  // namespace openmps::client
