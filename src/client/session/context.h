// SPDX-License-Identifier: Apache-2.0
// Contexts: all of a client's contexts on a device are views of the one that the worker holds. What
// makes them different (streams, lifetime of objects) is kept here. Any thread.
#pragma once

#include "client/session/session.h"
#include "cuda/abi.h"

namespace openmps::client {

// `sms`: by execution affinity (context_sms.h); 0: nothing said. Errors: CUDA_ERROR_OUT_OF_MEMORY.
[[nodiscard]] CUresult create_context(Session& session, uint32_t device, uint32_t flags,
                                      uint32_t sms, Context** context);

// A green context on the primary context of the descriptor's device, which it retains;
// Contexts::lock is held. Errors: CUDA_ERROR_OUT_OF_MEMORY, the driver's.
[[nodiscard]] CUresult create_green_locked(Session& session, const ResourceDescriptor& descriptor,
                                           uint32_t device, uint32_t flags, GreenContext** green);
// Waits for its work; its streams can only be destroyed from then on. Contexts::lock is held. The
// primary context stays retained.
[[nodiscard]] CUresult destroy_green_locked(Session& session, GreenContext* green);
// A reference to a primary context; Contexts::lock is held. One that nobody had, or that was reset,
// is a new context.
void retain_primary_locked(Session& session, Context& context);
// Give a reference to the primary context back; Contexts::lock is held.
// Errors: CUDA_ERROR_INVALID_CONTEXT: nobody retains it.
[[nodiscard]] CUresult release_primary_locked(Session& session, uint32_t device);

// Wait for the context's work, then destroy everything that was made in it.
[[nodiscard]] CUresult destroy_context_objects(Session& session, Context& context);

}  // namespace openmps::client
