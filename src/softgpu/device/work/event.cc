// SPDX-License-Identifier: Apache-2.0
// Events. See event.h.
#include "softgpu/device/work/event.h"

#include "softgpu/device/contexts/context.h"
#include "softgpu/device/driver.h"
#include "softgpu/device/memory/ipc.h"

namespace openmps::softgpu {

OperationPtr last_record(Event& event) {
  const MutexLock lock(event.mutex);
  return event.record;
}

Result<std::shared_ptr<Event>> create_event(const std::shared_ptr<Context>& context,
                                            unsigned flags) {
  constexpr unsigned kKnown =
      CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
  if ((flags & ~kKnown) != 0 ||
      ((flags & CU_EVENT_INTERPROCESS) != 0 && (flags & CU_EVENT_DISABLE_TIMING) == 0)) {
    return Status(CUDA_ERROR_INVALID_VALUE, "unknown or contradictory event flags");
  }
  auto event = std::make_shared<Event>();
  event->context = context;
  event->execution = context->execution();
  event->flags = flags;
  if ((flags & CU_EVENT_INTERPROCESS) != 0) {
    Result<std::shared_ptr<SharedEvent>> shared = context->driver().ipc.make_event();
    if (!shared.ok()) return shared.status();
    event->shared = *shared;
  }
  event->handle = context->driver().events.add(event);
  if (event->handle == nullptr) return Status(CUDA_ERROR_OUT_OF_MEMORY, "too many events");
  return event;
}

Result<std::shared_ptr<Event>> adopt_event(const std::shared_ptr<Context>& context,
                                           std::shared_ptr<SharedEvent> shared) {
  Result<std::shared_ptr<Event>> event = create_event(context, CU_EVENT_DISABLE_TIMING);
  if (!event.ok()) return event;
  (*event)->flags |= CU_EVENT_INTERPROCESS;
  (*event)->shared = std::move(shared);
  return event;
}

namespace {

Work shared_work(const Event& event, WordAction::Kind kind, uint64_t count) {
  WordAction action;
  action.kind = kind;
  action.bytes = sizeof count;
  action.address = reinterpret_cast<uint64_t>(&event.shared->counters->reached);
  action.value = count;
  action.condition = CU_STREAM_WAIT_VALUE_GEQ;
  return WordsWork{{action}, event.shared};
}
}  // namespace

Work record_work(const Event& event) {
  if (event.shared == nullptr) return MarkerWork{(event.flags & CU_EVENT_DISABLE_TIMING) != 0};
  const uint64_t count = event.shared->counters->recorded.fetch_add(1) + 1;
  return shared_work(event, WordAction::Kind::kRaise, count);
}

Work wait_work(const Event& event) {
  if (event.shared == nullptr) return MarkerWork{};
  return shared_work(event, WordAction::Kind::kWait, event.shared->counters->recorded.load());
}

}  // namespace openmps::softgpu
