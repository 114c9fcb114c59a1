// SPDX-License-Identifier: Apache-2.0
// See contexts.h.
#include "client/context/contexts.h"

namespace openmps::client {

Contexts::Contexts(const Devices& devices)
    : HandleTable<Context>(HandleKind::kContext), devices_(devices) {
  for (uint32_t device = 0; device < devices.size(); ++device) {
    primary[device] = prepare(device, CU_CTX_SCHED_AUTO);
    primary[device]->primary = true;
    publish(primary[device]);
  }
}

Context* Contexts::prepare(uint32_t device, uint32_t flags) {
  Context* context = allocate();
  if (context == nullptr) return nullptr;
  context->device = device;
  context->wire_device = devices_[device];
  context->sms = 0;
  context->flags.store(flags, std::memory_order_relaxed);
  context->unique_id = new_id();
  return context;
}

void Contexts::publish_beside_primary(Context* context) {
  context->active.store(true, std::memory_order_relaxed);
  several.store(true, std::memory_order_relaxed);
  publish(context);
}

CUresult Contexts::look_up(CUcontext handle, Context** context) const {
  *context = find(handle);
  if (*context != nullptr) return CUDA_SUCCESS;
  const uint64_t tag = reinterpret_cast<uint64_t>(handle) >> 56;
  return tag == kHandleTag + static_cast<uint64_t>(HandleKind::kContext)
             ? CUDA_ERROR_CONTEXT_IS_DESTROYED
             : CUDA_ERROR_INVALID_CONTEXT;
}

bool Contexts::differ(CUcontext one, CUcontext other) const {
  const Context* first = find(one);
  const Context* second = find(other);
  return first != nullptr && second != nullptr && !first->runs_like(*second);
}

}  // namespace openmps::client
