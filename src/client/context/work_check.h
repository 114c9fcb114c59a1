// SPDX-License-Identifier: Apache-2.0
// What CUDA accepts of fills and values, and the commands that say them, in one place for streams,
// captures, nodes and executable graphs. Copies have theirs in transfer.h, launches in
// launch_check.h and launch_request.h. Any thread.
#pragma once

#include <cstdint>
#include <span>

#include "client/memory/places.h"
#include "cuda/abi.h"
#include "wire/commands/stream.h"

namespace openmps::client {

// ---- Fills: neither width nor height is 0 -------------------------------------------------------

// Elements, pitch and alignment.
[[nodiscard]] CUresult check_fill(const CUDA_MEMSET_NODE_PARAMS& fill);
// The same, and that all of it is memory of the program's that can be written.
[[nodiscard]] CUresult check_fill(const Places& places, const CUDA_MEMSET_NODE_PARAMS& fill);

[[nodiscard]] wire::Memset fill_command(const CUDA_MEMSET_NODE_PARAMS& fill, wire::Id target);

// ---- Values that streams write and wait for: one alone is a batch of one ------------------------

using ValueOperations = std::span<const CUstreamBatchMemOpParams>;

// Kinds, flags, alignment. As on an H200: no flags of writes, nothing that flushes remote writes
// (CUDA_ERROR_NOT_SUPPORTED).
[[nodiscard]] CUresult check_values(ValueOperations operations, unsigned int flags);
// That the memory is the program's, and can be written where it is written: what CUDA looks at when
// the work is submitted, so not of a node or a captured batch. Where natively a write to read-only
// memory is accepted and ends the context (719), it is refused here: the context is everybody's.
[[nodiscard]] CUresult check_value_places(const Places& places, ValueOperations operations);

[[nodiscard]] wire::ValueOperation wire_value(const CUstreamBatchMemOpParams& operation);

}  // namespace openmps::client
