// SPDX-License-Identifier: Apache-2.0
// cuStream* without capture, host functions and values in memory: implementations behind the
// generated entry points, on the program's threads.

#include <algorithm>
#include <cstring>
#include <utility>

#include "api/client_handlers.h"
#include "base/mutex.h"
#include "client/context/work_check.h"
#include "client/entry/families.h"
#include "client/session/enter.h"
#include "client/session/launch_check.h"
#include "client/session/submit.h"
#include "cuda/stream_attributes.h"

namespace openmps::client {
namespace {

struct Values {
  CUcontext context;
  ValueOperations operations;

  CUresult describe(Session&, Work* work) const {
    *work = WordsWork{context, {operations.begin(), operations.end()}, 0};
    return CUDA_SUCCESS;
  }
  CUresult issue(Session& session, Stream& stream) const {
    OPENMPS_CUDA_CHECK(check_value_places(session.places, operations));
    if (operations.empty()) return CUDA_SUCCESS;
    wire::ValueOperation values[wire::kMaxBatch];
    for (size_t i = 0; i < operations.size(); ++i) values[i] = wire_value(operations[i]);
    const auto [value, kind] = std::pair(values[0].value, values[0].kind);
    if (operations.size() == 1 && kind == wire::ValueKind::kWrite) {
      return session.streams.push(stream, wire::StreamWriteValue{value, stream.id});
    }
    if (operations.size() == 1 && kind == wire::ValueKind::kWait) {
      return session.streams.push(stream, wire::StreamWaitValue{value, stream.id});
    }
    return session.streams.push(stream, wire::StreamBatch{stream.id},
                                {{values, operations.size()}});
  }
};

struct HostFunction : HostWork {
  CUresult describe(Session&, Work* work) const {
    *work = HostWork(*this);
    return CUDA_SUCCESS;
  }
  CUresult issue(Session& session, Stream& stream) const {
    return session.callbacks.enqueue(stream,
                                     {parameters.fn, nullptr, nullptr, parameters.userData});
  }
};

struct Callback : HostCall {
  CUresult issue(Session& session, Stream& stream) const {
    return session.callbacks.enqueue(stream, *this);
  }
};

struct EventWait {
  Event& event;
  unsigned int flags;

  CUresult capture(Session& session, Stream& stream, uint32_t) const {
    return flags == CU_EVENT_WAIT_EXTERNAL
               ? session.captures.add(stream, WaitWork{event.as<CUevent>()})
               : session.captures.wait(stream, event);
  }
  CUresult issue(Session& session, Stream& stream) const {
    if (flags == CU_EVENT_WAIT_EXTERNAL) return CUDA_ERROR_ILLEGAL_STATE;
    if (event.capture.load(std::memory_order_acquire) != 0) {
      return session.captures.wait(stream, event);
    }
    const FencePoint point = FencePoint::from_bits(event.recorded.load(std::memory_order_acquire));
    if (!event.shared && session.fences.is_over(point)) return CUDA_SUCCESS;
    return session.streams.push(stream, wire::StreamWaitEvent{stream.id, event.id, flags});
  }
};

// A batch of any length, one alone included.
CUresult stream_values(CUstream handle, ValueOperations operations, unsigned int flags) {
  Session* session = nullptr;
  Context* context = nullptr;
  Stream* stream = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session, &context, handle, &stream));
  OPENMPS_CUDA_CHECK(check_values(operations, flags));
  return submit(*session, *stream, Values{context->as<CUcontext>(), operations});
}

}  // namespace

CUresult stream_value(CUstream handle, const cuda::StreamValue& value) {
  const CUstreamBatchMemOpParams operation = cuda::operation_of(value);
  return stream_values(handle, {&operation, 1}, 0);
}

namespace impl {

CUresult cuStreamCreateWithPriority(CUstream* phStream, unsigned int flags, int priority) {
  if (phStream == nullptr || (flags & ~static_cast<unsigned int>(CU_STREAM_NON_BLOCKING)) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Session* session = nullptr;
  Context* context = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session, &context));
  return session->streams.create_for_program(*context, flags, priority, phStream);
}

CUresult cuStreamDestroy_v2(Session& session, CUstream hStream) {
  Stream* stream = session.streams.find(hStream);
  if (stream == nullptr || stream->per_thread || stream->kind == wire::StreamKind::kLegacy) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  return session.streams.destroy(stream);
}

CUresult cuStreamQuery(Session& session, Stream& stream) {
  FencePoint point;
  {
    const Channel::Order order = session.channel.order();
    OPENMPS_CUDA_CHECK(session.fences.cover(order, stream, &point));
  }
  if (!session.fences.reached(point)) return CUDA_ERROR_NOT_READY;
  OPENMPS_CUDA_CHECK(session.fences.tell(point));
  return session.managed.fetch_after(session.channel.take_async_error());
}

CUresult cuStreamWaitEvent(Session& session, Stream& stream, CUevent hEvent, unsigned int Flags) {
  if ((Flags & ~static_cast<unsigned int>(CU_EVENT_WAIT_EXTERNAL)) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Event* event = session.events.find(hEvent);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return submit(session, stream, EventWait{*event, Flags});
}

CUresult cuStreamAddCallback(CUstream hStream, CUstreamCallback callback, void* userData,
                             unsigned int flags) {
  Session* session = nullptr;
  Context* context = nullptr;
  Stream* stream = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session, &context, hStream, &stream));
  if (callback == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return submit(*session, *stream, Callback{{nullptr, callback, hStream, userData}});
}

CUresult cuLaunchHostFunc(Session& session, Stream& stream, CUhostFn fn, void* userData) {
  return submit(session, stream, HostFunction{{{fn, userData}}});
}

// Managed memory is always visible to the host and every stream: nothing to attach.
CUresult cuStreamAttachMemAsync(Session& session, Stream& stream, CUdeviceptr dptr, size_t length,
                                unsigned int flags) {
  const bool is_default = stream.per_thread || stream.kind == wire::StreamKind::kLegacy;
  if (flags == CU_MEM_ATTACH_SINGLE && is_default) return CUDA_ERROR_INVALID_VALUE;
  if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST &&
      flags != CU_MEM_ATTACH_SINGLE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (session.managed.contains(dptr)) return CUDA_SUCCESS;
  PinnedHeap::Entry entry;
  const bool managed =
      session.pinned.find(dptr, &entry) && (entry.value.flags & kManagedBlock) != 0;
  // CUDA attaches whole allocations only.
  const bool whole = length == 0 || (dptr == entry.base && length == entry.bytes);
  return managed && whole ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// The attributes are hints that the worker does not carry: what is set can be read again.
CUresult cuStreamCopyAttributes(CUstream dstStream, CUstream srcStream) {
  Session* session = nullptr;
  Context* context = nullptr;
  Stream* source = nullptr;
  Stream* target = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session, &context, srcStream, &source));
  OPENMPS_CUDA_CHECK(enter(&session, &context, dstStream, &target));
  if (source->context != target->context) return CUDA_ERROR_INVALID_VALUE;
  const MutexLock guard(session->streams.lock);
  target->attributes = source->attributes;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetAttribute(Session& session, Stream& stream, CUstreamAttrID attr,
                              CUstreamAttrValue* value) {
  const MutexLock guard(session.streams.lock);
  return cuda::read_stream_attribute(stream.attributes, stream.priority, attr, value);
}

CUresult cuStreamSetAttribute(Session& session, Stream& stream, CUstreamAttrID attr,
                              const CUstreamAttrValue* param) {
  if (attr == CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW) {
    const wire::DeviceFacts& facts = session.device(stream.context->device);
    OPENMPS_CUDA_CHECK(cuda::check_launch_attribute({attr, {}, *param}, attribute_limits(facts)));
  }
  const MutexLock guard(session.streams.lock);
  return cuda::write_stream_attribute(&stream.attributes, attr, *param);
}

CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned int count,
                               CUstreamBatchMemOpParams* paramArray, unsigned int flags) {
  if (paramArray == nullptr && count != 0) return CUDA_ERROR_INVALID_VALUE;
  return stream_values(stream, {paramArray, count}, flags);
}

}  // namespace impl
}  // namespace openmps::client
