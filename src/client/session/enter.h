// SPDX-License-Identifier: Apache-2.0
// The first steps of the implementations of CUDA calls: the session, and the context and stream
// that a call means. On the program's threads.
#pragma once

#include "client/context/thread_state.h"
#include "client/session/session.h"
#include "cuda/abi.h"

namespace openmps::client {

// Session and current context. Errors: those of Contexts::current().
[[nodiscard]] CUresult enter(Session** session, Context** context);
// Session and the context of an argument where NULL means the current one. Errors: also those of
// Contexts::look_up().
[[nodiscard]] CUresult context_or_current(CUcontext handle, Session** session, Context** context);

// Session, current context and stream in one.
[[nodiscard]] CUresult look_up_stream(Session** session, Context** context, CUstream handle,
                                      Stream** stream);
// As look_up_stream(), for stream operations: the legacy stream while blocking streams capture is
// CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, and invalidates their captures.
[[nodiscard]] CUresult enter(Session** session, Context** context, CUstream handle,
                             Stream** stream);

// For calls that CUDA calls unsafe during stream capture: also checks the open captures.
[[nodiscard]] CUresult check_unsafe(Session& session);
[[nodiscard]] CUresult enter_unsafe(Session** session, Context** context);
// For a call that needs no context, as freeing does. A current context that was destroyed is an
// error.
[[nodiscard]] CUresult enter_unsafe(Session** session);

}  // namespace openmps::client
