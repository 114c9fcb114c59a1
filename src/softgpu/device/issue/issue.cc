// SPDX-License-Identifier: Apache-2.0
// Issuing work and waiting for it. See issue.h.
#include "softgpu/device/issue/issue.h"

#include "softgpu/device/contexts/context.h"
#include "softgpu/device/driver.h"
#include "softgpu/device/graphs/capture.h"
#include "softgpu/device/issue/make_operation.h"
#include "softgpu/device/schedule/scheduler.h"

namespace openmps::softgpu {

namespace {

// A kernel, a fill, a copy between device memory; not what the calling thread is to do.
bool is_launch(const Work& work) {
  if (const auto* fill = std::get_if<FillWork>(&work)) return !fill->inline_execution;
  if (const auto* copy = std::get_if<CopyWork>(&work)) {
    return copy->from_device && copy->to_device && !copy->inline_execution;
  }
  return std::holds_alternative<LaunchWork>(work);
}

bool is_recorded(const Work& work) {
  return std::holds_alternative<LaunchWork>(work) || std::holds_alternative<CopyWork>(work) ||
         std::holds_alternative<FillWork>(work);
}

}  // namespace

WorkOrigin give_work(const Stream& stream) {
  if (!is_recording()) return {};
  RecordedCall* call = RecordedCall::current();
  if (call == nullptr) return {};  // it began before the recording
  const ExecutionContext& execution = *stream.execution;
  return call->give(execution.device, context_number(*stream.context, execution), stream.queue->id);
}

Status issue(Stream& stream, const Work& work, OperationPtr* issued,
             std::span<const OperationPtr> after) {
  Driver& driver = stream.context->driver();
  if (stream.capturing.load(std::memory_order_acquire)) return driver.captures.add(stream, work);
  Scheduler& scheduler = driver.scheduler;
  if (std::holds_alternative<LaunchWork>(work)) scheduler.await_launches_allowed(*stream.execution);
  scheduler.await_submission(*stream.queue);
  const WorkOrigin origin = is_recorded(work) ? give_work(stream) : WorkOrigin{};
  OperationPtr operation = make_operation(work, stream.execution, *stream.queue, origin);
  if (issued != nullptr) *issued = operation;
  scheduler.submit(*stream.queue, operation, after);
  return is_launch(work) ? launched(stream) : Status();
}

Status launched(Stream& stream) {
  if (!stream.execution->launches_block) return Status();
  return synchronize_context(stream.context->driver().scheduler, *stream.execution);
}

Status synchronize_stream(Stream& stream) {
  Driver& driver = stream.context->driver();
  OPENMPS_RETURN_IF_ERROR(driver.captures.refuse(stream));
  OPENMPS_RETURN_IF_ERROR(driver.captures.check_unsafe_call());
  OperationPtr last;
  if (stream.queue->legacy) {
    // A marker waits for what the legacy stream waits for: the blocking streams.
    OPENMPS_RETURN_IF_ERROR(issue(stream, MarkerWork{}, &last));
  } else {
    last = driver.scheduler.tail(*stream.queue);
  }
  driver.scheduler.wait(last);
  stream.execution->flush_output();
  return sticky_error(*stream.execution);
}

Status query_stream(Stream& stream) {
  Driver& driver = stream.context->driver();
  OPENMPS_RETURN_IF_ERROR(driver.captures.refuse(stream));
  OPENMPS_RETURN_IF_ERROR(driver.captures.check_unsafe_call());
  bool idle = driver.scheduler.is_stream_idle(*stream.execution, *stream.queue);
  OPENMPS_RETURN_IF_ERROR(sticky_error(*stream.execution));
  return idle ? Status() : Status(CUDA_ERROR_NOT_READY, "");
}

Status destroy_stream(Driver& driver, CUstream handle) {
  std::shared_ptr<Stream> stream = driver.streams.remove(handle);
  if (stream == nullptr) return Status(CUDA_ERROR_INVALID_HANDLE, "not a stream");
  if (stream->capturing) driver.captures.leave(*stream);
  driver.scheduler.retire_stream(*stream->queue);
  return Status();
}

}  // namespace openmps::softgpu
