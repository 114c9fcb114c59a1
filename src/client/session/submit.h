// SPDX-License-Identifier: Apache-2.0
// Submits work to its stream or, while the stream captures, adds it to the captured graph. No other
// place checks for a capture. On the program's threads.
//
// A kind of work is a type that holds the call's arguments, after the checks that streams and
// graphs have in common. It has
//   CUresult issue(Session&, Stream&) const              submits it to the stream, and
//   CUresult describe(Session&, Work*) const             makes a node's work of it, or
//   CUresult capture(Session&, Stream&, uint32_t) const  adds it to the capture of that number, or
//                                                        neither: it can't be captured.
// and, if CUDA_LAUNCH_BLOCKING applies to it,
//   bool is_launch() const                               true for work of the device alone:
//   kernels,
//                                                        fills, copies between device memory.
#pragma once

#include <utility>

#include "client/check.h"
#include "client/link/host_function.h"
#include "client/session/session.h"
#include "cuda/abi.h"

namespace openmps::client {

// Not inlined, to keep submit() small.
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

// Called after a launch. With CUDA_LAUNCH_BLOCKING it waits for the context's work and returns its
// error, except in a host function, which would wait for itself.
[[nodiscard]] inline CUresult launched(Session& session, const Stream& stream, CUresult issued) {
  const Context& context = *stream.context;
  if (!context.launches_block || issued != CUDA_SUCCESS) [[likely]] {
    return issued;
  }
  return in_host_function() ? issued : session.synchronize(&context);
}

// Errors: those of issue(), describe() and Captures::add(); CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED:
// the work can't be captured, and the capture is invalidated.
template <typename Kind>
[[nodiscard]] CUresult submit(Session& session, Stream& stream, const Kind& work) {
  const uint32_t capture = stream.capture.load(std::memory_order_relaxed);
  if (capture == 0) [[likely]] {
    OPENMPS_CUDA_CHECK(session.streams.await_backlog_space(stream));
    const CUresult issued = work.issue(session, stream);
    if constexpr (requires { work.is_launch(); }) {
      if (work.is_launch()) return launched(session, stream, issued);
    }
    return issued;
  }
  return submit_captured(session, stream, work, capture);
}

}  // namespace openmps::client
