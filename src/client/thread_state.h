// SPDX-License-Identifier: Apache-2.0
// What CUDA keeps per host thread: the stack of current contexts, the capture mode, and the
// thread's own default streams. Belongs to its thread; made at first use.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "client/session.h"
#include "cuda/abi.h"

namespace openmps::client {

struct ThreadState {
  // Handles, not pointers: a context that another thread destroys is recognised. The last is
  // current.
  std::vector<uint64_t> contexts;
  CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  // (context handle, stream handle) of CU_STREAM_PER_THREAD.
  std::vector<std::pair<uint64_t, uint64_t>> streams;
  bool in_managed_copy = false;  // managed_variables.cc
  // What cuStreamGetCaptureInfo last returned to the thread.
  std::vector<CUgraphNode> capture_nodes;
  std::vector<CUgraphEdgeData> capture_edges;
};

[[nodiscard]] ThreadState& this_thread();

// The calling thread's current context. Errors: CUDA_ERROR_INVALID_CONTEXT (none),
// CUDA_ERROR_CONTEXT_IS_DESTROYED (destroyed, or a primary context that nobody retains).
[[nodiscard]] CUresult current_context(Session& session, Context** context);

// Session and current context: what most implementations begin with.
[[nodiscard]] CUresult enter(Session** session, Context** context);

// The same for a call that is unsafe during stream capture: also asks the open captures.
[[nodiscard]] CUresult enter_unsafe(Session** session, Context** context);
[[nodiscard]] CUresult check_unsafe(Session& session);

// The same for a call that needs no context, as freeing does. One that was destroyed is an error.
[[nodiscard]] CUresult enter_unsafe(Session** session);

// A context by handle. Errors: CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_CONTEXT_IS_DESTROYED.
[[nodiscard]] CUresult find_context(Session& session, CUcontext handle, Context** context);

}  // namespace openmps::client
