// SPDX-License-Identifier: Apache-2.0
// Events. See event.h.
#include "softgpu/device/event.h"

#include "softgpu/device/capture.h"
#include "softgpu/device/context.h"
#include "softgpu/device/driver.h"
#include "softgpu/device/green_context.h"
#include "softgpu/device/stream.h"

namespace openmps::softgpu {
OperationPtr last_record(Event& event) {
  std::lock_guard lock(event.mutex);
  return event.record;
}

void set_record(Event& event, OperationPtr record) {
  {
    std::lock_guard lock(capture_mutex());
    event.capture.reset();
    event.capture_nodes.clear();
  }
  std::lock_guard lock(event.mutex);
  event.record = std::move(record);
}

Result<std::shared_ptr<Event>> create_event(const std::shared_ptr<Context>& context,
                                            unsigned flags) {
  constexpr unsigned kKnown =
      CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
  if ((flags & ~kKnown) != 0 ||
      ((flags & CU_EVENT_INTERPROCESS) != 0 && (flags & CU_EVENT_DISABLE_TIMING) == 0))
    return Status(CUDA_ERROR_INVALID_VALUE, "unknown or contradictory event flags");
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

bool is_reached(Event& event) {
  if (event.shared == nullptr) return event.context->driver().scheduler.is_done(last_record(event));
  const SharedEvent::Counters& counters = *event.shared->counters;
  return counters.reached.load() >= counters.recorded.load();
}

}  // namespace

Work record_work(const Event& event) {
  if (event.shared == nullptr) return MarkerWork{};
  const uint64_t count = event.shared->counters->recorded.fetch_add(1) + 1;
  return shared_work(event, WordAction::Kind::kRaise, count);
}

Work wait_work(const Event& event) {
  if (event.shared == nullptr) return MarkerWork{};
  return shared_work(event, WordAction::Kind::kWait, event.shared->counters->recorded.load());
}

Status record_event(Event& event, Stream& stream) {
  if (event.execution != stream.execution)
    return Status(CUDA_ERROR_INVALID_HANDLE, "event and stream are of different contexts");
  if (stream.capturing) return capture_record(stream, event);
  OperationPtr marker;
  OPENMPS_RETURN_IF_ERROR(issue(stream, record_work(event), &marker));
  set_record(event, std::move(marker));
  return Status();
}

namespace {

// CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED if a stream of the context is captured, which ends that.
Status refuse_captures(Driver& driver, const ExecutionContext& execution, uint64_t green) {
  auto captured = driver.streams.find_if([&](const Stream& s) {
    return s.capturing && s.execution.get() == &execution &&
           (green == 0 || s.queue->green == green);
  });
  for (const auto& stream : captured) invalidate_capture(*stream);
  return captured.empty() ? Status()
                          : Status(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                                   "a stream of the context is being captured");
}

Result<std::shared_ptr<ExecutionContext>> execution_of(const Context& context) {
  std::shared_ptr<ExecutionContext> execution = context.execution();
  if (execution == nullptr)
    return Status(CUDA_ERROR_CONTEXT_IS_DESTROYED, "the context is not active");
  return execution;
}

// What a primary context's event is about includes its green contexts. Under the scheduler's mutex.
std::vector<StreamQueue*> queues_locked(const ExecutionContext& execution, uint64_t green) {
  std::vector<StreamQueue*> queues;
  if (green == 0) queues.push_back(execution.legacy.get());
  for (const auto& queue : execution.streams)
    if (green == 0 || queue->green == green) queues.push_back(queue.get());
  return queues;
}

uint64_t green_of(const Context& context) {
  std::shared_ptr<GreenContext> green = context.green.lock();
  return green == nullptr ? 0 : green->id;
}

}  // namespace

Status record_context_event(Driver& driver, const Context& context, Event& event) {
  Result<std::shared_ptr<ExecutionContext>> execution = execution_of(context);
  if (!execution.ok()) return execution.status();
  if (event.execution != *execution)
    return Status(CUDA_ERROR_INVALID_HANDLE, "the event is of another context");
  const uint64_t green = green_of(context);
  OPENMPS_RETURN_IF_ERROR(refuse_captures(driver, **execution, green));
  OperationPtr marker = make_operation(record_work(event), *execution, *(*execution)->legacy);
  {
    std::lock_guard lock(driver.scheduler.mutex);
    std::vector<OperationPtr> tails;
    for (const StreamQueue* queue : queues_locked(**execution, green)) tails.push_back(queue->tail);
    driver.scheduler.submit_unordered_locked(marker, tails);
  }
  set_record(event, std::move(marker));
  return Status();
}

Status wait_context_event(Driver& driver, const Context& context, Event& event) {
  Result<std::shared_ptr<ExecutionContext>> execution = execution_of(context);
  if (!execution.ok()) return execution.status();
  const uint64_t green = green_of(context);
  Status refused = refuse_captures(driver, **execution, green);
  {
    std::lock_guard lock(capture_mutex());
    if (event.capture != nullptr) {
      event.capture->invalidated = true;
      refused = Status(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "the event is of a capture");
    }
  }
  OPENMPS_RETURN_IF_ERROR(refused);
  OperationPtr record = last_record(event);
  if (record == nullptr && event.shared == nullptr) return Status();
  std::lock_guard lock(driver.scheduler.mutex);
  for (StreamQueue* queue : queues_locked(**execution, green))
    driver.scheduler.submit_locked(*queue, make_operation(wait_work(event), *execution, *queue),
                                   {&record, 1});
  return Status();
}

Status wait_event(Stream& stream, Event& event) {
  bool captured_event = false;
  {
    std::lock_guard lock(capture_mutex());
    captured_event = event.capture != nullptr;
  }
  if (captured_event || stream.capturing) return capture_wait(stream, event);
  OperationPtr record = last_record(event);
  if (record == nullptr && event.shared == nullptr) return Status();
  return issue(stream, wait_work(event), nullptr, {&record, 1});
}

Status query_event(Event& event) {
  OPENMPS_RETURN_IF_ERROR(check_not_captured(event, true));
  OPENMPS_RETURN_IF_ERROR(check_unsafe_call());
  const bool done = is_reached(event);
  OPENMPS_RETURN_IF_ERROR(sticky_error(*event.execution));
  return done ? Status() : Status(CUDA_ERROR_NOT_READY, "");
}

Status synchronize_event(Event& event) {
  OPENMPS_RETURN_IF_ERROR(check_not_captured(event, true));
  OPENMPS_RETURN_IF_ERROR(check_unsafe_call());
  Scheduler& scheduler = event.context->driver().scheduler;
  OperationPtr awaited = last_record(event);
  if (event.shared != nullptr) {
    awaited = make_operation(wait_work(event), event.execution, *event.execution->legacy);
    std::lock_guard lock(scheduler.mutex);
    scheduler.submit_unordered_locked(awaited, {});
  }
  scheduler.wait(awaited);
  event.execution->flush_output();
  return sticky_error(*event.execution);
}

Result<float> elapsed_ms(Event& start, Event& end) {
  for (Event* event : {&start, &end}) {
    if ((event->flags & CU_EVENT_DISABLE_TIMING) != 0)
      return Status(CUDA_ERROR_INVALID_HANDLE, "an event made without timing");
    OPENMPS_RETURN_IF_ERROR(check_not_captured(*event, false));
    if (last_record(*event) == nullptr)
      return Status(CUDA_ERROR_INVALID_HANDLE, "an event that was never recorded");
  }
  OperationPtr first = last_record(start);
  OperationPtr second = last_record(end);
  Scheduler& scheduler = start.context->driver().scheduler;
  std::lock_guard lock(scheduler.mutex);
  if (!first->done || !second->done) return Status(CUDA_ERROR_NOT_READY, "");
  auto difference =
      static_cast<int64_t>(second->finished_ns) - static_cast<int64_t>(first->finished_ns);
  return static_cast<float>(static_cast<double>(difference) / 1e6);
}

}  // namespace openmps::softgpu
