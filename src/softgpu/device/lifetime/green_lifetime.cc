// SPDX-License-Identifier: Apache-2.0
// Green contexts come and go. See green_lifetime.h.
#include "softgpu/device/lifetime/green_lifetime.h"

#include <utility>

#include "softgpu/device/contexts/context.h"
#include "softgpu/device/contexts/stream.h"
#include "softgpu/device/driver.h"
#include "softgpu/device/graphs/capture.h"
#include "softgpu/device/lifetime/context_lifetime.h"
#include "softgpu/device/schedule/scheduler.h"

namespace openmps::softgpu {

Result<std::shared_ptr<GreenContext>> create_green_context(Driver& driver, int device,
                                                           const SmSet& sms) {
  std::shared_ptr<Context> primary = driver.devices[device].primary;
  OPENMPS_RETURN_IF_ERROR(retain_primary(*primary));
  auto green = std::make_shared<GreenContext>();
  green->primary = primary;
  green->id = driver.new_id();
  green->sms = sms;
  green->view = Context::create(driver, driver.devices[device], ContextKind::kCreated, 0);
  green->handle = driver.green_contexts.add(green);
  if (green->view == nullptr || green->handle == nullptr) {
    (void)release_primary(*primary).ok();
    return Status(CUDA_ERROR_OUT_OF_MEMORY, "too many contexts");
  }
  green->view->green_parent = primary;
  green->view->green = green;
  green->view->green_default =
      make_stream(green->view, primary->execution(), CU_STREAM_NON_BLOCKING, 0);
  return green;
}

Status destroy_green_context(Driver& driver, CUgreenCtx handle) {
  std::shared_ptr<GreenContext> green = driver.green_contexts.remove(handle);
  if (green == nullptr) return Status(CUDA_ERROR_INVALID_CONTEXT, "not a green context");
  driver.contexts.remove(green->view->handle());
  // Streams hold the green context; from now on they can only be destroyed.
  auto streams = driver.streams.find_if([&](const Stream& s) { return s.green == green; });
  streams.push_back(std::exchange(green->view->green_default, nullptr));
  for (const auto& stream : streams) {
    if (stream->capturing) driver.captures.invalidate(*stream);
    driver.scheduler.wait(driver.scheduler.tail(*stream->queue));
    stream->detached = true;
    stream->green.reset();
  }
  // Fails only if the primary was reset meanwhile, which released it for everybody.
  (void)release_primary(*green->primary).ok();
  return Status();
}

}  // namespace openmps::softgpu
