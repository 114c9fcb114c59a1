// SPDX-License-Identifier: Apache-2.0
// See batch.h.
#include "worker/work/batch.h"

#include <algorithm>

#include "worker/code/module.h"

namespace openmps::worker {

// A chain belongs to the green context that it is made in, and the client may destroy that.
bool Batch::takes(const Uses& uses, const KernelWork& kernel, const Stream& stream,
                  const Durations& durations) const {
  return batches_ && uses.lane == Lane::kMain && kernel.attributes.empty() &&
         kernel.parameters.size() <= kMostChainedBytes && stream.green == nullptr &&
         !kernel.function->prints && !kernel.function->asserts && durations.is_known(uses.cost) &&
         durations.of(uses.cost) <= kLongestNs;
}

void Batch::add(const Uses& uses, const KernelWork& kernel, Stream& stream, uint64_t expected_ns) {
  costs_.reserve(kMost);
  launches_.reserve(kMost);
  ChainedLaunch& launch = launches_.emplace_back();
  launch.function = kernel.handle;
  launch.shape = *kernel.shape;
  launch.shape.parameter_bytes = static_cast<uint32_t>(kernel.parameters.size());
  std::ranges::copy(kernel.parameters, launch.bytes.begin());
  launch.code = kernel.function->library;
  costs_.push_back(uses.cost);
  stream_ = &stream;
  expected_ns_ += expected_ns;
}

void Batch::clear() {
  launches_.clear();
  costs_.clear();
  stream_ = nullptr;
  expected_ns_ = 0;
}

}  // namespace openmps::worker
