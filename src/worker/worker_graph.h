// SPDX-License-Identifier: Apache-2.0
// Capture and graphs of a session. Capture is always relaxed here: the mode that the program asked
// for is enforced in its own process, so it can't disturb another session. Session's thread only.
#pragma once

#include <cstdint>

#include "worker/object_table.h"
#include "worker/reply_writer.h"
#include "worker/session_core.h"
#include "worker/worker_stream.h"

namespace openmps::worker {

struct Graph {
  CUgraph handle = nullptr;
  uint32_t device = 0;
};
struct GraphExec {
  CUgraphExec handle = nullptr;
  uint32_t device = 0;
};
struct GraphNode {
  CUgraphNode handle = nullptr;
  wire::Id graph = 0;  // gone with it
};

class Graphs {
 public:
  Graphs(SessionCore& core, Streams& streams) : core_(core), streams_(streams) {}

  Status begin_capture(const wire::CaptureBegin& command);
  // Replies CaptureEndReply; no graph if the capture was broken.
  Status end_capture(const wire::CaptureEnd& command, ReplyWriter& reply);
  Status instantiate(const wire::GraphInstantiate& command);
  Status launch(const wire::GraphLaunch& command);
  Status upload(const wire::GraphLaunch& command);
  Status destroy(wire::Id graph);
  Status destroy_exec(wire::Id exec);

  // For generated commands (worker_handles): look-up by id, nullptr if there is none.
  Graph* find(wire::Id id) const { return graphs_.find(id); }
  GraphExec* find_exec(wire::Id id) const { return execs_.find(id); }
  GraphNode* find_node(wire::Id id) const { return nodes_.find(id); }
  Status bind(wire::Id id, CUgraph handle, uint32_t device);
  Status bind_node(wire::Id id, CUgraphNode handle, wire::Id graph);
  void forget_node(wire::Id id) { nodes_.take(id).reset(); }

  void release_all();

 private:
  void forget_nodes_of(wire::Id graph);

  SessionCore& core_;
  Streams& streams_;
  ObjectTable<Graph> graphs_{"graph"};
  ObjectTable<GraphExec> execs_{"executable graph"};
  ObjectTable<GraphNode> nodes_{"graph node"};
};

}  // namespace openmps::worker
