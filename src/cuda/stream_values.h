// SPDX-License-Identifier: Apache-2.0
// Values that streams write to memory and wait for, whatever their width: one structure for the
// many of CUstreamBatchMemOpParams. What of it is allowed is the caller's to judge. Pure; any
// thread.
#pragma once

#include <cstdint>

#include "cuda/abi.h"

namespace openmps::cuda {

struct StreamValue {
  enum class Kind { kWait, kWrite, kBarrier, kFlush, kUnknown };

  Kind kind = Kind::kUnknown;
  uint32_t bytes = 4;  // 4 or 8: of what is written or waited for
  uint64_t address = 0;
  uint64_t value = 0;
  unsigned int flags = 0;  // the comparison of a wait, the kind of a barrier
};

[[nodiscard]] StreamValue read_stream_value(const CUstreamBatchMemOpParams& operation);
// Of a wait, a write or a barrier.
[[nodiscard]] CUstreamBatchMemOpParams operation_of(const StreamValue& value);

}  // namespace openmps::cuda
