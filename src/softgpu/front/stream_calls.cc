// SPDX-License-Identifier: Apache-2.0
// Streams: creation, queries, waiting, callbacks, memory operations. Any thread.
#include <cstring>

#include "cuda/launch_attributes.h"
#include "softgpu/device/contexts/green_context.h"
#include "softgpu/device/graphs/capture.h"
#include "softgpu/device/issue/event_issue.h"
#include "softgpu/device/issue/issue.h"
#include "softgpu/device/work/event.h"
#include "softgpu/device/work/launch.h"
#include "softgpu/front/families.h"

using namespace openmps;           // NOLINT: entry points live outside the namespace
using namespace openmps::softgpu;  // NOLINT: entry points live outside the namespace

namespace openmps::softgpu {
namespace {

// As on an H200: writes have no flags, and nothing flushes remote writes.
Result<WordAction> word_action(const CUstreamBatchMemOpParams& params) {
  using Kind = cuda::StreamValue::Kind;
  const cuda::StreamValue read = cuda::read_stream_value(params);
  const Status no_flush(CUDA_ERROR_NOT_SUPPORTED, "remote writes can't be flushed");
  WordAction action;
  switch (read.kind) {
    case Kind::kWait:
      if ((read.flags & CU_STREAM_WAIT_VALUE_FLUSH) != 0) return no_flush;
      if (read.flags > CU_STREAM_WAIT_VALUE_NOR) return invalid_value("unknown flags");
      action.kind = WordAction::Kind::kWait;
      action.condition = read.flags;
      break;
    case Kind::kWrite:
      if (read.flags != 0) return invalid_value("unknown flags");
      action.kind = WordAction::Kind::kWrite;
      break;
    case Kind::kBarrier:
      if (read.flags > CU_STREAM_MEMORY_BARRIER_TYPE_GPU) return invalid_value("no such barrier");
      return action;
    case Kind::kFlush: return no_flush;
    case Kind::kUnknown: return invalid_value("no such memory operation");
  }
  action.bytes = read.bytes;
  action.address = read.address;
  action.value = read.value;
  if (action.address % action.bytes != 0) return invalid_value("the address is not aligned");
  return action;
}

}  // namespace

Result<WordsWork> words_work(const CUstreamBatchMemOpParams* params, unsigned count,
                             unsigned flags) {
  constexpr unsigned kMaxBatch = 255;  // of the driver
  if ((params == nullptr && count != 0) || count > kMaxBatch || flags != 0) {
    return invalid_value("bad parameters of memory operations");
  }
  WordsWork work;
  for (unsigned i = 0; i < count; ++i) {
    Result<WordAction> action = word_action(params[i]);
    if (!action.ok()) return action.status();
    work.actions.push_back(*action);
  }
  return work;
}

}  // namespace openmps::softgpu

namespace {

CUresult words(CUstream handle, const CUstreamBatchMemOpParams* params, unsigned count,
               unsigned flags) {
  return with_stream(handle, [&](Caller& caller, Stream& stream) -> Status {
    Result<WordsWork> work = words_work(params, count, flags);
    if (!work.ok() || (count == 0 && !stream.capturing)) return work.status();
    // In a graph the addresses are looked at when it is launched.
    if (!stream.capturing) OPENMPS_RETURN_IF_ERROR(check_words(caller.driver.address_space, *work));
    return issue(stream, *work);
  });
}

}  // namespace

CUresult openmps::softgpu::stream_value(CUstream stream, const cuda::StreamValue& value) {
  const CUstreamBatchMemOpParams params = cuda::operation_of(value);
  return words(stream, &params, 1, 0);
}

CUresult cuStreamCreateWithPriority(CUstream* phStream, unsigned int flags, int priority) {
  if (phStream == nullptr || flags > CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  return with_context([&](Caller& caller) -> Status {
    return deliver_handle(create_stream(caller.context, flags, priority), phStream);
  });
}

CUresult cuStreamDestroy_v2(CUstream hStream) {
  return with_driver([&](Driver& driver) { return destroy_stream(driver, hStream); });
}

CUresult cuStreamSynchronize(CUstream hStream) {
  return with_stream(hStream, [](Caller&, Stream& stream) { return synchronize_stream(stream); });
}

CUresult cuStreamQuery(CUstream hStream) {
  return with_stream(hStream, [](Caller&, Stream& stream) { return query_stream(stream); });
}

CUresult cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags) {
  return with_stream(hStream, [&](Caller& caller, Stream& stream) -> Status {
    if ((Flags & ~static_cast<unsigned>(CU_EVENT_WAIT_EXTERNAL)) != 0) {
      return invalid_value("unknown flags");
    }
    std::shared_ptr<Event> event = caller.driver.events.find(hEvent);
    if (event == nullptr) return invalid_handle("not an event");
    if (Flags != 0 && !stream.capturing) {
      return Status(CUDA_ERROR_ILLEGAL_STATE, "only captures have an outside");
    }
    if (Flags != 0) return caller.driver.captures.add(stream, WaitWork{event});
    return wait_event(stream, *event);
  });
}

CUresult cuStreamGetPriority(CUstream hStream, int* priority) {
  return with_stream(hStream, [&](Caller&, Stream& stream) -> Status {
    if (priority == nullptr) return no_result();
    *priority = stream.priority;
    return Status();
  });
}

CUresult cuStreamGetFlags(CUstream hStream, unsigned int* flags) {
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return with_stream(hStream, [&](Caller& caller, Stream& stream) -> Status {
    OPENMPS_RETURN_IF_ERROR(caller.driver.captures.refuse(stream));
    *flags = stream.flags;
    return Status();
  });
}

CUresult cuStreamGetId(CUstream hStream, unsigned long long* streamId) {
  return with_stream(hStream, [&](Caller& caller, Stream& stream) -> Status {
    if (streamId == nullptr) return no_result();
    OPENMPS_RETURN_IF_ERROR(caller.driver.captures.refuse(stream));
    *streamId = stream.queue->id;
    return Status();
  });
}

CUresult cuStreamGetDevice(CUstream hStream, CUdevice* device) {
  return with_stream(hStream, [&](Caller& caller, Stream& stream) -> Status {
    if (device == nullptr) return no_result();
    OPENMPS_RETURN_IF_ERROR(caller.driver.captures.refuse(stream));
    *device = stream.context->device().ordinal;
    return Status();
  });
}

CUresult cuStreamGetCtx(CUstream hStream, CUcontext* pctx) {
  return with_stream(hStream, [&](Caller&, Stream& stream) -> Status {
    if (pctx == nullptr) return no_result();
    *pctx = stream.context->handle();
    return Status();
  });
}

CUresult cuStreamGetCtx_v2(CUstream hStream, CUcontext* pCtx, CUgreenCtx* pGreenCtx) {
  return with_stream(hStream, [&](Caller&, Stream& stream) -> Status {
    if (pCtx == nullptr) return no_result();
    *pCtx = stream.context->owner().handle();
    if (pGreenCtx != nullptr) *pGreenCtx = stream.green == nullptr ? nullptr : stream.green->handle;
    return Status();
  });
}

CUresult cuStreamGetGreenCtx(CUstream hStream, CUgreenCtx* phCtx) {
  return with_stream(hStream, [&](Caller&, Stream& stream) -> Status {
    if (phCtx == nullptr) return no_result();
    *phCtx = stream.green == nullptr ? nullptr : stream.green->handle;
    return Status();
  });
}

// Caching and synchronisation policies are hints that the model has no use for.
CUresult cuStreamGetAttribute(CUstream hStream, CUstreamAttrID attr, CUstreamAttrValue* value) {
  return with_stream(hStream, [&](Caller&, Stream& stream) -> Status {
    if (value == nullptr) return no_result();
    const MutexLock guard(stream.attributes_lock);
    return Status(cuda::read_stream_attribute(stream.attributes, stream.priority, attr, value),
                  "a stream attribute");
  });
}

CUresult cuStreamSetAttribute(CUstream hStream, CUstreamAttrID attr,
                              const CUstreamAttrValue* param) {
  return with_stream(hStream, [&](Caller&, Stream& stream) -> Status {
    if (param == nullptr) return invalid_value("no value");
    if (attr == CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW) {
      OPENMPS_RETURN_IF_ERROR(
          Status(cuda::check_launch_attribute({attr, {}, *param}, kAttributeLimits), "a window"));
    }
    const MutexLock guard(stream.attributes_lock);
    return Status(cuda::write_stream_attribute(&stream.attributes, attr, *param),
                  "a stream attribute");
  });
}

CUresult cuStreamCopyAttributes(CUstream dstStream, CUstream srcStream) {
  return with_stream(dstStream, [&](Caller& caller, Stream& target) -> Status {
    Result<std::shared_ptr<Stream>> source = caller.stream(srcStream);
    if (!source.ok()) return source.status();
    if ((*source)->context != target.context) return invalid_value("streams of two contexts");
    if (source->get() == &target) return Status();
    const auto attributes = [&] {
      const MutexLock guard((*source)->attributes_lock);
      return (*source)->attributes;
    }();
    const MutexLock guard(target.attributes_lock);
    target.attributes = attributes;
    return Status();
  });
}

CUresult cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void* userData) {
  if (fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return with_stream(hStream, [&](Caller&, Stream& stream) -> Status {
    HostWork work;
    work.function = fn;
    work.user_data = userData;
    return issue(stream, work);
  });
}

CUresult cuStreamAddCallback(CUstream hStream, CUstreamCallback callback, void* userData,
                             unsigned int flags) {
  return with_stream(hStream, [&](Caller& caller, Stream& stream) -> Status {
    if (callback == nullptr || flags != 0) return invalid_value("no callback, or unknown flags");
    OPENMPS_RETURN_IF_ERROR(caller.driver.captures.refuse(stream));
    HostWork work;
    work.callback = callback;
    work.stream = hStream;
    work.user_data = userData;
    return issue(stream, work);
  });
}

CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned int count,
                               CUstreamBatchMemOpParams* paramArray, unsigned int flags) {
  return words(stream, paramArray, count, flags);
}

// ---- Events of a whole context ----------------------------------------------------------------

CUresult cuCtxRecordEvent(CUcontext hCtx, CUevent hEvent) {
  return with_driver([&](Driver& driver) -> Status {
    if (hCtx == nullptr) return Status(CUDA_ERROR_INVALID_CONTEXT, "no context");
    Result<std::shared_ptr<Context>> context = context_or_current(driver, hCtx);
    if (!context.ok()) return context.status();
    std::shared_ptr<Event> event = driver.events.find(hEvent);
    if (event == nullptr) return invalid_handle("not an event");
    return record_context_event(driver, **context, *event);
  });
}

CUresult cuCtxWaitEvent(CUcontext hCtx, CUevent hEvent) {
  return with_driver([&](Driver& driver) -> Status {
    if (hCtx == nullptr) return Status(CUDA_ERROR_INVALID_CONTEXT, "no context");
    Result<std::shared_ptr<Context>> context = context_or_current(driver, hCtx);
    if (!context.ok()) return context.status();
    std::shared_ptr<Event> event = driver.events.find(hEvent);
    if (event == nullptr) return invalid_handle("not an event");
    return wait_context_event(driver, **context, *event);
  });
}
