// SPDX-License-Identifier: Apache-2.0
// What contexts come and go with. See context_lifetime.h.
#include "softgpu/device/lifetime/context_lifetime.h"

#include <algorithm>

#include "softgpu/device/contexts/context.h"
#include "softgpu/device/contexts/stream.h"
#include "softgpu/device/driver.h"
#include "softgpu/device/graphs/capture.h"
#include "softgpu/device/image_objects.h"
#include "softgpu/device/machine/sm.h"
#include "softgpu/device/memory/memory.h"
#include "softgpu/device/schedule/scheduler.h"
#include "softgpu/device/work/event.h"
#include "softgpu/device/work/module.h"

namespace openmps::softgpu {
namespace {

// What a context costs on the device: local memory of all resident threads, heap, printf FIFO.
uint64_t storage_bytes(const Config& config) {
  const SmLimits sm = sm_limits(config.compute_capability);
  constexpr uint64_t kHeap = 8ull << 20;
  constexpr uint64_t kPrintf = 1ull << 20;
  uint64_t local = static_cast<uint64_t>(config.sm_count) * sm.threads * kDefaultStackBytes;
  // A device smaller than the model's usual storage still runs something.
  return std::min(local + kHeap + kPrintf, config.memory_bytes / 16);
}

// Objects of the execution: their handles are no longer valid.
void forget_objects(Driver& driver, const std::shared_ptr<ExecutionContext>& execution) {
  auto of_this = [&](const auto& object) { return object.execution == execution; };
  driver.streams.remove_if(of_this);
  driver.events.remove_if(of_this);
  for (const auto& module : driver.modules.remove_if(of_this)) module->forget_functions();
  // Not inside find_if(), which holds the table: a library and the end of a module take locks.
  for (const auto& library : driver.libraries.find_if([](const Library&) { return true; })) {
    library->drop_instance(execution->id);
  }
  driver.texture_objects.remove_if(of_this);
  driver.surface_objects.remove_if(of_this);
  driver.arrays.remove_if(of_this);
  driver.mipmapped_arrays.remove_if(of_this);
}

}  // namespace

Status activate(Context& context) {
  const MutexLock order(context.lifetime.order);
  if (context.execution() != nullptr) return Status();
  Driver& driver = context.driver();
  Scheduler& scheduler = driver.scheduler;
  DeviceSegment& segment = *context.device().segment;
  const uint64_t storage = storage_bytes(driver.config);
  OPENMPS_RETURN_IF_ERROR(segment.reserve_memory(storage));
  Status listed =
      segment.add_context(context.id(), context.kind(), driver.config.exclusive_process);
  if (!listed.ok()) {
    segment.return_memory(storage);
    return listed;
  }
  context.lifetime.storage = storage;
  auto execution = std::make_shared<ExecutionContext>(
      driver, context.device().ordinal,
      [&scheduler](const Backing& backing) { scheduler.reclaim_later(backing); });
  scheduler.open(execution);
  std::shared_ptr<Stream> legacy = make_legacy_stream(context.shared_from_this(), execution);
  context.set_execution(std::move(execution), std::move(legacy));
  return Status();
}

void deactivate(Context& context) {
  const MutexLock order(context.lifetime.order);
  std::shared_ptr<ExecutionContext> execution = context.execution();
  if (execution == nullptr) return;
  Driver& driver = context.driver();
  driver.captures.end_all(*execution);
  driver.scheduler.close(*execution);
  execution->flush_output();
  context.set_execution(nullptr, nullptr);
  driver.scheduler.forget_streams(*execution);
  forget_objects(driver, execution);
  driver.memory.release_context(&context);
  const ContextLimits usual;
  context.limits.pending_launches = usual.pending_launches.load();
  context.limits.l2_fetch_bytes = usual.l2_fetch_bytes.load();
  context.limits.persisting_l2_bytes = usual.persisting_l2_bytes.load();
  context.device().segment->remove_context(context.id());
  context.device().segment->return_memory(context.lifetime.storage);
}

Status retain_primary(Context& primary) {
  OPENMPS_RETURN_IF_ERROR(activate(primary));
  const MutexLock lock(primary.lifetime.mutex);
  ++primary.lifetime.retained;
  return Status();
}

Status release_primary(Context& primary) {
  {
    const MutexLock lock(primary.lifetime.mutex);
    if (primary.lifetime.retained == 0) {
      return Status(CUDA_ERROR_INVALID_CONTEXT, "the primary context is not retained");
    }
    if (--primary.lifetime.retained > 0) return Status();
  }
  deactivate(primary);
  return Status();
}

// References that were retained are still to be released, but name no active context any more.
void reset_primary(Context& primary) {
  primary.flags = CU_CTX_SCHED_AUTO;
  deactivate(primary);
}

}  // namespace openmps::softgpu
