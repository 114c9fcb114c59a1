// SPDX-License-Identifier: Apache-2.0
// The contexts of a session by handle, and the calling thread's current one. Any thread. What
// belongs to a context, and how a context ends, is in session/context.h.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/mutex.h"
#include "client/context/thread_state.h"
#include "client/devices.h"
#include "client/handle_table.h"
#include "client/objects.h"
#include "cuda/abi.h"

namespace openmps::client {

class Contexts : public HandleTable<Context> {
 public:
  // Makes the primary contexts of all devices, inactive. Their handles never change.
  explicit Contexts(const Devices& devices);

  // The number of SMs that programs are told for the context.
  [[nodiscard]] uint32_t sms(const Context& context) const {
    return context.sms != 0 ? context.sms : devices_.sms(context.device);
  }
  // The number of SMs that kernels of the context run on.
  [[nodiscard]] uint32_t kernel_sms(const Context& context) const {
    return context.green != nullptr ? context.green->sms : sms(context);
  }
  // Both contexts live, and their kernels run on different SMs.
  [[nodiscard]] bool differ(CUcontext one, CUcontext other) const;

  // A context that programs can't find yet. nullptr: the limit of objects is reached.
  [[nodiscard]] Context* prepare(uint32_t device, uint32_t flags);
  void publish_beside_primary(Context* context);
  [[nodiscard]] unsigned long long new_id() {
    return next_id_.fetch_add(1, std::memory_order_relaxed);
  }

  // The calling thread's current context. Errors: CUDA_ERROR_INVALID_CONTEXT (none),
  // CUDA_ERROR_CONTEXT_IS_DESTROYED (destroyed, or a primary context that is not retained).
  [[nodiscard]] CUresult current(Context** context) const;
  // By handle. Errors: CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_CONTEXT_IS_DESTROYED.
  [[nodiscard]] CUresult look_up(CUcontext handle, Context** context) const;

  Context* primary[wire::kMaxDevices] = {};  // by the program's ordinal
  Mutex lock{LockRank::kClientContexts};     // held by activation, creation and destruction
  // The program has made contexts beside the primary ones. The worker orders copies within a
  // context only, so staged copies are waited for then.
  std::atomic<bool> several{false};

 private:
  const Devices& devices_;
  std::atomic<uint64_t> next_id_{1};
};

inline CUresult Contexts::current(Context** context) const {
  const ThreadState& thread = this_thread();
  if (thread.contexts.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  *context = find(thread.contexts.back());
  if (*context == nullptr || !(*context)->active.load(std::memory_order_acquire)) {
    return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  }
  return CUDA_SUCCESS;
}

}  // namespace openmps::client
