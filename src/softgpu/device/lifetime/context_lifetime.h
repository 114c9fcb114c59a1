// SPDX-License-Identifier: Apache-2.0
// Life and death of contexts: what comes with one and goes with it. API threads.
#pragma once

#include "cuda/status.h"

namespace openmps::softgpu {

class Context;

// Becomes usable. CUDA_ERROR_OUT_OF_MEMORY: its storage does not fit the device.
Status activate(Context& context);
// Drains it and frees everything in it. A no-op when it is not active.
void deactivate(Context& context);

// cuDevicePrimaryCtxRetain, Release, Reset. Release: CUDA_ERROR_INVALID_CONTEXT if not retained.
Status retain_primary(Context& primary);
Status release_primary(Context& primary);
void reset_primary(Context& primary);

}  // namespace openmps::softgpu
