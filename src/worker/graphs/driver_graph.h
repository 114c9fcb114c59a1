// SPDX-License-Identifier: Apache-2.0
// The driver's graphs of a session, and what is known of each of their nodes. Session's thread
// only.
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

// On which SMs kernels run, wherever their graph is launched.
struct KernelHome {
  KernelHome() = default;
  KernelHome(uint32_t most_sms, ClientGreen* in)
      : sms(most_sms), green(in == nullptr ? nullptr : in->shared_from_this()) {}

  uint32_t sms = 0;  // of the session's part, so many at most; 0: any number
  // Of a green context of the client's instead, which lives as long as it is named, as long as that
  // is within what the session has (DeviceParts::get_instead()); null: of none.
  std::shared_ptr<ClientGreen> green;
};

// One node of the description: what the driver made of it, and what of the session it uses.
struct GraphStep {
  wire::GraphNodeKind kind = wire::GraphNodeKind::kEmpty;
  uint32_t parent = 0;
  CUgraphNode first = nullptr;  // waits for others
  CUgraphNode last = nullptr;   // others wait for it; the same but for a host call
  Uses uses;
  wire::Id function = 0;
  std::weak_ptr<Function> code;  // of a kernel of the graph's device, while the client has it
  uint64_t blocks = 0;           // of a kernel
  uint64_t threads_each = 0;
  KernelHome home;              // of a kernel
  bool lost = false;            // its function has been unloaded
  bool is_cooperative = false;  // a kernel whose blocks have to find room together
  bool has_clusters = false;    // by an attribute
  bool has_priority = false;    // of its own
  bool is_enabled = true;       // in the executable graph
  bool is_continued = false;    // one of those that wait for it is counted in its branch
  std::vector<wire::ValueOperation> values;
  wire::GraphConditional conditional{};
  std::vector<wire::GraphEdge> edges;  // in a graph that keeps its nodes

  // Of a kernel in the cold lane whose code has come to the main one since: its handle there.
  [[nodiscard]] CUfunction in_main(uint32_t device) const;
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
    KernelHome home;  // of a body: its condition's
  };
  struct Condition {
    CUgraphConditionalHandle handle = 0;
    KernelHome home;  // of its node and all that the bodies have
    bool used = false;
  };

  // How its kernels run, wherever it is launched.
  struct Way {
    // By the SMs that a kernel may use at most and the number of the green context that it is of
    // (0: of none).
    using Key = std::pair<uint32_t, uint64_t>;
    struct Place {
      std::weak_ptr<ClientGreen> green;  // as of the key
      SmPart part;            // null: all of the device, or the green context
      bool in_green = false;             // the latter
      bool operator==(const Place& other) const {
        return part == other.part && in_green == other.in_green;
      }
    };
    std::map<Key, Place> places;
    int32_t priority = 0;  // the driver's, of those that have none of their own
    bool operator==(const Way&) const = default;
  };

  DriverGraph(SessionCore& core, uint32_t device, Totals& totals)
      : device_(device),
        core_(core),
        totals_(totals),
        way_(std::make_shared<Way>(Way{{}, core.driver_priority(device, 0)})) {}
  // What an executable graph is updated from has to be of its contexts.
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
  // Kernels of that home are to come, and have their part when this returns. Errors: those of
  // DeviceParts::get(), which may have to wait for a quiet moment.
  Status reach(const KernelHome& home);
  // reach() would not wait.
  [[nodiscard]] bool reaches(const KernelHome& home) const {
    return home.green != nullptr || core_.parts.has(device_, home.sms);
  }
  // How they would run by now, as far as it is a limit, or in the best place for them. Errors as of
  // reach(), but it does not wait.
  Status look_again(bool limits_only, Way* way) const;
  // Some would be on other SMs than now if they kept to what their program is limited to.
  [[nodiscard]] bool is_beyond_limit() const;
  // All blocks of the cooperative kernels among these steps, which are its own, find room together.
  [[nodiscard]] bool have_room(std::span<const GraphStep> steps, const Way& way) const;
  // Count nodes or bodies that the graph keeps. Errors as of Totals::add_nodes().
  Status count(uint32_t nodes);

  // The kernels among these steps, which are its own, run another way, and those that can in the
  // main lane; what was instantiated before stays. What the driver says; after an error some do.
  // `moved`: each that leaves the cold lane.
  Status move(std::span<const GraphStep> steps, Way way, std::vector<size_t>* moved);

  [[nodiscard]] uint32_t device() const { return device_; }
  [[nodiscard]] const Way& way() const { return *way_; }
  // As long as it lives, so does what its kernels run in now, but for green contexts of the client.
  [[nodiscard]] std::shared_ptr<const void> kept_way() const { return way_; }
  // After reach(): whose SMs they use; null: all.
  [[nodiscard]] const GreenContext* part(const KernelHome& home) const {
    return part_in(*way_, home);
  }
  // The context that they are of.
  [[nodiscard]] CUcontext context(const KernelHome& home) const {
    const GreenContext* of = part(home);
    return of != nullptr ? of->context : core_.context({device_});
  }
  [[nodiscard]] CUgraph handle() const { return parts[0].handle; }
  [[nodiscard]] bool keeps() const { return !conditions.empty(); }

  std::vector<Part> parts{{}};  // the graph itself, then the bodies in the order of their nodes
  std::vector<Condition> conditions;
  std::vector<GraphStep> steps;  // if it keeps them: all nodes that it has
  bool broken = false;           // a node was made half
  uint32_t branches = 0;         // the chains that its nodes make up: what it takes of StreamSlots

 private:
  // Where its kernels run by now. Of a green context that is gone there are none.
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
