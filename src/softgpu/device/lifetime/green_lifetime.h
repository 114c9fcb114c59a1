// SPDX-License-Identifier: Apache-2.0
// The making and the end of green contexts. API threads.
#pragma once

#include <memory>

#include "cuda/status.h"
#include "softgpu/device/contexts/green_context.h"

namespace openmps::softgpu {

class Driver;

Result<std::shared_ptr<GreenContext>> create_green_context(Driver& driver, int device,
                                                           const SmSet& sms);
// Waits for what its streams do; they can only be destroyed from then on.
// CUDA_ERROR_INVALID_CONTEXT.
Status destroy_green_context(Driver& driver, CUgreenCtx handle);

}  // namespace openmps::softgpu
