// SPDX-License-Identifier: Apache-2.0
// See enter.h.
#include "client/session/enter.h"

namespace openmps::client {

CUresult enter(Session** session, Context** context) {
  OPENMPS_CUDA_CHECK(enter(session));
  return (*session)->contexts.current(context);
}

CUresult context_or_current(CUcontext handle, Session** session, Context** context) {
  if (handle == nullptr) return enter(session, context);
  OPENMPS_CUDA_CHECK(enter(session));
  return (*session)->contexts.look_up(handle, context);
}

CUresult look_up_stream(Session** session, Context** context, CUstream handle, Stream** stream) {
  const CUresult result = enter(session, context);
  if (result == CUDA_SUCCESS) [[likely]] {
    return (*session)->streams.look_up(**context, handle, stream);
  }
  // A thread without a current context may use a stream that the program made: its context is
  // meant.
  if (result != CUDA_ERROR_INVALID_CONTEXT || is_default_stream(handle)) return result;
  OPENMPS_CUDA_CHECK((*session)->streams.look_up_made(handle, stream));
  *context = (*stream)->context;
  return CUDA_SUCCESS;
}

CUresult enter(Session** session, Context** context, CUstream handle, Stream** stream) {
  OPENMPS_CUDA_CHECK(look_up_stream(session, context, handle, stream));
  if (!(*session)->captures.any() || (*stream)->kind != wire::StreamKind::kLegacy) [[likely]] {
    return CUDA_SUCCESS;
  }
  return (*session)->captures.check_legacy_stream(**stream, false);
}

CUresult check_unsafe(Session& session) {
  if (!session.captures.any()) [[likely]] {
    return CUDA_SUCCESS;
  }
  const ThreadState& thread = this_thread();
  return session.captures.check_unsafe_call(&thread, thread.capture_mode);
}

CUresult enter_unsafe(Session** session, Context** context) {
  OPENMPS_CUDA_CHECK(enter(session, context));
  return check_unsafe(**session);
}

CUresult enter_unsafe(Session** session) {
  Context* context = nullptr;
  const CUresult result = enter(session, &context);
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_INVALID_CONTEXT) return result;
  return check_unsafe(**session);
}

}  // namespace openmps::client
