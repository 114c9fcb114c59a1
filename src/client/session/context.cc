// SPDX-License-Identifier: Apache-2.0
// See context.h.
#include "client/session/context.h"

#include <algorithm>
#include <iterator>

#include "base/program_switches.h"
#include "client/context_sms.h"
#include "interop/export_tables.h"
#include "wire/commands/device.h"
#include "wire/commands/green.h"

namespace openmps::client {
namespace {

// Tells the worker the context's number of SMs by making the legacy stream: code of the context
// must be loaded for these SMs from the start (docs/decisions/0028). If this fails, the first use
// of the stream returns the error.
void tell_limit(Session& session, Context& context) {
  Stream* legacy = nullptr;
  if (context.sms != 0) static_cast<void>(session.streams.look_up(context, nullptr, &legacy));
}

}  // namespace

CUresult create_context(Session& session, uint32_t device, uint32_t flags, uint32_t sms,
                        Context** context) {
  *context = session.contexts.prepare(device, flags);
  if (*context == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  (*context)->launches_block = launches_block();
  (*context)->sms = sms_of_new_context(session.devices, device, sms);
  session.contexts.publish_beside_primary(*context);
  tell_limit(session, **context);
  return CUDA_SUCCESS;
}

CUresult destroy_context_objects(Session& session, Context& context) {
  CUresult result = session.synchronize(&context);
  interop_context_destroyed(context.as<CUcontext>());
  const auto keep_first = [&result](CUresult next) {
    if (result == CUDA_SUCCESS) result = next;
  };
  session.modules.for_each([&](Module& module) {
    if (module.context == &context) keep_first(session.modules.unload(&module));
  });
  session.events.for_each([&](Event& event) {
    if (event.context == &context) keep_first(session.events.destroy(&event));
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
    if (stream.context == &context) keep_first(session.streams.destroy(&stream));
  });
  session.arrays.destroy_of(context);
  for (const DeviceMemory::Entry& entry : session.memory.forget_all(&context)) {
    session.memory.release(entry);
  }
  session.memory.trim();
  session.registered.remove_all(&context);
  session.pinned.release_all(&context);
  if (session.channel.status() != CUDA_SUCCESS) return session.channel.status();
  keep_first(session.channel.call(wire::ContextReset{context.id, context.wire_device}));
  return result;
}

void retain_primary_locked(Session& session, Context& context) {
  context.retained.fetch_add(1, std::memory_order_relaxed);
  if (context.active.load(std::memory_order_relaxed)) return;
  context.unique_id = session.contexts.new_id();
  context.sms = sms_of_new_context(session.devices, context.device, 0);
  context.launches_block = launches_block();
  context.active.store(true, std::memory_order_release);
  tell_limit(session, context);
}

CUresult release_primary_locked(Session& session, uint32_t device) {
  Context* context = session.contexts.primary[device];
  if (context->retained.load(std::memory_order_relaxed) == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (context->retained.fetch_sub(1, std::memory_order_relaxed) > 1) return CUDA_SUCCESS;
  if (!context->active.load(std::memory_order_relaxed)) return CUDA_SUCCESS;  // was reset
  const CUresult result = destroy_context_objects(session, *context);
  context->active.store(false, std::memory_order_release);
  return result;
}

CUresult create_green_locked(Session& session, const ResourceDescriptor& descriptor,
                             uint32_t device, uint32_t flags, GreenContext** green) {
  return session.greens.make(green, [&](GreenContext& made) {
    const wire::GreenCreate command{made.id, descriptor.id, session.devices[device], flags};
    OPENMPS_CUDA_CHECK(
        session.memory.retry_after_reclaim([&] { return session.channel.call(command); }));
    Context* primary = session.contexts.primary[device];
    Context* view = session.contexts.prepare(device, primary->flags.load());
    if (view == nullptr) {
      static_cast<void>(session.channel.call(wire::GreenDestroy{made.id}));
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    retain_primary_locked(session, *primary);
    view->parent = primary;
    view->green = &made;
    made.view = view;
    made.sms = descriptor.sms;
    made.unique_id = session.contexts.new_id();
    session.contexts.publish_beside_primary(view);
    return CUDA_SUCCESS;
  });
}

CUresult destroy_green_locked(Session& session, GreenContext* green) {
  if (!session.greens.retire(green)) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  Context* view = green->view;
  CUresult result = session.contexts.retire(view) ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
  const auto keep_first = [&result](CUresult next) {
    if (result == CUDA_SUCCESS) result = next;
  };
  static_cast<void>(session.captures.refuse(*view));
  keep_first(session.synchronize(view));
  interop_context_destroyed(view->as<CUcontext>());
  const Stream* own[] = {view->legacy.load(), view->gathering.load(), view->barrier.load()};
  session.streams.for_each([&](Stream& stream) {
    if (stream.context != view) return;
    const bool programs =
        !stream.per_thread && std::find(std::begin(own), std::end(own), &stream) == std::end(own);
    keep_first(programs ? session.streams.detach(&stream) : session.streams.destroy(&stream));
  });
  keep_first(session.channel.call(wire::GreenDestroy{green->id}));
  session.contexts.recycle(view);
  session.greens.recycle(green);
  return result;
}

}  // namespace openmps::client
