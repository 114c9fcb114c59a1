// SPDX-License-Identifier: Apache-2.0
// Executable graphs: a graph is flattened into steps for the worker, which makes the driver's graph
// of them. What a step can't do on the GPU, calls of host functions and access to pageable memory,
// happens on the callback thread, in the order that the graph gives. Any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "client/callbacks.h"
#include "client/graph.h"
#include "client/handle_table.h"
#include "cuda/abi.h"
#include "wire/commands.h"

namespace openmps::client {

// One call on the host at every launch: the program's function, or one half of a pageable copy.
struct GraphHostCall {
  static constexpr uint32_t kNoSlot = ~0u;
  Session& session;
  uint32_t slot = kNoSlot;
  Copy copy;  // between pageable memory and a pinned block of our own
  void* block = nullptr;

  explicit GraphHostCall(Session& owner) : session(owner) {}
  ~GraphHostCall();
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

struct GraphExec : Object {
  // Where a node of the graph went.
  struct Place {
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    uint32_t step = wire::kNoNode;                           // that carries its parameters
    wire::GraphNodeKind kind = wire::GraphNodeKind::kEmpty;  // of that step
    GraphHostCall* host_call = nullptr;                      // of host nodes and pageable copies
    bool enabled = true;
  };

  Context* context = nullptr;
  uint64_t flags = 0;
  std::unordered_map<uint64_t, Place> places;  // by the node's handle
  std::shared_ptr<GraphResources> resources;
  std::atomic<bool> attention{false};    // resources->needs_attention()
  std::atomic<uint64_t> last_launch{0};  // bits of a FencePoint
};

// All with session.graph_lock held, except launch.

// `failed`: the node to blame, null if none in particular.
[[nodiscard]] CUresult instantiate_locked(Session& session, Context& context, const Graph& graph,
                                          uint64_t flags, GraphExec** exec, CUgraphNode* failed);
[[nodiscard]] CUresult update_locked(Session& session, GraphExec& exec, const Graph& graph,
                                     CUgraphExecUpdateResultInfo* info);
[[nodiscard]] CUresult destroy_exec_locked(Session& session, GraphExec* exec);

// New parameters for a node. Errors: CUDA_ERROR_INVALID_VALUE: no node of the graph that `exec` was
// made from, or of another type; what the driver says.
[[nodiscard]] CUresult set_work_locked(Session& session, GraphExec& exec, CUgraphNode node,
                                       const Work& work);
[[nodiscard]] CUresult set_enabled_locked(Session& session, GraphExec& exec, CUgraphNode node,
                                          bool enabled);

[[nodiscard]] CUresult launch_exec(Session& session, GraphExec& exec, Stream& stream);

}  // namespace openmps::client
