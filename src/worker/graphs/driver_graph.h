// SPDX-License-Identifier: Apache-2.0
// The driver graphs of a session, and what is known of each of their nodes. Session's thread only.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "wire/commands/graph.h"
#include "wire/commands/stream.h"
#include "worker/core/session_core.h"
#include "worker/streams/green.h"
#include "worker/work/work.h"

namespace openmps::worker {

// On which SMs the kernels of a node run, in whatever stream the graph is launched.
struct KernelHome {
  KernelHome() = default;
  KernelHome(uint32_t most_sms, ClientGreen* in)
      : sms(most_sms), green(in == nullptr ? nullptr : in->shared_from_this()) {}

  uint32_t sms = 0;  // of the session's SMs, at most so many; 0: any number
  // The client's green context that the kernels run in, as long as the session may use all SMs of
  // it (DeviceParts::get_instead()). Kept alive. Null: none.
  std::shared_ptr<ClientGreen> green;
};

// One node of the description: the driver's nodes for it, and what of the session it uses.
struct GraphStep {
  wire::GraphNodeKind kind = wire::GraphNodeKind::kEmpty;
  uint32_t parent = 0;
  CUgraphNode first = nullptr;  // that waits for others
  CUgraphNode last = nullptr;   // that others wait for; `first`, but for a host call
  Uses uses;
  wire::Id function = 0;
  std::weak_ptr<Function> code;  // of a kernel of the graph's device, while the client holds it
  uint64_t blocks = 0;           // of a kernel
  uint64_t threads_each = 0;
  KernelHome home;              // of a kernel
  bool lost = false;            // its function has been unloaded
  bool is_cooperative = false;  // a kernel whose blocks have to run at once
  bool has_clusters = false;    // set by an attribute
  bool has_priority = false;    // set for the node
  bool is_enabled = true;       // in the executable graph
  bool is_continued = false;    // a node that waits for this one counts to this one's branch
  std::vector<wire::ValueOperation> values;
  std::vector<CUdeviceptr> constants;  // that it copies or fills, where kernels read them
  wire::GraphConditional conditional{};
  std::vector<wire::GraphEdge> edges;  // if DriverGraph::keeps()

  // The main context's handle of a kernel in the cold context whose code has been moved; else null.
  [[nodiscard]] CUfunction in_main(uint32_t device) const;
  // Name the driver's nodes of `other`, which is this node in another graph of equal shape.
  void name_as(const GraphStep& other) {
    first = other.first;
    last = other.last;
  }
};

// A driver graph, and the bodies of its conditional nodes. A graph with conditional handles serves
// every description of the client's graph, since in CUDA a handle belongs to one graph and one
// node: such a graph keeps its nodes, and later descriptions only change parameters.
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
    KernelHome home;  // of a body: the condition's
  };
  struct Condition {
    CUgraphConditionalHandle handle = 0;
    KernelHome home;  // of the node and of all nodes in the bodies
    bool used = false;
  };

  // How the kernels run, in whatever stream the graph is launched.
  struct Way {
    // The SMs that a kernel may use at most, and the number of the client's green context (0:
    // none).
    using Key = std::pair<uint32_t, uint64_t>;
    struct Place {
      std::weak_ptr<ClientGreen> green;  // that the key names
      SmPart part;                       // null: the whole device, or the green context
      bool in_green = false;             // the kernels run in the green context
      bool operator==(const Place& other) const {
        return part == other.part && in_green == other.in_green;
      }
    };
    std::map<Key, Place> places;
    int32_t priority = 0;  // the driver's, of kernels that have none set
    bool operator==(const Way&) const = default;
  };

  DriverGraph(SessionCore& core, uint32_t device, Totals& totals)
      : device_(device),
        core_(core),
        totals_(totals),
        way_(std::make_shared<Way>(Way{{}, core.driver_priority(device, 0)})) {}
  // A graph for the update of an executable graph: it has to be of the contexts of that one.
  DriverGraph(SessionCore& core, const DriverGraph& like, Totals& totals)
      : device_(like.device_),
        core_(core),
        totals_(totals),
        way_(std::make_shared<Way>(*like.way_)) {}
  ~DriverGraph();
  DriverGraph(const DriverGraph&) = delete;
  DriverGraph& operator=(const DriverGraph&) = delete;

  Status create();
  // CUDA_ERROR_OUT_OF_MEMORY beyond wire::kMaxConditions of the session; otherwise as of reach().
  Status add_condition(const wire::ConditionCreate& command, KernelHome home,
                       CUgraphConditionalHandle* handle);
  // Get the SMs for kernels of that home before they are added. Errors: those of
  // DeviceParts::get(), which may wait for quiescence.
  Status reach(const KernelHome& home);
  // reach() would not wait.
  [[nodiscard]] bool reaches(const KernelHome& home) const {
    return home.green != nullptr || core_.parts.has(device_, home.sms);
  }
  // How the kernels would run by now: within the session's limits, or (`limits_only` not set) in
  // the best place for them. Errors: those of reach(). Does not wait.
  Status look_again(bool limits_only, Way* way) const;
  // Some kernels run on SMs that the session is not limited to.
  [[nodiscard]] bool is_beyond_limit() const;
  // All blocks of each cooperative kernel among these steps of the graph can run at once.
  [[nodiscard]] bool have_room(std::span<const GraphStep> steps, const Way& way) const;
  // Count nodes or bodies that the graph keeps. Errors: those of Totals::add_nodes().
  Status count(uint32_t nodes);

  // Change how the kernels among these steps of the graph run, and move kernels to the main context
  // whose code is there. Executable graphs that exist do not change. Errors: the driver's, after
  // which some kernels have changed. `moved`: the steps that have left the cold context.
  Status move(std::span<const GraphStep> steps, Way way, std::vector<size_t>* moved);

  [[nodiscard]] uint32_t device() const { return device_; }
  [[nodiscard]] const Way& way() const { return *way_; }
  // Keeps alive the SM sets that the kernels run in now, but not green contexts of the client.
  [[nodiscard]] std::shared_ptr<const void> kept_way() const { return way_; }
  // After reach(): the SMs of kernels of that home; null: all.
  [[nodiscard]] const GreenContext* part(const KernelHome& home) const {
    return part_in(*way_, home);
  }
  // The context of kernels of that home.
  [[nodiscard]] CUcontext context(const KernelHome& home) const {
    const GreenContext* of = part(home);
    return of != nullptr ? of->context : core_.context({device_});
  }
  [[nodiscard]] CUgraph handle() const { return parts[0].handle; }
  [[nodiscard]] bool keeps() const { return !conditions.empty(); }

  std::vector<Part> parts{{}};  // the graph itself, then the bodies in the order of their nodes
  std::vector<Condition> conditions;
  std::vector<GraphStep> steps;  // all nodes, if keeps()
  bool broken = false;           // a node was only partly made
  uint32_t branches = 0;         // chains of nodes; each takes a stream slot

 private:
  // Where kernels of that key run by now. A green context that is gone has no kernels.
  Status find(const Way::Key& key, bool limits_only, Way::Place* place) const;
  static Way::Key key_of(const KernelHome& home) {
    return {home.sms, home.green != nullptr ? home.green->number : 0};
  }

  static const GreenContext* part_in(const Way& way, const KernelHome& home) {
    const auto found = way.places.find(key_of(home));
    if (found == way.places.end()) return nullptr;
    const Way::Place& place = found->second;
    if (place.part != nullptr) return place.part.get();
    return place.in_green ? home.green.get() : nullptr;
  }

  const uint32_t device_;
  SessionCore& core_;
  Totals& totals_;
  std::shared_ptr<Way> way_;
  uint32_t nodes_ = 0;
};

}  // namespace openmps::worker
