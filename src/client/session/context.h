// SPDX-License-Identifier: Apache-2.0
// Creation and destruction of contexts. All contexts of a client on a device are views of the one
// context that the worker has there; what distinguishes them (streams, lifetime of objects) is kept
// in the client. Any thread.
#pragma once

#include "client/session/session.h"
#include "cuda/abi.h"

namespace openmps::client {

// `sms`: by execution affinity (context_sms.h); 0: no affinity. Errors: CUDA_ERROR_OUT_OF_MEMORY.
[[nodiscard]] CUresult create_context(Session& session, uint32_t device, uint32_t flags,
                                      uint32_t sms, Context** context);

// A green context on the primary context of the descriptor's device, which it retains;
// Contexts::lock is held. Errors: CUDA_ERROR_OUT_OF_MEMORY, the driver's.
[[nodiscard]] CUresult create_green_locked(Session& session, const ResourceDescriptor& descriptor,
                                           uint32_t device, uint32_t flags, GreenContext** green);
// Waits for the green context's work; its streams can only be destroyed from then on.
// Contexts::lock is held. The primary context remains retained.
[[nodiscard]] CUresult destroy_green_locked(Session& session, GreenContext* green);
// Takes a reference to a primary context; Contexts::lock is held. A primary context that was not
// retained, or was reset, becomes a new context.
void retain_primary_locked(Session& session, Context& context);
// Releases a reference to the primary context; Contexts::lock is held.
// Errors: CUDA_ERROR_INVALID_CONTEXT: it is not retained.
[[nodiscard]] CUresult release_primary_locked(Session& session, uint32_t device);

// Waits for the context's work, then destroys everything that was made in the context.
[[nodiscard]] CUresult destroy_context_objects(Session& session, Context& context);

}  // namespace openmps::client
