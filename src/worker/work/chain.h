// SPDX-License-Identifier: Apache-2.0
// A batch of launches goes to the driver as one graph: a chain of kernel nodes, made once and set
// for each use (decision 20). The driver takes half as long for a kernel of a chain as for a
// launch, and a chain occupies no hardware queue. Session's thread only.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "api/driver_table.h"
#include "wire/commands/stream.h"
#include "worker/core/session_core.h"
#include "worker/work/work.h"

namespace openmps::worker {

// Longer parameters are rare, and a chain keeps those of each node.
inline constexpr uint32_t kMostChainedBytes = 256;

// A launch without attributes, in the main lane.
struct ChainedLaunch {
  CUfunction function = nullptr;
  wire::Launch shape{};
  std::array<unsigned char, kMostChainedBytes> bytes;
  std::shared_ptr<const void> code;  // of the function: kept while a node names it

  [[nodiscard]] std::span<const unsigned char> parameters() const {
    return std::span(bytes).first(shape.parameter_bytes);
  }
  [[nodiscard]] bool same_as(const ChainedLaunch& other) const;
};

// An executable graph of kernels, one behind the other.
class Chain {
 public:
  // `priority`: of the kernels, which in a graph do not get the stream's. Nor do they get the
  // stream's SMs, but those of the context that the graph is made in: the placement's partition, or
  // the device. `kept` and `slots` exist as long as the chain.
  Chain(SessionCore& core, const Placement& place, int32_t priority,
        std::shared_ptr<const void> kept, StreamSlot slots)
      : core_(core),
        driver_(core.driver),
        device_(place.device),
        priority_(priority),
        part_(place.partition != nullptr ? place.partition->context : nullptr),
        kept_(std::move(kept)),
        slots_(std::move(slots)) {}
  ~Chain();
  Chain(const Chain&) = delete;
  Chain& operator=(const Chain&) = delete;

  // The context of the functions is current. Returns the driver's result; after an error the chain
  // can't be used.
  CUresult make(std::span<const ChainedLaunch> launches);
  // As many launches as the chain was made with. Launches under way are not changed.
  CUresult set(std::span<const ChainedLaunch> launches);
  CUresult launch(CUstream stream) { return driver_.cuGraphLaunch(exec_, stream); }

 private:
  SessionCore& core_;
  const DriverTable& driver_;
  const uint32_t device_;
  const int32_t priority_;
  CUcontext const part_;
  const std::shared_ptr<const void> kept_;
  const StreamSlot slots_;
  CUgraph graph_ = nullptr;
  CUgraphExec exec_ = nullptr;
  std::vector<CUgraphNode> nodes_;
  std::vector<ChainedLaunch> set_;  // what each node does
};

// The chains of a stream: two of each length, so that one can be set while the other runs.
class Chains {
 public:
  // The numbers of launches for which there are chains.
  static constexpr std::array<size_t, 3> kLengths{32, 16, 8};

  // `priority`: the driver's, of the stream. `kept`: the SMs that the stream runs on.
  Chains(SessionCore& core, const Placement& place, int32_t priority,
         std::shared_ptr<const void> kept)
      : core_(core), place_(place), priority_(priority), kept_(std::move(kept)) {}
  // Submit the first launches, as many as a chain has. Returns their number; 0: they are too few
  // for a chain, or the driver refuses it or would wait: nothing has been submitted.
  size_t launch(std::span<const ChainedLaunch> launches, CUstream stream, CUresult* result);

 private:
  struct Pair {
    std::array<std::unique_ptr<Chain>, 2> chains;
    uint32_t next = 0;
  };
  SessionCore& core_;
  const Placement place_;
  const int32_t priority_;
  const std::shared_ptr<const void> kept_;
  std::array<Pair, kLengths.size()> pairs_;
};

}  // namespace openmps::worker
