// SPDX-License-Identifier: Apache-2.0
// The executable graphs of a session. Graphs themselves, and capture, are the client's: it
// describes what is to be instantiated. Session's thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "worker/graph_builder.h"
#include "worker/module.h"
#include "worker/object_table.h"
#include "worker/prints.h"
#include "worker/reply_writer.h"
#include "worker/session_core.h"
#include "worker/stream.h"

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
  Graphs(SessionCore& core, Streams& streams, SessionMemory& memory, Modules& modules,
         Prints& prints, GraphBuilder& builder, OpenWaits& waits)
      : core_(core),
        streams_(streams),
        memory_(memory),
        modules_(modules),
        prints_(prints),
        builder_(builder),
        waits_(waits) {}

  // Replies ConditionReply.
  Status handle(const wire::ConditionCreate& command, ReplyTo<wire::ConditionCreate> reply);
  Status handle(const wire::GraphForget& command);
  Status handle(const wire::GraphBegin& command, const std::shared_ptr<DriverGraph>* kept);
  Status handle(const wire::GraphNode& command, GraphExec& exec, const wire::GraphNode::Tail& tail);
  // Replies GraphInstantiateReply.
  Status handle(const wire::GraphInstantiate& command, GraphExec& exec,
                ReplyTo<wire::GraphInstantiate> reply);
  // Replies GraphUpdateReply.
  Status handle(const wire::GraphUpdate& command, GraphExec& exec,
                ReplyTo<wire::GraphUpdate> reply);
  Status handle(const wire::GraphSetNode& command, GraphExec& exec,
                const wire::GraphSetNode::Tail& tail);
  Status handle(const wire::GraphEnableNode& command, GraphExec& exec);
  Status handle(const wire::GraphLaunch& command, GraphExec& exec, Stream& stream);
  Status handle(const wire::GraphUpload& command, GraphExec& exec, Stream& stream);
  Status handle(const wire::GraphExecDestroy& command);

  // Graphs with its functions can't be launched any more.
  Status handle(const wire::ModuleUnload& command);

  [[nodiscard]] const auto& execs() const { return execs_; }
  [[nodiscard]] const auto& kept() const { return kept_; }
  void release_all();

 private:
  static Status check_made(const GraphExec& exec);
  static Status find_step(GraphExec& exec, uint32_t node, GraphStep** step);
  void drop(DescribedGraph& graph);
  void release(GraphExec& exec);
  static Status check_copies(std::span<const GraphStep> old, std::span<const GraphStep> fresh,
                             wire::GraphUpdate::Reply* answer);
  static Status check_lanes(std::span<const GraphStep> old, std::span<const GraphStep> fresh,
                            wire::GraphUpdate::Reply* answer);
  static Status check_complete(const DescribedGraph& described);
  Status check_uses(GraphExec& exec);
  Status launch(GraphExec& exec, Stream& stream);
  void lose_functions(std::span<const wire::Id> functions);

  SessionCore& core_;
  Streams& streams_;
  SessionMemory& memory_;
  Modules& modules_;
  Prints& prints_;
  GraphBuilder& builder_;
  OpenWaits& waits_;
  ObjectTable<GraphExec> execs_{"executable graph", wire::kMaxGraphExecs};
  ObjectTable<std::shared_ptr<DriverGraph>> kept_{"graph with conditional handles"};
  DriverGraph::Totals totals_;
};

}  // namespace openmps::worker
