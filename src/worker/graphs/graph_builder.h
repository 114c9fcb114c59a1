// SPDX-License-Identifier: Apache-2.0
// Makes nodes of a driver graph from the client's description, and checks every id, count and
// address of it. Session's thread only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "wire/codec.h"
#include "worker/code/module.h"
#include "worker/core/session_core.h"
#include "worker/graphs/driver_graph.h"
#include "worker/graphs/graph_node.h"
#include "worker/memory/memory.h"
#include "worker/streams/event.h"
#include "worker/streams/fence.h"
#include "worker/work/submitter.h"
#include "worker/work/work_maker.h"

namespace openmps::worker {

class GraphBuilder {
 public:
  GraphBuilder(SessionCore& core, SessionMemory& memory, Modules& modules, Events& events,
               Fences& fences, WorkMaker& maker, Submitter& submitter)
      : core_(core),
        memory_(memory),
        modules_(modules),
        events_(events),
        fences_(fences),
        maker_(maker),
        submitter_(submitter) {}

  // Add a node to `graph` behind earlier `steps`. What breaks the protocol is a violation; an
  // operand that is not the session's is CUDA_ERROR_INVALID_VALUE: the program may have freed it
  // since it made the node. A node that the graph has already gets the new parameters;
  // CUDA_ERROR_NOT_SUPPORTED: the graph has another node in that place. `like`: the steps of the
  // executable graph that is to be updated; its nodes keep their contexts where they can.
  Status add(DriverGraph& graph, const wire::GraphNode& node, KernelHome home,
             const wire::GraphNode::Tail& tail, std::span<const GraphStep> like,
             std::vector<GraphStep>* steps);
  // Change the node in `exec`, which was made from `graph`, and in the graph from which `exec` can
  // be made anew, as node `kept` (null: in none). The step keeps its kind.
  Status change(CUgraphExec exec, DriverGraph& graph, const CUgraphNode* kept,
                wire::GraphNodeKind kind, wire::Variable body, GraphStep* step);
  // Everything that a launch of these steps touches exists. Addresses of values are checked at the
  // launch, not before, as CUDA does.
  enum class Moment { kDescription, kLaunch };
  [[nodiscard]] Status check(std::span<const GraphStep> steps, Moment moment) const;

 private:
  // Read the body of a node: what the node does, and what of the session it uses.
  Status read(DriverGraph& graph, wire::GraphNodeKind kind, wire::Variable body,
              Modules::Reach reach, GraphStep* step, Work* work);
  Status read_kernel(DriverGraph& graph, wire::Variable body, Modules::Reach reach, GraphStep* step,
                     Work* work);
  template <typename What, typename Command>
  Status read_command(wire::Variable body, Work* work);
  Status read_event(wire::GraphNodeKind kind, wire::Variable body, Work* work);
  Status read_values(wire::Variable body, GraphStep* step, Work* work);
  // Has a copy or a fill name constants themselves instead of their copies (constants.h): nodes
  // behind it read these.
  void name_constants(GraphStep* step, Work* work) const;
  static Status read_conditional(wire::Variable body, GraphStep* step);
  // The body at an aligned address, valid until the next call.
  wire::Record record_of(wire::Variable body);

  using Edges = std::vector<wire::GraphEdge>;
  Status put(NodePlace place, const DriverGraph& graph, const GraphStep& step, const Work& work);
  Status make(DriverGraph& graph, const Work& work, std::span<const CUgraphNode> before,
              GraphStep* step);
  Status make_conditional(DriverGraph& graph, std::span<const CUgraphNode> before, GraphStep* step);
  Status connect(DriverGraph& graph, const Work& work, const Edges& edges,
                 std::span<GraphStep> steps, GraphStep* step);
  [[nodiscard]] Status check_range(const WorkRange& range) const;

  SessionCore& core_;
  SessionMemory& memory_;
  Modules& modules_;
  Events& events_;
  Fences& fences_;
  WorkMaker& maker_;
  Submitter& submitter_;
  std::vector<uint64_t> body_;
};

}  // namespace openmps::worker
