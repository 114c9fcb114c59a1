// SPDX-License-Identifier: Apache-2.0
// Streams. See stream.h.
#include "softgpu/device/contexts/stream.h"

#include <algorithm>
#include <unordered_map>

#include "softgpu/device/contexts/context.h"
#include "softgpu/device/contexts/thread_value.h"
#include "softgpu/device/driver.h"
#include "softgpu/device/schedule/quiescence.h"
#include "softgpu/device/schedule/scheduler.h"

namespace openmps::softgpu {
namespace {

// Default streams of this thread, by id of the ExecutionContext or of a green context's view.
using ThreadStreams = std::unordered_map<uint64_t, std::shared_ptr<Stream>>;

}  // namespace

SmSet all_sms(const Config& config) {
  SmSet all;
  for (uint32_t i = 0; i < config.sm_count; ++i) all.set(i);
  return all;
}

Placement placement_of(const Stream& stream) {
  const bool is_green = stream.queue->green != 0;
  return {stream.queue->sms, is_green ? stream.context->handle() : nullptr};
}

Placement placement_of(const Context& context) {
  const std::shared_ptr<GreenContext> green = context.green.lock();
  if (green == nullptr) return {all_sms(context.driver().config)};
  return {green->sms, context.handle()};
}

std::shared_ptr<const void> take_stream_lots(const Context& context, uint32_t count) {
  const std::shared_ptr<StreamLots> lots = context.stream_lots;
  const std::shared_ptr<ExecutionContext> execution = context.execution();
  if (lots->take(count) && execution != nullptr && context.driver().config.stream_lots) {
    const Quiescence quiescence(context.driver().scheduler, *execution);
  }
  return {lots.get(), [lots, count](const void*) { lots->give(count); }};
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
  stream->queue->sms = stream->green == nullptr ? all_sms(driver.config) : stream->green->sms;
  stream->queue->green = stream->green == nullptr ? 0 : stream->green->id;
  driver.scheduler.add_stream(*execution, stream->queue);
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
  stream->queue->sms = all_sms(driver.config);
  driver.scheduler.add_stream(*execution, stream->queue);
  return stream;
}

Result<std::shared_ptr<Stream>> create_stream(const std::shared_ptr<Context>& context,
                                              unsigned flags, int priority) {
  if ((flags & ~static_cast<unsigned>(CU_STREAM_NON_BLOCKING)) != 0) {
    return Status(CUDA_ERROR_INVALID_VALUE, "unknown stream flags");
  }
  std::shared_ptr<ExecutionContext> execution = context->execution();
  if (execution == nullptr) {
    return Status(CUDA_ERROR_CONTEXT_IS_DESTROYED, "the context is not active");
  }
  std::shared_ptr<const void> lots = take_stream_lots(*context, 1);
  std::shared_ptr<Stream> stream = make_stream(context, execution, flags, priority);
  stream->lots = std::move(lots);
  stream->handle = context->driver().streams.add(stream);
  if (stream->handle == nullptr) return Status(CUDA_ERROR_OUT_OF_MEMORY, "too many streams");
  return stream;
}

std::shared_ptr<Stream> per_thread_stream(const std::shared_ptr<Context>& context) {
  std::shared_ptr<ExecutionContext> execution = context->execution();
  if (execution == nullptr) return nullptr;
  const bool is_view = context->green_parent != nullptr;
  std::shared_ptr<Stream>& stream =
      thread_value<ThreadStreams>()[is_view ? context->id() : execution->id];
  if (stream == nullptr) stream = make_stream(context, execution, CU_STREAM_DEFAULT, 0);
  return stream;
}

Result<std::shared_ptr<Stream>> resolve_stream(const std::shared_ptr<Context>& context,
                                               CUstream handle, bool per_thread_default) {
  std::shared_ptr<Stream> stream;
  if (handle == CU_STREAM_PER_THREAD || (handle == nullptr && per_thread_default)) {
    stream = per_thread_stream(context);
  } else if (handle == nullptr || handle == CU_STREAM_LEGACY) {
    stream = context->legacy_stream();
  } else {
    stream = context->driver().streams.find(handle);
  }
  if (stream == nullptr) return Status(CUDA_ERROR_INVALID_HANDLE, "not a stream");
  if (stream->detached) {
    return Status(CUDA_ERROR_CONTEXT_IS_DESTROYED, "the stream's green context was destroyed");
  }
  return stream;
}

Status sticky_error(const ExecutionContext& execution) {
  CUresult error = execution.error.load();
  return error == CUDA_SUCCESS ? Status()
                               : Status(error, "the context failed: " + execution.fault_text);
}

Status synchronize_context(Scheduler& scheduler, ExecutionContext& execution) {
  scheduler.wait_idle(execution);
  execution.flush_output();
  return sticky_error(execution);
}

}  // namespace openmps::softgpu
