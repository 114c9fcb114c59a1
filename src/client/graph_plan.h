// SPDX-License-Identifier: Apache-2.0
// From a graph to what the worker is told of it: child graphs flattened, nodes in an order in which
// each comes behind all that it depends on, parameters as bodies of wire commands. Called with
// session.graph_lock held.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "client/graph_exec.h"

namespace openmps::client {

using Body = std::vector<unsigned char>;

class GraphPlan {
 public:
  struct Step {
    wire::GraphNodeKind kind = wire::GraphNodeKind::kEmpty;
    uint32_t parent = 0;  // the number of the body that it is in
    std::vector<wire::GraphEdge> edges;
    Body body;
    const GraphNode* node = nullptr;
  };

  explicit GraphPlan(Session& session) : session_(session) {}

  // `failed`: the node that can't be. Errors: CUDA_ERROR_INVALID_VALUE and
  // CUDA_ERROR_INVALID_HANDLE: it names what is gone; CUDA_ERROR_OUT_OF_MEMORY.
  [[nodiscard]] CUresult add(const Graph& graph, const GraphNode** failed);

  [[nodiscard]] const std::vector<Step>& steps() const { return steps_; }
  std::unordered_map<uint64_t, GraphExec::Place>& places() { return places_; }
  GraphResources& resources() { return resources_; }

 private:
  using Edges = std::vector<wire::GraphEdge>;

  CUresult flatten(const Graph& graph, const Edges& before, Edges* leaves,
                   const GraphNode** failed);
  CUresult add_node(const GraphNode& node, Edges edges, uint32_t* end, const GraphNode** failed);
  CUresult add_child(const GraphNode& node, const Graph& child, Edges edges, uint32_t* end,
                     const GraphNode** failed);
  CUresult add_conditional(const GraphNode& node, const ConditionalWork& conditional, Edges edges,
                           uint32_t* end, const GraphNode** failed);
  CUresult add_copy(const GraphNode& node, const CopyWork& copy, Edges edges, uint32_t* end);
  CUresult add_host_call(const GraphNode& node, std::unique_ptr<GraphHostCall> call, Edges edges,
                         uint32_t* end);
  uint32_t append(const GraphNode& node, wire::GraphNodeKind kind, Edges edges, Body body);
  Edges narrow(const GraphNode& node, Edges edges);

  Session& session_;
  std::vector<Step> steps_;
  std::unordered_map<uint64_t, GraphExec::Place> places_;
  GraphResources resources_;
  uint32_t parent_ = 0;  // the body whose nodes are being added; 0: the graph
  uint32_t bodies_ = 0;  // so far
};

// The body of a step that runs on the GPU. Errors: as of GraphPlan::add().
[[nodiscard]] CUresult make_body(Session& session, const Work& work, wire::GraphNodeKind* kind,
                                 Body* body);
// A pageable copy's two halves: `direct` is the part that the GPU does (its box is empty if there
// is none), `call` the other.
[[nodiscard]] CUresult split_copy(Session& session, const CopyWork& copy, GraphHostCall* call,
                                  CopyWork* direct);
// Carries out the host's half: a CUhostFn whose argument is the GraphHostCall.
void run_graph_copy(void* call);

}  // namespace openmps::client
