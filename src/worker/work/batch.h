// SPDX-License-Identifier: Apache-2.0
// Launches of one stream that are to be submitted together, because more of them are at hand. They
// are submitted before any other work, and go to the driver as one graph: a chain of kernel nodes,
// made once and set for each use (decision 20). The driver takes half as long for a kernel of a
// chain as for a launch, and a chain occupies no hardware queue. Session's thread only.
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
#include "worker/streams/stream.h"
#include "worker/work/work.h"

namespace openmps::worker {

// Longer parameters are rare, and a chain keeps those of each node.
inline constexpr uint32_t kMostChainedBytes = 256;

// A launch without attributes, in the main lane.
struct BatchedLaunch {
  CUfunction function = nullptr;
  const Function* of = nullptr;
  wire::Launch shape{};
  std::array<unsigned char, kMostChainedBytes> bytes;
  std::shared_ptr<const void> code;  // of the function: kept while a node names it
  Cost cost;

  [[nodiscard]] std::span<const unsigned char> parameters() const {
    return std::span(bytes).first(shape.parameter_bytes);
  }
  [[nodiscard]] bool same_as(const BatchedLaunch& other) const;
};

// The chains of a stream: two of each length, so that one can be set while the other runs.
class Chains {
 public:
  // The numbers of launches for which there are chains.
  static constexpr std::array<size_t, 3> kLengths{32, 16, 8};

  // `priority`: of the kernels, which in a graph do not get the stream's. Nor do they get the
  // stream's SMs, but those of the context that the graph is made in: the placement's partition, or
  // the device. `kept`: these SMs, which exist as long as a chain.
  Chains(SessionCore& core, const Placement& place, int32_t priority,
         std::shared_ptr<const void> kept)
      : core_(core), place_(place), priority_(priority), kept_(std::move(kept)) {}
  // Submit the first launches, as many as a chain has. Returns their number; 0: they are too few
  // for a chain, or the driver refuses it or would wait: nothing has been submitted.
  size_t launch(std::span<const BatchedLaunch> launches, CUstream stream, CUresult* result);

 private:
  // An executable graph of kernels, one behind the other. After an error it can't be used.
  class Chain {
   public:
    Chain(const Chains& of, StreamSlot slots) : of_(of), slots_(std::move(slots)) {}
    ~Chain();
    Chain(const Chain&) = delete;
    Chain& operator=(const Chain&) = delete;

    // The context of the functions is current. Returns the driver's result.
    CUresult make(std::span<const BatchedLaunch> launches);
    // As many launches as the chain was made with. Launches under way are not changed.
    CUresult set(std::span<const BatchedLaunch> launches);
    [[nodiscard]] CUgraphExec exec() const { return exec_; }

   private:
    const Chains& of_;
    const StreamSlot slots_;
    CUgraph graph_ = nullptr;
    CUgraphExec exec_ = nullptr;
    std::vector<CUgraphNode> nodes_;
    std::vector<BatchedLaunch> set_;  // what each node does
  };
  struct Pair {
    std::array<std::unique_ptr<Chain>, 2> chains;
    uint32_t next = 0;
  };
  // The context in which graphs are made; null: the current one.
  [[nodiscard]] CUcontext context() const {
    return place_.partition != nullptr ? place_.partition->context : nullptr;
  }

  SessionCore& core_;
  const Placement place_;
  const int32_t priority_;
  const std::shared_ptr<const void> kept_;
  std::array<Pair, kLengths.size()> pairs_;
};

class Batch {
 public:
  static constexpr size_t kMost = Chains::kLengths.front();
  // For longer kernels the driver's part of the time is small, and budgets need marks between them.
  static constexpr uint64_t kLongestNs = 128'000;
  static constexpr uint64_t kMostNs = kBudgetNs / 2;

  // `batches`: false: no launch is taken.
  explicit Batch(bool batches) : batches_(batches) {}

  // The launch may be part of a batch.
  [[nodiscard]] bool takes(const Uses& uses, const KernelWork& kernel, const Stream& stream,
                           const Durations& durations) const;
  [[nodiscard]] bool empty() const { return launches_.empty(); }
  [[nodiscard]] bool is_full() const {
    return launches_.size() >= kMost || expected_ns_ >= kMostNs;
  }
  [[nodiscard]] bool is_of(const Stream& stream) const { return stream_ == &stream; }
  // Throws std::bad_alloc.
  void add(const Uses& uses, const KernelWork& kernel, Stream& stream, uint64_t expected_ns);

  [[nodiscard]] Stream& stream() const { return *stream_; }
  [[nodiscard]] std::span<const BatchedLaunch> launches() const { return launches_; }
  void clear();

 private:
  const bool batches_;
  Stream* stream_ = nullptr;
  std::vector<BatchedLaunch> launches_;
  uint64_t expected_ns_ = 0;
};

}  // namespace openmps::worker
