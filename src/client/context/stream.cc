// SPDX-License-Identifier: Apache-2.0
// See stream.h.
#include "client/context/stream.h"

#include <algorithm>
#include <vector>

#include "api/default_stream.h"
#include "base/mutex.h"
#include "client/check.h"
#include "client/context/thread_state.h"

namespace openmps::client {

CUresult Streams::create(Context& context, wire::StreamKind kind, uint32_t flags, int priority,
                         Stream** stream) {
  return make(stream, [&](Stream& made) {
    made.context = &context;
    made.kind = kind;
    made.flags = flags;
    made.priority = priority;
    made.unique_id = next_id_.fetch_add(1, std::memory_order_relaxed);
    if (!fences_.open(&made)) return CUDA_ERROR_OUT_OF_MEMORY;
    return channel_.push(wire::StreamCreate{made.id, context.id, context.wire_device, kind,
                                            priority, context.green_id(), context.sms,
                                            made.fence_slot});
  });
}

CUresult Streams::create_for_program(Context& context, unsigned int flags, int priority,
                                     CUstream* made) {
  if (made == nullptr || (flags & ~static_cast<unsigned int>(CU_STREAM_NON_BLOCKING)) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // Lower numbers are more urgent. CUDA documents that values out of range are clamped.
  const wire::DeviceFacts& facts = devices_.facts(context.device);
  priority = std::clamp(priority, std::min(facts.priority_greatest, facts.priority_least),
                        std::max(facts.priority_greatest, facts.priority_least));
  const wire::StreamKind kind = (flags & CU_STREAM_NON_BLOCKING) != 0
                                    ? wire::StreamKind::kNonBlocking
                                    : wire::StreamKind::kBlocking;
  Stream* stream = nullptr;
  OPENMPS_CUDA_CHECK(create(context, kind, flags, priority, &stream));
  *made = stream->as<CUstream>();
  return CUDA_SUCCESS;
}

// Ends everything of the stream but its handle.
CUresult Streams::close(Stream* stream) {
  captures_.leave(*stream);
  const Channel::Order order = channel_.order();
  OPENMPS_CUDA_CHECK(fences_.close(order, stream));
  return channel_.push(order, wire::StreamDestroy{stream->id});
}

CUresult Streams::destroy(Stream* stream) {
  if (!retire(stream)) return CUDA_ERROR_INVALID_HANDLE;
  CUresult result = CUDA_SUCCESS;
  if (!stream->detached.load(std::memory_order_acquire)) result = close(stream);
  recycle(stream);
  return result;
}

CUresult Streams::detach(Stream* stream) {
  if (stream->detached.exchange(true)) return CUDA_SUCCESS;
  const CUresult result = close(stream);
  stream->context = stream->context->owner();
  return result;
}

CUresult Streams::made_once(Context& context, std::atomic<Stream*>& place, wire::StreamKind kind,
                            uint32_t flags, Stream** stream) {
  const MutexLock guard(lock);
  *stream = place.load(std::memory_order_acquire);
  if (*stream != nullptr) return CUDA_SUCCESS;
  OPENMPS_CUDA_CHECK(create(context, kind, flags, 0, stream));
  place.store(*stream, std::memory_order_release);
  return CUDA_SUCCESS;
}

CUresult Streams::hidden(Context& context, std::atomic<Stream*>& place, Stream** stream) {
  return made_once(context, place, wire::StreamKind::kNonBlocking, CU_STREAM_NON_BLOCKING, stream);
}

CUresult Streams::legacy(Context& context, Stream** stream) {
  *stream = context.legacy.load(std::memory_order_acquire);
  if (*stream != nullptr) [[likely]] {
    return CUDA_SUCCESS;
  }
  return made_once(context, context.legacy, wire::StreamKind::kLegacy, CU_STREAM_DEFAULT, stream);
}

CUresult Streams::per_thread(Context& context, Stream** stream) {
  ThreadState& thread = this_thread();
  for (const auto& [owner, handle] : thread.streams) {
    if (owner != context.handle) continue;
    *stream = find(handle);
    if (*stream != nullptr) return CUDA_SUCCESS;
  }
  OPENMPS_CUDA_CHECK(create(context, wire::StreamKind::kBlocking, CU_STREAM_DEFAULT, 0, stream));
  (*stream)->per_thread = true;
  // A primary context that was reset has its old handle, so old entries are removed.
  std::erase_if(thread.streams, [&](const auto& entry) { return entry.first == context.handle; });
  thread.streams.emplace_back(context.handle, (*stream)->handle);
  return CUDA_SUCCESS;
}

CUresult Streams::look_up(Context& context, CUstream handle, Stream** stream) {
  if (handle == nullptr) {
    return per_thread_default_stream() ? per_thread(context, stream) : legacy(context, stream);
  }
  if (handle == CU_STREAM_LEGACY) return legacy(context, stream);
  if (handle == CU_STREAM_PER_THREAD) return per_thread(context, stream);
  return look_up_made(handle, stream);
}

CUresult Streams::look_up_made(CUstream handle, Stream** stream) const {
  *stream = find(handle);
  if (*stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return (*stream)->detached.load(std::memory_order_acquire) ? CUDA_ERROR_CONTEXT_IS_DESTROYED
                                                             : CUDA_SUCCESS;
}

CUresult Streams::wait(FencePoint point) {
  if (!fences_.reached(point)) OPENMPS_CUDA_CHECK(output_.show_end(fences_.wait_forced(point)));
  OPENMPS_CUDA_CHECK(fences_.tell(point));
  return output_.show(channel_.take_async_error());
}

CUresult Streams::synchronize(Stream& stream) {
  FencePoint point;
  {
    const Channel::Order order = channel_.order();
    OPENMPS_CUDA_CHECK(fences_.cover(order, stream, &point));
  }
  return wait(point);
}

CUresult Streams::synchronize(const Context* context) {
  std::vector<FencePoint> points;
  CUresult result = CUDA_SUCCESS;
  {
    const Channel::Order order = channel_.order();
    for_each([&](Stream& stream) {
      if (context != nullptr && !context->includes(stream.context)) return;
      if (stream.detached.load(std::memory_order_acquire)) return;
      if (stream.capture.load(std::memory_order_relaxed) != 0 || result != CUDA_SUCCESS) return;
      FencePoint point;
      result = fences_.cover_own(order, stream, &point);
      if (!fences_.reached(point) || fences_.has_loss(point.slot())) points.push_back(point);
    });
  }
  if (result != CUDA_SUCCESS) return result;
  for (const FencePoint point : points) {
    OPENMPS_CUDA_CHECK(output_.show_end(fences_.wait(point)));
  }
  OPENMPS_CUDA_CHECK(output_.show(fences_.wait_for_retired()));
  return fences_.tell(points);
}

}  // namespace openmps::client
