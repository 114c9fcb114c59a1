// SPDX-License-Identifier: Apache-2.0
// The executable graphs of a session. Graphs and capture are the client's, which describes the
// graph that is to be instantiated. Session's thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "worker/code/module.h"
#include "worker/core/object_table.h"
#include "worker/core/reply_writer.h"
#include "worker/core/session_core.h"
#include "worker/graphs/graph_builder.h"
#include "worker/work/submitter.h"

namespace openmps::worker {

// A driver graph and what its nodes use, as the client described them. The driver graph lives as
// long as the executable graph that was instantiated from it: changes of nodes name its nodes.
struct DescribedGraph {
  DescribedGraph(std::shared_ptr<DriverGraph> of, DriverGraph::Totals& totals)
      : totals(totals), graph(std::move(of)) {}
  ~DescribedGraph();
  DescribedGraph(const DescribedGraph&) = delete;
  DescribedGraph& operator=(const DescribedGraph&) = delete;

  DriverGraph::Totals& totals;
  std::vector<GraphStep> steps;
  Status error;  // of the first node that failed; reported by the command that uses this
  uint32_t failed_node = wire::kNoNode;
  uint64_t bytes = 0;                        // of the commands that described the nodes
  const std::shared_ptr<DriverGraph> graph;  // destroyed before what its nodes use
};

// Held launches keep the executable graph alive.
struct GraphExec : LaunchableGraph, std::enable_shared_from_this<GraphExec> {
  explicit GraphExec(SessionCore& session) : core(session) {}
  ~GraphExec() override;
  // The steps have changed: read from them what launches need to know.
  void note_steps();
  // The driver's handle. The graph is instantiated anew first if the session's SMs have changed, or
  // if code has come from the cold context to the main one, where that is possible.
  CUgraphExec current() override;
  Status launch(CUstream stream) override;
  // Launches of one executable graph run one after the other, in whatever streams (CUDA). The
  // driver orders the launches of one handle. So before the handle is replaced an event marks the
  // end of the last launch, and the next launch waits for that event.
  void follow_changes();
  // Say once in the log that the graph has conditional nodes: their handles belong to the context
  // that they were made in, so the graph can't follow the session to other SMs.
  void tell_that_it_stays();
  // Some node can leave the cold context. Looks only once every kCodeLookNs.
  bool may_leave_cold();
  // The description from which the driver can instantiate the graph as it is now; null: none.
  [[nodiscard]] DescribedGraph* source() const {
    if (graph->graph->keeps()) return nullptr;
    return updated != nullptr ? updated.get() : graph.get();
  }

  SessionCore& core;
  CUgraphExec handle = nullptr;             // null: not instantiated yet
  std::unique_ptr<DescribedGraph> graph;    // from which the graph was instantiated
  StreamSlot slots;                         // for the branches
  std::unique_ptr<DescribedGraph> updated;  // from which it was updated last
  uint64_t flags = 0;                       // of the instantiation
  uint64_t seen_changes = 0;                // of DeviceParts
  bool has_told_that_it_stays = false;
  bool has_run = false;                       // the driver has launched it
  bool marks_end = false;                     // the next launch records `ended`
  CUevent ended = nullptr;                    // the end of the last launch; null: no event marks it
  std::unique_ptr<DescribedGraph> described;  // received, not used yet
  bool is_cold = false;                       // some node is in the cold context
  uint64_t next_look_ns = 0;                  // for may_leave_cold(); ~0: never
  bool may_wait = false;                      // some node waits for the client
  bool names_events = false;                  // some node records an event or waits for one
  bool names_constants = false;               // some node copies or fills a constant
  bool is_launched = false;                   // and may still run
  std::vector<wire::StreamValue> waits;       // the values that nodes wait for
  uint32_t duration = 0;     // the index among the session's Durations; 0: none yet
  Cost cost;                 // of its kernels: their number and SMs
  GraphCounts counts{};      // of one launch
  uint64_t checked = ~0ull;  // what the nodes use existed at this state of the session
};

class Graphs {
 public:
  Graphs(SessionCore& core, SessionMemory& memory, Modules& modules, GraphBuilder& builder,
         Submitter& submitter)
      : core_(core), memory_(memory), modules_(modules), builder_(builder), submitter_(submitter) {}

  // Replies ConditionReply.
  Status handle(const wire::ConditionCreate& command, ClientGreen* green,
                ReplyTo<wire::ConditionCreate> reply);
  Status handle(const wire::GraphForget& command);
  Status handle(const wire::GraphBegin& command, const std::shared_ptr<DriverGraph>* kept);
  Status handle(const wire::GraphNode& command, GraphExec& exec, ClientGreen* green,
                const wire::GraphNode::Tail& tail);
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
  Status make_launch(GraphExec& exec, Work* work);
  Status handle(const wire::GraphUpload& command, GraphExec& exec, Stream& stream);
  Status handle(const wire::GraphExecDestroy& command);

  // Graphs that use functions of the module can't be launched any more.
  Status handle(const wire::ModuleUnload& command);

  [[nodiscard]] const auto& execs() const { return execs_; }
  [[nodiscard]] const auto& kept() const { return kept_; }
  void release_all();

 private:
  static Status check_made(const GraphExec& exec);
  static Status find_step(GraphExec& exec, uint32_t node, GraphStep** step);
  static Status check_change(std::span<const GraphStep> old, std::span<const GraphStep> fresh,
                             wire::GraphUpdate::Reply* answer);
  static Status check_complete(const DescribedGraph& described);
  Status leave_cold_lane(GraphExec& exec);

  SessionCore& core_;
  SessionMemory& memory_;
  Modules& modules_;
  GraphBuilder& builder_;
  Submitter& submitter_;
  DriverGraph::Totals totals_;
  ObjectTable<GraphExec, std::shared_ptr<GraphExec>> execs_{"executable graph",
                                                            wire::kMaxGraphExecs};
  ObjectTable<std::shared_ptr<DriverGraph>> kept_{"graph with conditional handles"};
};

}  // namespace openmps::worker
