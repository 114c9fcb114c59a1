// SPDX-License-Identifier: Apache-2.0
// The driver's graphs of a session, and what is known of each of their nodes. Session's thread
// only.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "wire/commands.h"
#include "worker/core/session_core.h"
#include "worker/work/work.h"

namespace openmps::worker {

// One node of the description: what the driver made of it, and what of the session it uses.
struct GraphStep {
  wire::GraphNodeKind kind = wire::GraphNodeKind::kEmpty;
  uint32_t parent = 0;
  CUgraphNode first = nullptr;  // waits for others
  CUgraphNode last = nullptr;   // others wait for it; the same but for a host call
  Uses uses;
  wire::Id function = 0;
  uint64_t blocks = 0;  // of a kernel
  uint64_t threads_each = 0;
  bool lost = false;            // its function has been unloaded
  bool is_cooperative = false;  // a kernel whose blocks have to find room together
  bool has_priority = false;    // of its own
  bool is_enabled = true;       // in the executable graph
  std::vector<wire::ValueOperation> values;
  wire::GraphConditional conditional{};
  std::vector<wire::GraphEdge> edges;  // in a graph that keeps its nodes

  // The same node in another graph of the same shape.
  void name_as(const GraphStep& other) {
    first = other.first;
    last = other.last;
  }
};

// A driver graph, and the bodies of its conditional nodes. One that conditional handles were made
// on serves every description of the client's graph: it keeps what it was first told, later ones
// only change parameters (CUDA: a handle is of one graph and of one node).
class DriverGraph {
 public:
  // What the driver graphs of a session hold together.
  struct Totals {
    // Count nodes or bodies. CUDA_ERROR_OUT_OF_MEMORY beyond wire::kMaxGraphNodes.
    Status add_nodes(uint32_t count);

    uint32_t nodes = 0;
    uint32_t conditions = 0;
    uint64_t bytes = 0;
  };
  struct Part {
    CUgraph handle = nullptr;
    uint32_t depth = 0;
  };
  struct Condition {
    CUgraphConditionalHandle handle = 0;
    bool used = false;
  };

  // How its kernels run, wherever it is launched.
  struct Way {
    DeviceParts::Part part;  // of the device; null: all of it
    int32_t priority = 0;    // the driver's, of those that have none of their own
    bool operator==(const Way&) const = default;
  };

  DriverGraph(SessionCore& core, uint32_t device, DeviceParts::Part part, Totals& totals)
      : device_(device),
        core_(core),
        totals_(totals),
        way_{std::move(part), core.driver_priority(device, 0)} {}
  ~DriverGraph();
  DriverGraph(const DriverGraph&) = delete;
  DriverGraph& operator=(const DriverGraph&) = delete;

  Status create();
  // CUDA_ERROR_OUT_OF_MEMORY beyond wire::kMaxConditions of the session.
  Status add_condition(const wire::ConditionCreate& command, CUgraphConditionalHandle* handle);
  // Count nodes or bodies that the graph keeps. Errors as of Totals::add_nodes().
  Status count(uint32_t nodes);

  // The kernels of the main lane among these steps, which are its own, run another way; what was
  // instantiated before stays. What the driver says; after an error some do.
  Status move(std::span<const GraphStep> steps, Way way);

  [[nodiscard]] uint32_t device() const { return device_; }
  [[nodiscard]] const Way& way() const { return way_; }
  // The context that its kernels are of.
  [[nodiscard]] CUcontext context() const {
    return way_.part != nullptr ? way_.part->context : core_.context({device_});
  }
  [[nodiscard]] CUgraph handle() const { return parts[0].handle; }
  [[nodiscard]] bool keeps() const { return !conditions.empty(); }

  std::vector<Part> parts{{}};  // the graph itself, then the bodies in the order of their nodes
  std::vector<Condition> conditions;
  std::vector<GraphStep> steps;  // if it keeps them: all nodes that it has
  bool broken = false;           // a node was made half

 private:
  const uint32_t device_;
  SessionCore& core_;
  Totals& totals_;
  Way way_;
  uint32_t nodes_ = 0;
};

}  // namespace openmps::worker
