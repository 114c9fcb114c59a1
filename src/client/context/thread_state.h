// SPDX-License-Identifier: Apache-2.0
// What CUDA keeps per host thread: the stack of current contexts, the capture mode, and the
// per-thread default streams. Used by that thread only; made at first use.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "cuda/abi.h"

namespace openmps::client {

struct ThreadState {
  // Handles, because another thread may destroy a context. The last one is current.
  std::vector<uint64_t> contexts;
  CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  // (context handle, stream handle) of CU_STREAM_PER_THREAD.
  std::vector<std::pair<uint64_t, uint64_t>> streams;
  // What cuStreamGetCaptureInfo last returned to the thread.
  std::vector<CUgraphNode> capture_nodes;
  std::vector<CUgraphEdgeData> capture_edges;
};

extern constinit thread_local ThreadState* t_thread_state;  // null: the thread has none yet
[[nodiscard]] ThreadState& make_thread_state();
[[nodiscard]] inline ThreadState& this_thread() {
  ThreadState* const state = t_thread_state;
  if (state == nullptr) [[unlikely]] {
    return make_thread_state();
  }
  return *state;
}

// `hook` is called on each thread that ends.
void set_thread_end(void (*hook)(const ThreadState&));

}  // namespace openmps::client
