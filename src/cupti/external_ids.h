// SPDX-License-Identifier: Apache-2.0
// The numbers that a profiler has put on a thread's stacks, one stack of each kind, to find them
// again beside the work that this thread gives. Each function is about the calling thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "cupti/abi.h"

namespace openmps::cupti {

// Numbers on one stack: far more than nested scopes of a program. A profiler that only pushes would
// take memory without end.
inline constexpr size_t kMostExternalIds = 65536;

CUptiResult push_external_id(CUpti_ExternalCorrelationKind kind, uint64_t id);
// `last` may be null.
CUptiResult pop_external_id(CUpti_ExternalCorrelationKind kind, uint64_t* last);
// The one that was pushed last.
std::optional<uint64_t> external_id(CUpti_ExternalCorrelationKind kind);

}  // namespace openmps::cupti
