// SPDX-License-Identifier: Apache-2.0
// Converts a graph to the steps that are sent to the worker: child graphs are flattened, each node
// follows all nodes that it depends on, and parameters are bodies of wire commands. Called with
// Graphs::lock held.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "client/context/contexts.h"
#include "client/context/event.h"
#include "client/context/module.h"
#include "client/graphs/graph.h"
#include "client/graphs/graph_memory.h"
#include "client/link/callbacks.h"
#include "client/memory/array.h"
#include "client/memory/pinned.h"
#include "client/memory/places.h"
#include "cuda/abi.h"
#include "wire/commands/graph.h"

namespace openmps::client {

using Body = std::vector<unsigned char>;

// A call on the host at every launch: a host function, or the host's half of a pageable copy.
struct GraphHostCall {
  static constexpr uint32_t kNoSlot = ~0u;
  Callbacks& callbacks;
  PinnedHeap& pinned;
  uint32_t slot = kNoSlot;
  Copy copy;  // between pageable memory and `block`, which is pinned
  void* block = nullptr;

  GraphHostCall(Callbacks& slots, PinnedHeap& blocks) : callbacks(slots), pinned(blocks) {}
  ~GraphHostCall() {
    if (slot != kNoSlot) callbacks.close_slot(slot);
    if (block != nullptr) static_cast<void>(pinned.release(block));
  }
  GraphHostCall(const GraphHostCall&) = delete;
  GraphHostCall& operator=(const GraphHostCall&) = delete;
};

// What an executable graph needs in this process while launches of it may run.
struct GraphResources {
  std::vector<std::unique_ptr<GraphHostCall>> host_calls;
  std::vector<CUevent> recorded_events;
  std::vector<std::shared_ptr<GraphBlock>> allocations;
  std::vector<CUdeviceptr> frees;
  std::vector<UserObjectReference> user_objects;

  // A launch needs more of this process than its command.
  [[nodiscard]] bool needs_attention() const {
    return !host_calls.empty() || !recorded_events.empty() || !allocations.empty() ||
           !frees.empty();
  }
};

// What became of a node of the graph.
struct GraphPlace {
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  uint32_t step = wire::kNoNode;                           // the step with the node's parameters
  wire::GraphNodeKind kind = wire::GraphNodeKind::kEmpty;  // of that step
  // Of host nodes and pageable copies: the number of the call in the resources.
  std::optional<size_t> host_call = std::nullopt;
  bool enabled = true;
  CUcontext context = nullptr;  // of a kernel
};

[[nodiscard]] inline bool can_be_disabled(const GraphPlace& place) {
  return place.type == CU_GRAPH_NODE_TYPE_KERNEL || place.type == CU_GRAPH_NODE_TYPE_MEMCPY ||
         place.type == CU_GRAPH_NODE_TYPE_MEMSET;
}

// Where the objects of a graph's work are looked up.
struct GraphSources {
  const Contexts& contexts;
  const Modules& modules;
  const Events& events;
  const Arrays& arrays;
  const Places& places;
  Callbacks& callbacks;
  PinnedHeap& pinned;
};

class GraphPlan {
 public:
  struct Step {
    wire::GraphNodeKind kind = wire::GraphNodeKind::kEmpty;
    uint32_t parent = 0;  // the number of the body that the step is in; 0: the graph
    // Of a kernel's context: how many SMs it may use at most, 0: all; its green context, 0: none.
    uint32_t sms = 0;
    wire::Id green = 0;
    std::vector<wire::GraphEdge> edges;
    Body body;
    const GraphNode* node = nullptr;
  };

  explicit GraphPlan(const GraphSources& sources) : sources_(sources) {}

  // Errors: CUDA_ERROR_INVALID_VALUE and CUDA_ERROR_INVALID_HANDLE: the node that failed() names an
  // object that is destroyed; CUDA_ERROR_OUT_OF_MEMORY.
  [[nodiscard]] CUresult add(const Graph& graph);
  // The node that can't be added; null: there is none.
  [[nodiscard]] CUgraphNode failed() const { return failed_; }

  [[nodiscard]] const std::vector<Step>& steps() const { return steps_; }
  std::unordered_map<uint64_t, GraphPlace>& places() { return places_; }
  GraphResources& resources() { return resources_; }

 private:
  using Edges = std::vector<wire::GraphEdge>;

  CUresult flatten(const Graph& graph, const Edges& before, Edges* leaves);
  CUresult add_node(const GraphNode& node, Edges edges, uint32_t* end);
  CUresult add_child(const GraphNode& node, const Graph& child, Edges edges, uint32_t* end);
  CUresult add_conditional(const GraphNode& node, const ConditionalWork& conditional, Edges edges,
                           uint32_t* end);
  CUresult add_copy(const GraphNode& node, const CopyWork& copy, Edges edges, uint32_t* end);
  CUresult add_host_call(const GraphNode& node, std::unique_ptr<GraphHostCall> call, Edges edges,
                         uint32_t* end);
  uint32_t append(const GraphNode& node, wire::GraphNodeKind kind, Edges edges, Body body);
  Edges narrow(const GraphNode& node, Edges edges);

  const GraphSources& sources_;
  std::vector<Step> steps_;
  std::unordered_map<uint64_t, GraphPlace> places_;
  GraphResources resources_;
  CUgraphNode failed_ = nullptr;
  uint32_t parent_ = 0;  // the body whose nodes are being added; 0: the graph
  uint32_t bodies_ = 0;  // so far
};

// The body of a step that runs on the GPU. Errors: those of GraphPlan::add().
[[nodiscard]] CUresult make_body(const GraphSources& sources, const Work& work,
                                 wire::GraphNodeKind* kind, Body* body);
// Splits a pageable copy: *direct is the half that the GPU does (an empty box: it does none), *call
// the half that the host does.
[[nodiscard]] CUresult split_copy(const GraphSources& sources, const CopyWork& copy,
                                  GraphHostCall* call, CopyWork* direct);
// Executes the host's half of a copy: a CUhostFn whose argument is the GraphHostCall.
void run_graph_copy(void* call);

}  // namespace openmps::client
