// SPDX-License-Identifier: Apache-2.0
// The executable graphs of a session. Graphs themselves, and capture, are the client's: it
// describes what is to be instantiated. Session's thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "worker/graph_builder.h"
#include "worker/object_table.h"
#include "worker/reply_writer.h"
#include "worker/session_core.h"
#include "worker/worker_stream.h"

namespace openmps::worker {

// A driver graph and what its nodes use as they were described. The graph lives as long as what was
// instantiated from it: changes of nodes name its nodes.
struct DescribedGraph {
  std::shared_ptr<DriverGraph> graph;  // null: nothing is described
  std::vector<GraphStep> steps;
  Status error;  // of its first node that failed; reported by what uses the description
  uint32_t failed_node = wire::kNoNode;
  uint64_t bytes = 0;  // that its nodes were described with
};

struct GraphExec {
  CUgraphExec handle = nullptr;               // null: only described so far
  DescribedGraph graph;                       // that it was made from
  std::unique_ptr<DescribedGraph> described;  // under way
  bool is_cold = false;                       // some node names the cold lane's context
  std::vector<uint32_t> waits;                // the steps that may wait for the client
  uint64_t checked = ~0ull;  // what its nodes use was there at this state of the session
};

class Graphs {
 public:
  Graphs(SessionCore& core, Streams& streams, SessionMemory& memory, GraphBuilder& builder,
         OpenWaits& waits)
      : core_(core), streams_(streams), memory_(memory), builder_(builder), waits_(waits) {}

  // Replies ConditionReply.
  Status create_condition(const wire::ConditionCreate& command, ReplyWriter& reply);
  Status forget(wire::Id graph);
  Status begin(const wire::GraphBegin& command);
  Status node(const wire::GraphNode& command, wire::Variable variable);
  // Replies GraphInstantiateReply.
  Status instantiate(const wire::GraphInstantiate& command, ReplyWriter& reply);
  // Replies GraphUpdateReply.
  Status update(const wire::GraphUpdate& command, ReplyWriter& reply);
  Status set_node(const wire::GraphSetNode& command, wire::Variable body);
  Status enable_node(const wire::GraphEnableNode& command);
  Status launch(const wire::GraphLaunch& command);
  Status upload(const wire::GraphLaunch& command);
  Status destroy(wire::Id exec);

  // These functions are about to be unloaded: graphs with them can't be launched any more.
  void lose_functions(std::span<const wire::Id> functions);

  void release_all();

 private:
  Status find(wire::Id id, GraphExec** exec) const;
  Status find_step(wire::Id id, uint32_t node, GraphExec** exec, GraphStep** step) const;
  void drop(DescribedGraph& graph);
  void release(GraphExec& exec);
  static Status check_copies(std::span<const GraphStep> old, std::span<const GraphStep> fresh,
                             wire::GraphUpdateReply* answer);
  static Status check_lanes(std::span<const GraphStep> old, std::span<const GraphStep> fresh,
                            wire::GraphUpdateReply* answer);
  static Status check_complete(const DescribedGraph& described);
  Status check_uses(GraphExec& exec);

  SessionCore& core_;
  Streams& streams_;
  SessionMemory& memory_;
  GraphBuilder& builder_;
  OpenWaits& waits_;
  ObjectTable<GraphExec> execs_{"executable graph", wire::kMaxGraphExecs};
  ObjectTable<std::shared_ptr<DriverGraph>> kept_{"graph with conditional handles"};
  DriverGraph::Totals totals_;
};

}  // namespace openmps::worker
