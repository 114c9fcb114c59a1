// SPDX-License-Identifier: Apache-2.0
// Where a piece of work goes: into its stream or, while the stream captures, into a graph. This is
// the one place that asks. On the program's threads.
//
// A kind of work is a type that holds what the program said, checked as far as that is the same
// wherever it goes. It has
//   CUresult issue(Session&, Stream&) const              give it to the stream, and
//   CUresult describe(Session&, Work*) const             say it as a node of a graph, or
//   CUresult capture(Session&, Stream&, uint32_t) const  what it means to a capture of that number,
//                                                        or neither: it can't be captured.
// and, if it is a launch to CUDA_LAUNCH_BLOCKING,
//   bool is_launch() const                               what the device does by itself: kernels,
//                                                        fills, copies between device memory.
#pragma once

#include <utility>

#include "client/check.h"
#include "client/link/host_function.h"
#include "client/session/session.h"
#include "cuda/abi.h"

namespace openmps::client {

// Out of the way of what is issued.
template <typename Kind>
[[nodiscard, gnu::noinline]] CUresult submit_captured(Session& session, Stream& stream,
                                                      const Kind& work, uint32_t capture) {
  if constexpr (requires(Work * node) { work.describe(session, node); }) {
    Work node;
    const CUresult described = work.describe(session, &node);
    if (described == CUDA_SUCCESS) return session.captures.add(stream, std::move(node));
    if (described == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) session.captures.invalidate(capture);
    return described;
  } else if constexpr (requires { work.capture(session, stream, capture); }) {
    return work.capture(session, stream, capture);
  } else {
    return session.captures.refuse(stream);
  }
}

// A launch was issued. By CUDA_LAUNCH_BLOCKING the call returns when the context's work is done,
// with its error; not from a host function, which would wait for itself.
[[nodiscard]] inline CUresult launched(Session& session, const Stream& stream, CUresult issued) {
  const Context& context = *stream.context;
  if (!context.launches_block || issued != CUDA_SUCCESS) [[likely]] {
    return issued;
  }
  return in_host_function() ? issued : session.synchronize(&context);
}

// Errors: what issuing or describing gives; CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED: it can't be
// captured, and the capture is invalidated; those of Captures::add().
template <typename Kind>
[[nodiscard]] CUresult submit(Session& session, Stream& stream, const Kind& work) {
  const uint32_t capture = stream.capture.load(std::memory_order_relaxed);
  if (capture == 0) [[likely]] {
    OPENMPS_CUDA_CHECK(session.streams.await_room(stream));
    const CUresult issued = work.issue(session, stream);
    if constexpr (requires { work.is_launch(); }) {
      if (work.is_launch()) return launched(session, stream, issued);
    }
    return issued;
  }
  return submit_captured(session, stream, work, capture);
}

}  // namespace openmps::client
