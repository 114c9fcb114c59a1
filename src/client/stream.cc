// SPDX-License-Identifier: Apache-2.0
// Stream life cycle, default streams, synchronisation. See stream.h.
#include "client/stream.h"

#include "api/default_stream.h"
#include "client/thread_state.h"

namespace openmps::client {

CUresult create_stream(Session& session, Context& context, wire::StreamKind kind, uint32_t flags,
                       int priority, Stream** stream) {
  Stream* made = session.streams.allocate();
  if (made == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  made->context = &context;
  made->kind = kind;
  made->flags = flags;
  made->priority = priority;
  made->unique_id = session.next_unique_id.fetch_add(1, std::memory_order_relaxed);
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  if (session.fences.open(made)) {
    result =
        session.channel.push(wire::StreamCreate{made->id, context.id, context.wire_device, kind,
                                                priority, context.green ? context.green->id : 0});
  }
  if (result != CUDA_SUCCESS) {
    session.streams.recycle(made);
    return result;
  }
  session.streams.publish(made);
  *stream = made;
  return CUDA_SUCCESS;
}

namespace {

// All that the stream is beside its handle.
CUresult take_down(Session& session, Stream* stream) {
  const uint32_t capture = stream->capture.load(std::memory_order_relaxed);
  if (capture != 0) {
    Capture open;
    const bool origin = session.captures.find(capture, &open) && open.origin == stream;
    // CUDA leaves destroying a capturing stream undefined; here the capture just ends.
    if (origin) session.captures.close(session, capture);
    if (!origin) session.captures.leave(capture, stream);
    const std::lock_guard guard(session.graph_lock);
    const bool own = origin && !open.into_existing && open.graph != nullptr;
    if (own) destroy_graph_locked(session, open.graph);
  }
  const Channel::Order order = session.channel.order();
  OPENMPS_CUDA_CHECK(session.fences.close(order, stream));
  return session.channel.push(order, wire::StreamDestroy{stream->id});
}

}  // namespace

CUresult destroy_stream(Session& session, Stream* stream) {
  if (!session.streams.retire(stream)) return CUDA_ERROR_INVALID_HANDLE;
  CUresult result = CUDA_SUCCESS;
  if (!stream->detached.load(std::memory_order_acquire)) result = take_down(session, stream);
  session.streams.recycle(stream);
  return result;
}

CUresult detach_stream(Session& session, Stream* stream) {
  if (stream->detached.exchange(true)) return CUDA_SUCCESS;
  const CUresult result = take_down(session, stream);
  stream->context = stream->context->owner();
  return result;
}

namespace {

CUresult legacy_stream(Session& session, Context& context, Stream** stream) {
  *stream = context.legacy.load(std::memory_order_acquire);
  if (*stream != nullptr) [[likely]] {
    return CUDA_SUCCESS;
  }
  std::lock_guard guard(session.stream_lock);
  *stream = context.legacy.load(std::memory_order_acquire);
  if (*stream != nullptr) return CUDA_SUCCESS;
  OPENMPS_CUDA_CHECK(
      create_stream(session, context, wire::StreamKind::kLegacy, CU_STREAM_DEFAULT, 0, stream));
  context.legacy.store(*stream, std::memory_order_release);
  return CUDA_SUCCESS;
}

CUresult per_thread_stream(Session& session, Context& context, Stream** stream) {
  ThreadState& thread = this_thread();
  for (const auto& [owner, handle] : thread.streams) {
    if (owner != context.handle) continue;
    *stream = session.streams.find(handle);
    if (*stream != nullptr) return CUDA_SUCCESS;
  }
  OPENMPS_CUDA_CHECK(
      create_stream(session, context, wire::StreamKind::kBlocking, CU_STREAM_DEFAULT, 0, stream));
  (*stream)->per_thread = true;
  // A reset context leaves stale entries under the same handle.
  std::erase_if(thread.streams, [&](const auto& entry) { return entry.first == context.handle; });
  thread.streams.emplace_back(context.handle, (*stream)->handle);
  return CUDA_SUCCESS;
}

}  // namespace

namespace {

bool is_default_stream(CUstream handle) {
  return handle == nullptr || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD;
}

}  // namespace

CUresult find_stream(Session& session, Context& context, CUstream handle, Stream** stream) {
  if (handle == nullptr) {
    return per_thread_default_stream() ? per_thread_stream(session, context, stream)
                                       : legacy_stream(session, context, stream);
  }
  if (handle == CU_STREAM_LEGACY) return legacy_stream(session, context, stream);
  if (handle == CU_STREAM_PER_THREAD) return per_thread_stream(session, context, stream);
  *stream = session.streams.find(handle);
  if (*stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return (*stream)->detached.load(std::memory_order_acquire) ? CUDA_ERROR_CONTEXT_IS_DESTROYED
                                                             : CUDA_SUCCESS;
}

CUresult look_up_stream(Session** session, Context** context, CUstream handle, Stream** stream) {
  const CUresult result = enter(session, context);
  if (result == CUDA_SUCCESS) [[likely]] {
    return find_stream(**session, **context, handle, stream);
  }
  // A stream that the program made says which context is meant where the thread has none.
  if (result != CUDA_ERROR_INVALID_CONTEXT || is_default_stream(handle)) return result;
  *stream = (*session)->streams.find(handle);
  if (*stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if ((*stream)->detached.load(std::memory_order_acquire)) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
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

CUresult wait_in_stream(Session& session, const Stream& stream, FencePoint point) {
  if (!session.fences.reached(point)) {
    OPENMPS_CUDA_CHECK(session.output.show_end(session.channel.wait(
        [&session, point] { return session.fences.reached(point); }, stream.id)));
  }
  return synchronised(session, session.channel.take_async_error());
}

CUresult synchronize_stream(Session& session, Stream& stream) {
  FencePoint point;
  {
    const Channel::Order order = session.channel.order();
    OPENMPS_CUDA_CHECK(session.fences.cover(order, stream, &point));
  }
  return wait_in_stream(session, stream, point);
}

CUresult synchronize(Session& session, const Context* context) {
  std::vector<FencePoint> points;
  CUresult result = CUDA_SUCCESS;
  {
    const Channel::Order order = session.channel.order();
    session.streams.for_each([&](Stream& stream) {
      if (context != nullptr && !context->includes(stream.context)) return;
      if (stream.detached.load(std::memory_order_acquire)) return;
      if (stream.capture.load(std::memory_order_relaxed) != 0 || result != CUDA_SUCCESS) return;
      FencePoint point;
      result = session.fences.cover_own(order, stream, &point);
      if (!session.fences.reached(point)) points.push_back(point);
    });
  }
  if (result != CUDA_SUCCESS) return result;
  for (const FencePoint point : points) {
    OPENMPS_CUDA_CHECK(session.output.show_end(session.fences.wait(point)));
  }
  return synchronised(session, session.fences.wait_for_retired());
}

}  // namespace openmps::client
