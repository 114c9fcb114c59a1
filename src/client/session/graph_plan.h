// SPDX-License-Identifier: Apache-2.0
// From a graph to what the worker is told of it: child graphs flattened, nodes in an order in which
// each comes behind all that it depends on, parameters as bodies of wire commands. Called with
// Graphs::lock held.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
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

// One call on the host at every launch: the program's function, or one half of a pageable copy.
struct GraphHostCall {
  static constexpr uint32_t kNoSlot = ~0u;
  Callbacks& callbacks;
  PinnedHeap& pinned;
  uint32_t slot = kNoSlot;
  Copy copy;  // between pageable memory and a pinned block of our own
  void* block = nullptr;

  GraphHostCall(Callbacks& slots, PinnedHeap& blocks) : callbacks(slots), pinned(blocks) {}
  ~GraphHostCall() {
    if (slot != kNoSlot) callbacks.close_slot(slot);
    if (block != nullptr) static_cast<void>(pinned.release(block));
  }
  GraphHostCall(const GraphHostCall&) = delete;
  GraphHostCall& operator=(const GraphHostCall&) = delete;
};

// What an executable graph needs in this process while it may run.
struct GraphResources {
  std::vector<std::unique_ptr<GraphHostCall>> host_calls;
  std::vector<CUevent> recorded_events;
  std::vector<std::shared_ptr<GraphBlock>> allocations;
  std::vector<CUdeviceptr> frees;
  std::vector<UserObjectReference> user_objects;

  // A launch has more to do here than to send the command.
  [[nodiscard]] bool needs_attention() const {
    return !host_calls.empty() || !recorded_events.empty() || !allocations.empty() ||
           !frees.empty();
  }
};

// Where a node of the graph went.
struct GraphPlace {
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  uint32_t step = wire::kNoNode;                           // that carries its parameters
  wire::GraphNodeKind kind = wire::GraphNodeKind::kEmpty;  // of that step
  GraphHostCall* host_call = nullptr;                      // of host nodes and pageable copies
  bool enabled = true;
  CUcontext context = nullptr;  // that a kernel runs in
};

[[nodiscard]] inline bool can_be_disabled(const GraphPlace& place) {
  return place.type == CU_GRAPH_NODE_TYPE_KERNEL || place.type == CU_GRAPH_NODE_TYPE_MEMCPY ||
         place.type == CU_GRAPH_NODE_TYPE_MEMSET;
}

// What a graph's work is looked up in when it is said to the worker.
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
    uint32_t parent = 0;  // the number of the body that it is in
    // Of the context that a kernel runs in: SMs that it may use at most, 0: any number; or the
    // green context that it is of, 0: none.
    uint32_t sms = 0;
    wire::Id green = 0;
    std::vector<wire::GraphEdge> edges;
    Body body;
    const GraphNode* node = nullptr;
  };

  explicit GraphPlan(const GraphSources& sources) : sources_(sources) {}

  // `failed`: the node that can't be. Errors: CUDA_ERROR_INVALID_VALUE and
  // CUDA_ERROR_INVALID_HANDLE: it names what is gone; CUDA_ERROR_OUT_OF_MEMORY.
  [[nodiscard]] CUresult add(const Graph& graph, const GraphNode** failed);

  [[nodiscard]] const std::vector<Step>& steps() const { return steps_; }
  std::unordered_map<uint64_t, GraphPlace>& places() { return places_; }
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

  const GraphSources& sources_;
  std::vector<Step> steps_;
  std::unordered_map<uint64_t, GraphPlace> places_;
  GraphResources resources_;
  uint32_t parent_ = 0;  // the body whose nodes are being added; 0: the graph
  uint32_t bodies_ = 0;  // so far
};

// The body of a step that runs on the GPU. Errors: as of GraphPlan::add().
[[nodiscard]] CUresult make_body(const GraphSources& sources, const Work& work,
                                 wire::GraphNodeKind* kind, Body* body);
// A pageable copy's two halves: `direct` is the part that the GPU does (its box is empty if there
// is none), `call` the other.
[[nodiscard]] CUresult split_copy(const GraphSources& sources, const CopyWork& copy,
                                  GraphHostCall* call, CopyWork* direct);
// Carries out the host's half: a CUhostFn whose argument is the GraphHostCall.
void run_graph_copy(void* call);

}  // namespace openmps::client
