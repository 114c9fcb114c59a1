// SPDX-License-Identifier: Apache-2.0
// cuGraphDebugDotPrint: a graph as a DOT file, written by this process. Called with
// Graphs::lock held.
#pragma once

#include "client/graphs/graph.h"
#include "cuda/abi.h"

namespace openmps::client {

struct Session;

// `flags`: CUgraphDebugDot_flags. Errors: CUDA_ERROR_OPERATING_SYSTEM: the file can't be written.
[[nodiscard]] CUresult write_dot(const Session& session, const Graph& graph, const char* path,
                                 unsigned int flags);

}  // namespace openmps::client
