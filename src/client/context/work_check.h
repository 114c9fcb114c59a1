// SPDX-License-Identifier: Apache-2.0
// CUDA's checks of memory fills and stream values, and their commands, for streams, captures, nodes
// and executable graphs. The checks of launches are in launch_check.h and launch_request.h. Any
// thread.
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
// Also checks that all of it is memory of the program's that can be written.
[[nodiscard]] CUresult check_fill(const Places& places, const CUDA_MEMSET_NODE_PARAMS& fill);

[[nodiscard]] wire::Memset fill_command(const CUDA_MEMSET_NODE_PARAMS& fill, wire::Id target);

// ---- Values that streams write and wait for; a single operation is a batch of one ---------------

using ValueOperations = std::span<const CUstreamBatchMemOpParams>;

// Checks kinds, flags and alignment. As on an H200, flags of writes and flushes of remote writes
// are CUDA_ERROR_NOT_SUPPORTED.
[[nodiscard]] CUresult check_values(ValueOperations operations, unsigned int flags);
// Checks that the memory is the program's, and writable where it is written. CUDA checks this when
// the work is submitted, so it is not checked of a node or a captured batch. Natively a write to
// read-only memory is accepted and ends the context (719). It is refused here, because all clients
// have the context.
[[nodiscard]] CUresult check_value_places(const Places& places, ValueOperations operations);

[[nodiscard]] wire::ValueOperation wire_value(const CUstreamBatchMemOpParams& operation);

}  // namespace openmps::client
