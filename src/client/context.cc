// SPDX-License-Identifier: Apache-2.0
// Creation and destruction of contexts and of what belongs to them.
#include "client/context.h"

#include <algorithm>
#include <iterator>

#include "client/stream.h"
#include "client/thread_state.h"
#include "wire/commands.h"

namespace openmps::client {
namespace {

Context* new_context(Session& session, uint32_t device, uint32_t flags) {
  Context* context = session.contexts.allocate();
  if (context == nullptr) return nullptr;
  context->device = device;
  context->wire_device = session.devices[device];
  context->flags.store(flags, std::memory_order_relaxed);
  context->unique_id = session.next_unique_id.fetch_add(1, std::memory_order_relaxed);
  return context;
}

}  // namespace

void create_primary_contexts(Session& session) {
  for (uint32_t device = 0; device < session.device_count(); ++device) {
    Context* context = new_context(session, device, CU_CTX_SCHED_AUTO);
    context->primary = true;
    session.primary[device] = context;
    session.contexts.publish(context);
  }
}

CUresult create_context(Session& session, uint32_t device, uint32_t flags, Context** context) {
  *context = new_context(session, device, flags);
  if (*context == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  (*context)->active.store(true, std::memory_order_relaxed);
  session.several_contexts.store(true, std::memory_order_relaxed);
  session.contexts.publish(*context);
  return CUDA_SUCCESS;
}

CUresult context_or_current(CUcontext handle, Session** session, Context** context) {
  if (handle == nullptr) return enter(session, context);
  OPENMPS_CUDA_CHECK(enter(session));
  return find_context(**session, handle, context);
}

CUresult destroy_context_objects(Session& session, Context& context) {
  CUresult result = synchronize(session, &context);
  context_storage_cleared(context.as<CUcontext>());
  const auto keep_first = [&result](CUresult next) {
    if (result == CUDA_SUCCESS) result = next;
  };
  session.modules.for_each([&](Module& module) {
    if (module.context == &context) keep_first(unload_module(session, &module));
  });
  session.events.for_each([&](Event& event) {
    if (event.context == &context) keep_first(destroy_event(session, &event));
  });
  session.greens.for_each([&](GreenContext& green) {
    if (green.view->parent != &context) return;
    keep_first(destroy_green_locked(session, &green));
    context.retained.fetch_sub(1, std::memory_order_relaxed);
  });
  context.legacy.store(nullptr, std::memory_order_release);
  context.gathering.store(nullptr, std::memory_order_release);
  context.barrier.store(nullptr, std::memory_order_release);
  session.streams.for_each([&](Stream& stream) {
    if (stream.context == &context) keep_first(destroy_stream(session, &stream));
  });
  destroy_arrays_of(session, context);
  for (const DeviceMemory::Entry& entry : session.memory.forget_all(&context)) {
    session.memory.release(entry);
  }
  session.memory.trim();
  session.pinned.release_all(&context);
  if (session.channel.status() != CUDA_SUCCESS) return session.channel.status();
  keep_first(session.channel.call(wire::ContextReset{context.id, context.wire_device}));
  return result;
}

void retain_primary_locked(Session& session, Context& context) {
  context.retained.fetch_add(1, std::memory_order_relaxed);
  if (context.active.load(std::memory_order_relaxed)) return;
  context.unique_id = session.next_unique_id.fetch_add(1, std::memory_order_relaxed);
  context.active.store(true, std::memory_order_release);
}

CUresult release_primary_locked(Session& session, uint32_t device) {
  Context* context = session.primary[device];
  if (context->retained.load(std::memory_order_relaxed) == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (context->retained.fetch_sub(1, std::memory_order_relaxed) > 1) return CUDA_SUCCESS;
  if (!context->active.load(std::memory_order_relaxed)) return CUDA_SUCCESS;  // was reset
  const CUresult result = destroy_context_objects(session, *context);
  context->active.store(false, std::memory_order_release);
  return result;
}

CUresult create_green_locked(Session& session, const ResourceDescriptor& descriptor,
                             uint32_t device, uint32_t flags, GreenContext** green) {
  GreenContext* made = session.greens.allocate();
  if (made == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = session.channel.call(
      wire::GreenCreate{made->id, descriptor.id, session.devices[device], flags});
  Context* view = nullptr;
  if (result == CUDA_SUCCESS) {
    view = new_context(session, device, session.primary[device]->flags.load());
    if (view == nullptr) {
      result = CUDA_ERROR_OUT_OF_MEMORY;
      static_cast<void>(session.channel.call(wire::GreenDestroy{made->id}));
    }
  }
  if (result != CUDA_SUCCESS) {
    session.greens.recycle(made);
    return result;
  }
  Context* primary = session.primary[device];
  retain_primary_locked(session, *primary);
  view->parent = primary;
  view->green = made;
  view->active.store(true, std::memory_order_relaxed);
  made->view = view;
  made->unique_id = session.next_unique_id.fetch_add(1, std::memory_order_relaxed);
  session.several_contexts.store(true, std::memory_order_relaxed);
  session.contexts.publish(view);
  session.greens.publish(made);
  *green = made;
  return CUDA_SUCCESS;
}

CUresult destroy_green_locked(Session& session, GreenContext* green) {
  if (!session.greens.retire(green)) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  Context* view = green->view;
  CUresult result = session.contexts.retire(view) ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
  const auto keep_first = [&result](CUresult next) {
    if (result == CUDA_SUCCESS) result = next;
  };
  session.streams.for_each([&](Stream& stream) {
    const uint32_t capture = stream.capture.load(std::memory_order_relaxed);
    if (stream.context == view && capture != 0) session.captures.invalidate(capture);
  });
  keep_first(synchronize(session, view));
  context_storage_cleared(view->as<CUcontext>());
  const Stream* own[] = {view->legacy.load(), view->gathering.load(), view->barrier.load()};
  session.streams.for_each([&](Stream& stream) {
    if (stream.context != view) return;
    const bool programs =
        !stream.per_thread && std::find(std::begin(own), std::end(own), &stream) == std::end(own);
    keep_first(programs ? detach_stream(session, &stream) : destroy_stream(session, &stream));
  });
  keep_first(session.channel.call(wire::GreenDestroy{green->id}));
  session.contexts.recycle(view);
  session.greens.recycle(green);
  return result;
}

}  // namespace openmps::client
