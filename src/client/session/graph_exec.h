// SPDX-License-Identifier: Apache-2.0
// Executable graphs. A graph is flattened into steps, of which the worker makes a graph of the
// driver. Calls of host functions and accesses to pageable memory are made on the callback thread,
// in the order that the graph defines. Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "client/context/managed_variables.h"
#include "client/graphs/graph.h"
#include "client/graphs/graph_memory.h"
#include "client/handle_table.h"
#include "client/link/channel.h"
#include "client/link/fence.h"
#include "client/link/kernel_output.h"
#include "client/session/graph_plan.h"
#include "cuda/abi.h"

namespace openmps::client {

struct GraphExec : Object {
  using Place = GraphPlace;

  Context* context = nullptr;
  uint64_t flags = 0;
  std::unordered_map<uint64_t, Place> places;  // by the node's handle
  std::shared_ptr<GraphResources> resources;
  std::atomic<bool> attention{false};    // resources->needs_attention()
  std::atomic<uint64_t> last_launch{0};  // bits of a FencePoint
};

// All methods but launch() are called with Graphs::lock held.
class GraphExecs : public HandleTable<GraphExec> {
 public:
  GraphExecs(Channel& channel, Fences& fences, GraphMemory& memory, KernelOutput& output,
             ManagedVariables& managed, const GraphSources& sources)
      : HandleTable<GraphExec>(HandleKind::kGraphExec, wire::kMaxGraphExecs),
        channel_(channel),
        fences_(fences),
        memory_(memory),
        output_(output),
        managed_(managed),
        sources_(sources) {}

  // *failed: the node that failed, or null.
  [[nodiscard]] CUresult instantiate(Context& context, const Graph& graph, uint64_t flags,
                                     GraphExec** exec, CUgraphNode* failed);
  [[nodiscard]] CUresult update(GraphExec& exec, const Graph& graph,
                                CUgraphExecUpdateResultInfo* info);
  [[nodiscard]] CUresult destroy(GraphExec* exec);

  // Sets new parameters of a node. Errors: CUDA_ERROR_INVALID_VALUE: the node is not of the graph
  // that `exec` was made from, or is of another type; those of the driver.
  [[nodiscard]] CUresult set_work(GraphExec& exec, CUgraphNode node, const Work& work);
  [[nodiscard]] CUresult set_enabled(GraphExec& exec, CUgraphNode node, bool enabled);

  // `lock`: Graphs::lock.
  [[nodiscard]] CUresult launch(GraphExec& exec, Stream& stream, Mutex& lock);

 private:
  CUresult describe(const GraphExec& exec, const Graph& graph, const GraphPlan& plan);
  void retire_resources(const GraphExec& exec, std::shared_ptr<GraphResources> resources);
  CUresult set_body(const GraphExec& exec, const GraphExec::Place& place, const Work& work);
  CUresult set_pageable_copy(GraphExec& exec, const GraphExec::Place& place, GraphHostCall& call,
                             const CopyWork& copy);
  void mark_events(const GraphResources& resources, FencePoint point);
  CUresult open_allocations(const GraphExec& exec);
  CUresult launch_attended(GraphExec& exec, Stream& stream);

  Channel& channel_;
  Fences& fences_;
  GraphMemory& memory_;
  KernelOutput& output_;
  ManagedVariables& managed_;
  const GraphSources sources_;
};

}  // namespace openmps::client
