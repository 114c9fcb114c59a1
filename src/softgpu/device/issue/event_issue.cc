// SPDX-License-Identifier: Apache-2.0
// See event_issue.h.
#include "softgpu/device/issue/event_issue.h"

#include <optional>
#include <vector>

#include "softgpu/device/contexts/context.h"
#include "softgpu/device/contexts/green_context.h"
#include "softgpu/device/driver.h"
#include "softgpu/device/graphs/capture.h"
#include "softgpu/device/issue/issue.h"
#include "softgpu/device/issue/make_operation.h"
#include "softgpu/device/memory/ipc.h"
#include "softgpu/device/schedule/scheduler.h"

namespace openmps::softgpu {
namespace {

bool is_reached(Event& event) {
  if (event.shared == nullptr) return event.context->driver().scheduler.is_done(last_record(event));
  const SharedEvent::Counters& counters = *event.shared->counters;
  return counters.reached.load() >= counters.recorded.load();
}

}  // namespace

void set_record(Event& event, OperationPtr record) {
  event.context->driver().captures.forget(event);
  const MutexLock lock(event.mutex);
  event.record = std::move(record);
}

Status record_event(Event& event, Stream& stream) {
  if (event.execution != stream.execution) {
    return Status(CUDA_ERROR_INVALID_HANDLE, "event and stream are of different contexts");
  }
  if (stream.capturing) return stream.context->driver().captures.record(stream, event);
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
  for (const auto& stream : captured) driver.captures.invalidate(*stream);
  return captured.empty() ? Status()
                          : Status(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                                   "a stream of the context is being captured");
}

Result<std::shared_ptr<ExecutionContext>> execution_of(const Context& context) {
  std::shared_ptr<ExecutionContext> execution = context.execution();
  if (execution == nullptr) {
    return Status(CUDA_ERROR_CONTEXT_IS_DESTROYED, "the context is not active");
  }
  return execution;
}

// What a primary context's event is about includes its green contexts.
std::vector<StreamQueue*> queues_locked(const ExecutionContext& execution, uint64_t green)
    REQUIRES(scheduler_mutex) {
  std::vector<StreamQueue*> queues;
  if (green == 0) queues.push_back(execution.legacy.get());
  for (const auto& queue : execution.streams) {
    if (green == 0 || queue->green == green) queues.push_back(queue.get());
  }
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
  if (event.execution != *execution) {
    return Status(CUDA_ERROR_INVALID_HANDLE, "the event is of another context");
  }
  const uint64_t green = green_of(context);
  OPENMPS_RETURN_IF_ERROR(refuse_captures(driver, **execution, green));
  OperationPtr marker = make_operation(record_work(event), *execution, *(*execution)->legacy);
  driver.scheduler.together([&](Submission& submission) REQUIRES(scheduler_mutex) {
    std::vector<OperationPtr> tails;
    for (const StreamQueue* queue : queues_locked(**execution, green)) tails.push_back(queue->tail);
    submission.submit_unordered(marker, tails);
  });
  set_record(event, std::move(marker));
  return Status();
}

Status wait_context_event(Driver& driver, const Context& context, Event& event) {
  Result<std::shared_ptr<ExecutionContext>> execution = execution_of(context);
  if (!execution.ok()) return execution.status();
  const uint64_t green = green_of(context);
  const Status refused = refuse_captures(driver, **execution, green);
  OPENMPS_RETURN_IF_ERROR(driver.captures.refuse(event));
  OPENMPS_RETURN_IF_ERROR(refused);
  OperationPtr record = last_record(event);
  if (record == nullptr && event.shared == nullptr) return Status();
  driver.scheduler.together([&](Submission& submission) REQUIRES(scheduler_mutex) {
    for (StreamQueue* queue : queues_locked(**execution, green)) {
      submission.submit(*queue, make_operation(wait_work(event), *execution, *queue), {&record, 1});
    }
  });
  return Status();
}

Status wait_event(Stream& stream, Event& event) {
  Captures& captures = stream.context->driver().captures;
  if (captures.has(event) || stream.capturing) return captures.wait(stream, event);
  OperationPtr record = last_record(event);
  if (record == nullptr && event.shared == nullptr) return Status();
  return issue(stream, wait_work(event), nullptr, {&record, 1});
}

Status query_event(Event& event) {
  Captures& captures = event.context->driver().captures;
  OPENMPS_RETURN_IF_ERROR(captures.check_not_captured(event, true));
  OPENMPS_RETURN_IF_ERROR(captures.check_unsafe_call());
  const bool done = is_reached(event);
  OPENMPS_RETURN_IF_ERROR(sticky_error(*event.execution));
  return done ? Status() : Status(CUDA_ERROR_NOT_READY, "");
}

Status synchronize_event(Event& event) {
  Driver& driver = event.context->driver();
  OPENMPS_RETURN_IF_ERROR(driver.captures.check_not_captured(event, true));
  OPENMPS_RETURN_IF_ERROR(driver.captures.check_unsafe_call());
  OperationPtr awaited = last_record(event);
  if (event.shared != nullptr) {
    awaited = make_operation(wait_work(event), event.execution, *event.execution->legacy);
    driver.scheduler.submit_unordered(awaited, {});
  }
  driver.scheduler.wait(awaited);
  event.execution->flush_output();
  return sticky_error(*event.execution);
}

Result<float> elapsed_ms(Event& start, Event& end) {
  Driver& driver = start.context->driver();
  for (Event* event : {&start, &end}) {
    if ((event->flags & CU_EVENT_DISABLE_TIMING) != 0) {
      return Status(CUDA_ERROR_INVALID_HANDLE, "an event made without timing");
    }
    OPENMPS_RETURN_IF_ERROR(driver.captures.check_not_captured(*event, false));
    if (last_record(*event) == nullptr) {
      return Status(CUDA_ERROR_INVALID_HANDLE, "an event that was never recorded");
    }
  }
  const std::optional<uint64_t> first = driver.scheduler.finished_ns(last_record(start));
  const std::optional<uint64_t> second = driver.scheduler.finished_ns(last_record(end));
  if (!first.has_value() || !second.has_value()) return Status(CUDA_ERROR_NOT_READY, "");
  auto difference = static_cast<int64_t>(*second) - static_cast<int64_t>(*first);
  return static_cast<float>(static_cast<double>(difference) / 1e6);
}

}  // namespace openmps::softgpu
