// SPDX-License-Identifier: Apache-2.0
// Thread state behind one thread-local pointer; a pthread key cleans up when a thread ends.
#include "client/thread_state.h"

#include <pthread.h>

#include <new>

#include "client/stream.h"

namespace openmps::client {
namespace {

constinit thread_local ThreadState* t_state = nullptr;
pthread_once_t g_once = PTHREAD_ONCE_INIT;
pthread_key_t g_key;

void thread_ended(void* state_pointer) {
  ThreadState* state = static_cast<ThreadState*>(state_pointer);
  Session* session = nullptr;
  if (enter(&session) == CUDA_SUCCESS) {
    for (const auto& [context, handle] : state->streams) {
      Stream* stream = session->streams.find(handle);
      // Nobody is left to be told that this process has no memory: then the stream stays.
      try {
        if (stream != nullptr) (void)destroy_stream(*session, stream);
      } catch (const std::bad_alloc&) {
        break;
      }
    }
  }
  t_state = nullptr;
  delete state;
}

}  // namespace

ThreadState& this_thread() {
  if (t_state == nullptr) [[unlikely]] {
    pthread_once(&g_once, [] { pthread_key_create(&g_key, thread_ended); });
    t_state = new ThreadState;
    pthread_setspecific(g_key, t_state);
  }
  return *t_state;
}

CUresult find_context(Session& session, CUcontext handle, Context** context) {
  *context = session.contexts.find(handle);
  if (*context == nullptr) {
    const uint64_t tag = reinterpret_cast<uint64_t>(handle) >> 56;
    return tag == kHandleTag + static_cast<uint64_t>(HandleKind::kContext)
               ? CUDA_ERROR_CONTEXT_IS_DESTROYED
               : CUDA_ERROR_INVALID_CONTEXT;
  }
  return CUDA_SUCCESS;
}

CUresult current_context(Session& session, Context** context) {
  const ThreadState& thread = this_thread();
  if (thread.contexts.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  *context = session.contexts.find(thread.contexts.back());
  if (*context == nullptr || !(*context)->active.load(std::memory_order_acquire)) {
    return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  }
  return CUDA_SUCCESS;
}

CUresult enter(Session** session, Context** context) {
  OPENMPS_CUDA_CHECK(enter(session));
  return current_context(**session, context);
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

CUresult check_unsafe(Session& session) {
  if (!session.captures.any()) [[likely]] {
    return CUDA_SUCCESS;
  }
  const ThreadState& thread = this_thread();
  return session.captures.check_unsafe_call(&thread, thread.capture_mode);
}

}  // namespace openmps::client
