// SPDX-License-Identifier: Apache-2.0
// Green contexts. See green_context.h.
#include "softgpu/device/green_context.h"

#include "softgpu/device/context.h"
#include "softgpu/device/driver.h"
#include "softgpu/device/event.h"
#include "softgpu/device/stream.h"

namespace openmps::softgpu {

GreenContext::~GreenContext() {
  // Fails only if the primary was reset meanwhile, which released it for everybody.
  if (primary != nullptr) (void)primary->release_primary().ok();
}

Result<std::shared_ptr<GreenContext>> create_green_context(Driver& driver, int device,
                                                           const SmSet& sms) {
  std::shared_ptr<Context> primary = driver.devices[device].primary;
  OPENMPS_RETURN_IF_ERROR(primary->retain_primary());
  auto green = std::make_shared<GreenContext>();
  green->primary = primary;
  green->id = driver.new_id();
  green->sms = sms;
  green->view = Context::create(driver, driver.devices[device], ContextKind::kCreated, 0);
  green->handle = driver.green_contexts.add(green);
  if (green->view == nullptr || green->handle == nullptr)
    return Status(CUDA_ERROR_OUT_OF_MEMORY, "too many contexts");
  green->view->green_parent = primary;
  green->view->green = green;
  return green;
}

Status destroy_green_context(Driver& driver, CUgreenCtx handle) {
  std::shared_ptr<GreenContext> green = driver.green_contexts.remove(handle);
  if (green == nullptr) return Status(CUDA_ERROR_INVALID_HANDLE, "not a green context");
  driver.contexts.remove(green->view->handle());
  // Streams hold the green context: they go with it, after what they were given is done.
  for (const auto& stream :
       driver.streams.remove_if([&](const Stream& s) { return s.green == green; })) {
    (void)synchronize_stream(*stream).ok();
    stream->green.reset();
  }
  return Status();
}

Status record_green_event(Driver& driver, GreenContext& green, Event& event) {
  std::shared_ptr<ExecutionContext> execution = green.primary->execution();
  if (execution == nullptr || event.execution != execution)
    return Status(CUDA_ERROR_INVALID_HANDLE, "the event is of another context");
  auto marker = std::make_shared<MarkerOperation>(execution);
  std::vector<OperationPtr> tails;
  auto streams = driver.streams.find_if([&](const Stream& s) { return s.green.get() == &green; });
  {
    std::lock_guard lock(driver.scheduler.mutex);
    for (const auto& stream : streams) tails.push_back(stream->queue->tail);
    driver.scheduler.submit_unordered_locked(marker, tails);
  }
  std::lock_guard lock(event.mutex);
  event.record = std::move(marker);
  return Status();
}

}  // namespace openmps::softgpu
