// SPDX-License-Identifier: Apache-2.0
// Green contexts: a set of SMs of the primary context. Streams made for one place their kernels on
// those SMs only; everything else, errors included, is the primary context's. API threads.
#pragma once

#include <memory>
#include <vector>

#include "cuda/status.h"
#include "softgpu/device/machine/sm.h"

namespace openmps::softgpu {

class Context;

// The SMs of a CUdevResource, which a CUdevResourceDesc collects.
struct ResourceDescriptor {
  int device = 0;
  SmSet sms;
};

// Where a kernel runs: on the multiprocessors of a green context, or on all of its device.
struct Placement {
  SmSet sms;
  CUcontext view = nullptr;  // of the green context, which may be gone; null: the primary context
};

struct GreenContext {
  CUgreenCtx handle = nullptr;
  uint64_t id = 0;
  std::shared_ptr<Context> primary;  // retained
  std::shared_ptr<Context> view;     // cuCtxFromGreenCtx
  SmSet sms;
};

// SM resources are handed out in steps of two, as on compute capability 9.0.
inline constexpr uint32_t kSmGranularity = 2;

}  // namespace openmps::softgpu
