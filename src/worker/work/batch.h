// SPDX-License-Identifier: Apache-2.0
// Launches of one stream that are to be submitted together, because more of them are at hand
// (worker/work/chain.h). They are submitted before any other work. Session's thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "worker/core/session_core.h"
#include "worker/streams/stream.h"
#include "worker/work/chain.h"
#include "worker/work/work.h"

namespace openmps::worker {

class Batch {
 public:
  static constexpr size_t kMost = Chains::kLengths.front();
  // For longer kernels the driver's part of the time is small, and budgets need marks between them.
  static constexpr uint64_t kLongestNs = 128'000;
  static constexpr uint64_t kMostNs = kWindowNs / 2;

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
  [[nodiscard]] std::span<const ChainedLaunch> launches() const { return launches_; }
  [[nodiscard]] std::span<const Cost> costs() const { return costs_; }
  void clear();

 private:
  const bool batches_;
  Stream* stream_ = nullptr;
  std::vector<ChainedLaunch> launches_;
  std::vector<Cost> costs_;
  uint64_t expected_ns_ = 0;
};

}  // namespace openmps::worker
