// SPDX-License-Identifier: Apache-2.0
// From the client's description of a graph's nodes to nodes of a driver graph: every id, count and
// address is checked here. Session's thread only.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "wire/commands.h"
#include "worker/array.h"
#include "worker/driver_graph.h"
#include "worker/event.h"
#include "worker/fence.h"
#include "worker/launch.h"
#include "worker/memory.h"
#include "worker/module.h"
#include "worker/session_core.h"

namespace openmps::worker {

class GraphBuilder {
 public:
  GraphBuilder(SessionCore& core, Modules& modules, Events& events, SessionMemory& memory,
               Arrays& arrays, Launches& launches, Fences& fences)
      : core_(core),
        modules_(modules),
        events_(events),
        memory_(memory),
        arrays_(arrays),
        launches_(launches),
        fences_(fences) {}

  // Add a node to `graph` behind earlier `steps`. What breaks the protocol is a violation; an
  // operand that is not the session's is CUDA_ERROR_INVALID_VALUE: the program may have freed it
  // since it made the node. If the graph has that node already, it gets its parameters;
  // CUDA_ERROR_NOT_SUPPORTED: it has another one in that place. `like`: the steps that an
  // executable graph has, whose nodes keep their lanes where they can.
  Status add(DriverGraph& graph, const wire::GraphNode& node, const wire::GraphNode::Tail& tail,
             std::span<const GraphStep> like, std::vector<GraphStep>* steps);
  // Change the node in `exec`. The step keeps its kind.
  Status change(CUgraphExec exec, uint32_t device, wire::GraphNodeKind kind, wire::Variable body,
                GraphStep* step);
  // Everything that a launch of these steps touches is there. Values in memory are looked at when
  // they are launched, not before, as CUDA does.
  enum class Moment { kDescription, kLaunch };
  [[nodiscard]] Status check(std::span<const GraphStep> steps, Moment moment) const;

 private:
  // A body, taken apart: what the driver is told, and what of the session it uses.
  struct Parameters {
    CUDA_KERNEL_NODE_PARAMS kernel{};
    std::vector<CUlaunchAttribute> attributes;
    size_t parameter_bytes = 0;
    void* extra[5] = {};
    CUDA_MEMCPY3D copy{};
    CUDA_MEMSET_NODE_PARAMS fill{};
    wire::HostFunction host{};
    std::vector<CUstreamBatchMemOpParams> operations;
    CUDA_BATCH_MEM_OP_NODE_PARAMS batch{};
  };
  Status read(uint32_t device, wire::GraphNodeKind kind, wire::Variable body, Modules::Reach reach,
              GraphStep* step, Parameters* parameters);
  Status read_kernel(wire::Variable body, Modules::Reach reach, GraphStep* step,
                     Parameters* parameters);
  Status read_copy(wire::Variable body, GraphStep* step, Parameters* parameters);
  Status read_array_copy(wire::Variable body, GraphStep* step, Parameters* parameters);
  Status read_fill(wire::Variable body, GraphStep* step, Parameters* parameters);
  Status read_host_call(wire::Variable body, uint32_t device, Parameters* parameters);
  Status read_event(wire::Variable body, GraphStep* step);
  Status read_values(wire::Variable body, uint32_t device, GraphStep* step, Parameters* parameters);
  static Status read_conditional(wire::Variable body, GraphStep* step);

  using Edges = std::vector<wire::GraphEdge>;
  Status make(DriverGraph& graph, const Parameters& parameters, std::span<const CUgraphNode> before,
              GraphStep* step);
  Status make_conditional(DriverGraph& graph, std::span<const CUgraphNode> before, GraphStep* step);
  Status connect(DriverGraph& graph, const Parameters& parameters, const Edges& edges,
                 std::span<const GraphStep> steps, GraphStep* step);
  Status refresh(const Parameters& parameters, const GraphStep& step);
  Status set_attributes(const Parameters& parameters, CUgraphNode node);
  void open_to_copies(const GraphStep& step, uint32_t device);
  [[nodiscard]] Status check_range(const WorkRange& range) const;
  [[nodiscard]] bool is_host(uint64_t address) const {
    return address >= core_.device_end() && address < core_.window_end();
  }

  SessionCore& core_;
  Modules& modules_;
  Events& events_;
  SessionMemory& memory_;
  Arrays& arrays_;
  Launches& launches_;
  Fences& fences_;
};

}  // namespace openmps::worker
