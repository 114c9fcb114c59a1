// SPDX-License-Identifier: Apache-2.0
// Creation and destruction of contexts and of what belongs to them.
#include "client/context.h"

#include <string.h>

#include "client/stream.h"

namespace openmps::client {
namespace {

Context* new_context(Session& session, uint32_t device, uint32_t flags) {
  Context* context = session.contexts.allocate();
  if (context == nullptr) return nullptr;
  context->device = device;
  context->wire_device = session.devices[device];
  context->flags.store(flags, std::memory_order_relaxed);
  context->unique_id = session.next_unique_id.fetch_add(1, std::memory_order_relaxed);
  memcpy(context->limit, session.device(device).limit, sizeof(context->limit));
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
  context.legacy.store(nullptr, std::memory_order_release);
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
  keep_first(session.channel.call(wire::Opcode::kContextReset,
                                  wire::ContextOnly{context.id, context.wire_device}));
  memcpy(context.limit, session.device(context.device).limit, sizeof(context.limit));
  return result;
}

}  // namespace openmps::client
