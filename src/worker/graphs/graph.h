// SPDX-License-Identifier: Apache-2.0
// The executable graphs of a session. Graphs themselves, and capture, are the client's: it
// describes what is to be instantiated. Session's thread only.
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

// A driver graph and what its nodes use as they were described. The graph lives as long as what was
// instantiated from it: changes of nodes name its nodes.
struct DescribedGraph {
  DescribedGraph(std::shared_ptr<DriverGraph> of, DriverGraph::Totals& totals)
      : totals(totals), graph(std::move(of)) {}
  ~DescribedGraph();
  DescribedGraph(const DescribedGraph&) = delete;
  DescribedGraph& operator=(const DescribedGraph&) = delete;

  DriverGraph::Totals& totals;
  std::vector<GraphStep> steps;
  Status error;  // of its first node that failed; reported by what uses the description
  uint32_t failed_node = wire::kNoNode;
  uint64_t bytes = 0;                        // that its nodes were described with
  const std::shared_ptr<DriverGraph> graph;  // goes before what its nodes use
};

// Launches of it that are held back keep it.
struct GraphExec : LaunchableGraph, std::enable_shared_from_this<GraphExec> {
  GraphExec(SessionCore& session, Retirement& behind) : core(session), retirement(behind) {}
  ~GraphExec() override;
  // What is known of its nodes has changed.
  void note_steps();
  void count_steps();
  // Made anew where the session's part of the device is another one by now, or code has left the
  // cold lane; what can't be stays where it is.
  CUgraphExec current() override;
  Status launch(CUstream stream) override;
  // Launches of one executable graph come one behind the other, in whatever streams (CUDA). The
  // driver sees to that as long as it is one of the driver's, so before it becomes another the end
  // of its last launch is marked, which the next one waits for.
  [[nodiscard]] bool may_run_unmarked();
  void follow_changes();
  // A conditional handle is of the context that it was made in, so it can't follow.
  void tell_that_it_stays();
  // It was made for other SMs than those that its program is limited to, and could not follow.
  [[nodiscard]] bool is_beyond_limit() const;
  // Some node can leave the cold lane. Looks at times only.
  bool may_leave_cold();
  // That the driver can make it of as it is now, null: none.
  [[nodiscard]] DescribedGraph* source() const {
    if (graph->graph->keeps()) return nullptr;
    return updated != nullptr ? updated.get() : graph.get();
  }

  SessionCore& core;
  Retirement& retirement;
  CUgraphExec handle = nullptr;             // null: only described so far
  std::unique_ptr<DescribedGraph> graph;    // that it was made from
  StreamSlot slots;                         // for its branches
  std::unique_ptr<DescribedGraph> updated;  // that it has been updated from since
  uint64_t flags = 0;                       // it was instantiated with
  uint64_t seen_changes = 0;                // of DeviceParts
  bool has_told_that_it_stays = false;
  bool has_run = false;                       // the driver has launched it
  bool marks_end = false;                     // of its next launch
  CUevent ended = nullptr;                    // the end of its last launch; null: not marked
  std::unique_ptr<DescribedGraph> described;  // under way
  bool is_cold = false;                       // some node names the cold lane's context
  uint64_t next_look_ns = 0;                  // for what has left it; ~0: it stays
  bool may_wait = false;                      // some node waits for the client
  bool names_events = false;                  // some node records an event or waits for one
  bool is_launched = false;                   // perhaps still under way
  std::vector<wire::StreamValue> waits;       // the values that nodes wait for
  uint32_t duration = 0;     // its number among the session's Durations; 0: none yet
  uint32_t sms = 0;          // that its kernels keep busy, on average over the kernels
  uint32_t room = 0;         // that have room for all blocks of each; 0: nobody asks
  bool loses = false;        // one of them does so, as Cost says
  GraphCounts counts{};      // of a launch
  uint64_t checked = ~0ull;  // what its nodes use was there at this state of the session
};

class Graphs {
 public:
  Graphs(SessionCore& core, SessionMemory& memory, Modules& modules, GraphBuilder& builder,
         Submitter& submitter, Retirement& retirement)
      : core_(core),
        memory_(memory),
        modules_(modules),
        builder_(builder),
        submitter_(submitter),
        retirement_(retirement) {}

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

  // Graphs with its functions can't be launched any more.
  Status handle(const wire::ModuleUnload& command);

  [[nodiscard]] const auto& execs() const { return execs_; }
  [[nodiscard]] const auto& kept() const { return kept_; }
  void release_all();

 private:
  static Status check_made(const GraphExec& exec);
  static Status find_step(GraphExec& exec, uint32_t node, GraphStep** step);
  static Status check_copies(std::span<const GraphStep> old, std::span<const GraphStep> fresh,
                             wire::GraphUpdate::Reply* answer);
  static Status check_lanes(std::span<const GraphStep> old, std::span<const GraphStep> fresh,
                            wire::GraphUpdate::Reply* answer);
  static Status check_complete(const DescribedGraph& described);
  Status check_uses(GraphExec& exec);
  Status leave_cold_lane(GraphExec& exec);
  void lose_functions(std::span<const wire::Id> functions);

  SessionCore& core_;
  SessionMemory& memory_;
  Modules& modules_;
  GraphBuilder& builder_;
  Submitter& submitter_;
  Retirement& retirement_;
  DriverGraph::Totals totals_;
  ObjectTable<GraphExec, std::shared_ptr<GraphExec>> execs_{"executable graph",
                                                            wire::kMaxGraphExecs};
  ObjectTable<std::shared_ptr<DriverGraph>> kept_{"graph with conditional handles"};
};

}  // namespace openmps::worker
