// SPDX-License-Identifier: Apache-2.0
// Contexts: all of a client's contexts on a device are views of the one that the worker holds. What
// makes them different (streams, limits, lifetime of objects) is kept here. Any thread.
#pragma once

#include "base/cuda_abi.h"
#include "client/session.h"

namespace openmps::client {

// The inactive primary contexts of all devices, with stable handles; called once at connect.
void create_primary_contexts(Session& session);

// Errors: CUDA_ERROR_OUT_OF_MEMORY.
[[nodiscard]] CUresult create_context(Session& session, uint32_t device, uint32_t flags,
                                      Context** context);

// Wait for the context's work, then destroy everything that was made in it.
[[nodiscard]] CUresult destroy_context_objects(Session& session, Context& context);

// Destructors of what other objects' files own.
[[nodiscard]] CUresult destroy_event(Session& session, Event* event);
[[nodiscard]] CUresult unload_module(Session& session, Module* module);

// Called with the context's handle when it is reset or destroyed: its local storage goes.
void context_storage_cleared(CUcontext context);

}  // namespace openmps::client
