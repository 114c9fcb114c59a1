// SPDX-License-Identifier: Apache-2.0
// Streams: creation, resolution of handles, issuing work, waiting. See stream.h.
#include "softgpu/device/stream.h"

#include <algorithm>

#include "softgpu/device/capture.h"
#include "softgpu/device/context.h"
#include "softgpu/device/driver.h"
#include "softgpu/device/green_context.h"

namespace openmps::softgpu {

SmSet all_sms(const Driver& driver) {
  SmSet all;
  for (uint32_t i = 0; i < driver.config.sm_count; ++i) all.set(i);
  return all;
}

std::shared_ptr<Stream> make_stream(const std::shared_ptr<Context>& context,
                                    const std::shared_ptr<ExecutionContext>& execution,
                                    unsigned flags, int priority) {
  Driver& driver = context->driver();
  auto stream = std::make_shared<Stream>();
  stream->context = context;
  stream->execution = execution;
  stream->flags = flags;
  stream->priority = std::clamp(priority, kGreatestPriority, 0);
  stream->queue = std::make_shared<StreamQueue>();
  stream->queue->id = driver.new_id();
  stream->green = context->green.lock();
  stream->queue->blocking = (flags & CU_STREAM_NON_BLOCKING) == 0 && stream->green == nullptr;
  stream->queue->level = static_cast<uint32_t>(stream->priority - kGreatestPriority);
  stream->queue->sms = stream->green == nullptr ? all_sms(driver) : stream->green->sms;
  stream->queue->green = stream->green == nullptr ? 0 : stream->green->id;
  std::lock_guard lock(driver.scheduler.mutex);
  driver.scheduler.add_stream_locked(*execution, stream->queue);
  return stream;
}

std::shared_ptr<Stream> make_legacy_stream(const std::shared_ptr<Context>& context,
                                           const std::shared_ptr<ExecutionContext>& execution) {
  Driver& driver = context->driver();
  auto stream = std::make_shared<Stream>();
  stream->context = context;
  stream->execution = execution;
  stream->queue = std::make_shared<StreamQueue>();
  stream->queue->id = driver.new_id();
  stream->queue->legacy = true;
  stream->queue->level = static_cast<uint32_t>(-kGreatestPriority);
  stream->queue->sms = all_sms(driver);
  std::lock_guard lock(driver.scheduler.mutex);
  execution->legacy = stream->queue;
  return stream;
}

Result<std::shared_ptr<Stream>> create_stream(const std::shared_ptr<Context>& context,
                                              unsigned flags, int priority) {
  if ((flags & ~static_cast<unsigned>(CU_STREAM_NON_BLOCKING)) != 0)
    return Status(CUDA_ERROR_INVALID_VALUE, "unknown stream flags");
  std::shared_ptr<ExecutionContext> execution = context->execution();
  if (execution == nullptr)
    return Status(CUDA_ERROR_CONTEXT_IS_DESTROYED, "the context is not active");
  std::shared_ptr<Stream> stream = make_stream(context, execution, flags, priority);
  stream->handle = context->driver().streams.add(stream);
  if (stream->handle == nullptr) return Status(CUDA_ERROR_OUT_OF_MEMORY, "too many streams");
  return stream;
}

Status destroy_stream(Driver& driver, CUstream handle) {
  std::shared_ptr<Stream> stream = driver.streams.remove(handle);
  if (stream == nullptr) return Status(CUDA_ERROR_INVALID_HANDLE, "not a stream");
  if (stream->capturing) leave_capture(*stream);
  std::lock_guard lock(driver.scheduler.mutex);
  stream->queue->retired = true;
  return Status();
}

Result<std::shared_ptr<Stream>> resolve_stream(const std::shared_ptr<Context>& context,
                                               CUstream handle, bool per_thread_default) {
  std::shared_ptr<Stream> stream;
  if (handle == CU_STREAM_PER_THREAD || (handle == nullptr && per_thread_default))
    stream = context->per_thread_stream();
  else if (handle == nullptr || handle == CU_STREAM_LEGACY)
    stream = context->legacy_stream();
  else
    stream = context->driver().streams.find(handle);
  if (stream == nullptr) return Status(CUDA_ERROR_INVALID_HANDLE, "not a stream");
  if (stream->detached)
    return Status(CUDA_ERROR_CONTEXT_IS_DESTROYED, "the stream's green context was destroyed");
  return stream;
}

Status issue(Stream& stream, const Work& work, OperationPtr* issued,
             std::span<const OperationPtr> after) {
  if (stream.capturing.load(std::memory_order_acquire)) return capture_work(stream, work);
  Driver& driver = stream.context->driver();
  if (std::holds_alternative<LaunchWork>(work))
    driver.scheduler.await_standstills(*stream.execution);
  driver.scheduler.await_room(*stream.queue);
  OperationPtr operation = make_operation(work, stream.execution, *stream.queue);
  if (issued != nullptr) *issued = operation;
  driver.scheduler.submit(*stream.queue, operation, after);
  return Status();
}

Status sticky_error(const ExecutionContext& execution) {
  CUresult error = execution.error.load();
  return error == CUDA_SUCCESS ? Status()
                               : Status(error, "the context failed: " + execution.fault_text);
}

Status synchronize_stream(Stream& stream) {
  OPENMPS_RETURN_IF_ERROR(refuse_capturing(stream));
  OPENMPS_RETURN_IF_ERROR(check_unsafe_call());
  Driver& driver = stream.context->driver();
  OperationPtr last;
  if (stream.queue->legacy) {
    // A marker waits for what the legacy stream waits for: the blocking streams.
    OPENMPS_RETURN_IF_ERROR(issue(stream, MarkerWork{}, &last));
  } else {
    std::lock_guard lock(driver.scheduler.mutex);
    last = stream.queue->tail;
  }
  driver.scheduler.wait(last);
  stream.execution->flush_output();
  return sticky_error(*stream.execution);
}

Status query_stream(Stream& stream) {
  OPENMPS_RETURN_IF_ERROR(refuse_capturing(stream));
  OPENMPS_RETURN_IF_ERROR(check_unsafe_call());
  Driver& driver = stream.context->driver();
  bool idle = driver.scheduler.is_stream_idle(*stream.execution, *stream.queue);
  OPENMPS_RETURN_IF_ERROR(sticky_error(*stream.execution));
  return idle ? Status() : Status(CUDA_ERROR_NOT_READY, "");
}

Status synchronize_context(Driver& driver, ExecutionContext& execution) {
  driver.scheduler.wait_idle(execution);
  execution.flush_output();
  return sticky_error(execution);
}

}  // namespace openmps::softgpu
