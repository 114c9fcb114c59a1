// SPDX-License-Identifier: Apache-2.0
// Streams: their creation and end, what a CUstream argument means on the calling thread, and
// waiting for them. Any thread.
#pragma once

#include "client/session.h"
#include "cuda/abi.h"

namespace openmps::client {

// Errors: CUDA_ERROR_OUT_OF_MEMORY: wire::kFenceSlots streams live.
[[nodiscard]] CUresult create_stream(Session& session, Context& context, wire::StreamKind kind,
                                     uint32_t flags, int priority, Stream** stream);
// The same for cuStreamCreate and its like: flags and priority are the program's.
// Errors: CUDA_ERROR_INVALID_VALUE.
[[nodiscard]] CUresult create_stream_for_program(Session& session, Context& context,
                                                 unsigned int flags, int priority, CUstream* made);
// What is queued still runs.
[[nodiscard]] CUresult destroy_stream(Session& session, Stream* stream);

// The same, but the handle stays: its green context is destroyed, and only destroying it is left.
[[nodiscard]] CUresult detach_stream(Session& session, Stream* stream);

// The stream that a handle means: NULL, CU_STREAM_LEGACY and CU_STREAM_PER_THREAD are the context's
// own, made at first use. Errors: CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_CONTEXT_IS_DESTROYED (of
// its green context).
[[nodiscard]] CUresult find_stream(Session& session, Context& context, CUstream handle,
                                   Stream** stream);
// Session, current context and stream in one.
[[nodiscard]] CUresult look_up_stream(Session** session, Context** context, CUstream handle,
                                      Stream** stream);
// The same: what stream operations begin with. To name the legacy stream while blocking streams
// capture is CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, and invalidates their captures.
[[nodiscard]] CUresult enter(Session** session, Context** context, CUstream handle,
                             Stream** stream);

// One command of work for a stream, counted by its fences (unless it is captured).
template <wire::Command C>
[[nodiscard]] CUresult push_work(Session& session, Stream& stream, const C& command,
                                 const wire::TailOf<C>& tail = {}) {
  const Channel::Order order = session.channel.order();
  const CUresult result = session.channel.push(order, command, tail);
  session.fences.after_work(order, stream);
  return result;
}

// Block until the point, whose fence is under way in the stream, and report errors as below.
[[nodiscard]] CUresult wait_in_stream(Session& session, const Stream& stream, FencePoint point);
// Block until the stream's work is done, of the legacy stream that of its context's blocking
// streams as well; reports errors of earlier commands. It does not capture.
[[nodiscard]] CUresult synchronize_stream(Session& session, Stream& stream);

}  // namespace openmps::client
