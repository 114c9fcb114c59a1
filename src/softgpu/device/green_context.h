// SPDX-License-Identifier: Apache-2.0
// Green contexts: a set of SMs of the primary context. Streams made for one place their kernels on
// those SMs only; everything else, errors included, is the primary context's. API threads.
#pragma once

#include <memory>
#include <vector>

#include "base/status.h"
#include "softgpu/device/sm.h"

namespace openmps::softgpu {

class Context;
class Driver;
struct Event;

// What a CUdevResource of SMs stands for, and a CUdevResourceDesc collects.
struct ResourceDescriptor {
  int device = 0;
  SmSet sms;
};

struct GreenContext {
  ~GreenContext();

  CUgreenCtx handle = nullptr;
  uint64_t id = 0;
  std::shared_ptr<Context> primary;  // retained
  std::shared_ptr<Context> view;     // cuCtxFromGreenCtx
  SmSet sms;
};

// SM resources are handed out in steps of two, as on compute capability 9.0.
inline constexpr uint32_t kSmGranularity = 2;

Result<std::shared_ptr<GreenContext>> create_green_context(Driver& driver, int device,
                                                           const SmSet& sms);
// CUDA_ERROR_INVALID_HANDLE. Its streams must not be used any more.
Status destroy_green_context(Driver& driver, CUgreenCtx handle);
// The event is reached when everything issued so far to the streams of the green context is done.
Status record_green_event(Driver& driver, GreenContext& green, Event& event);

}  // namespace openmps::softgpu
