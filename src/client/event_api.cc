// SPDX-License-Identifier: Apache-2.0
// cuEvent*: an event is complete once its stream's fence slot has come to the value of its last
// record, so queries and waits are local. Implementations behind the generated entry points.
#include <time.h>

#include <algorithm>

#include "api/client_impl.h"
#include "client/stream.h"
#include "client/thread_state.h"

namespace openmps::client {
namespace {

CUresult find_event(CUevent handle, Session** session, Event** event) {
  OPENMPS_CUDA_CHECK(enter(session));
  *event = (*session)->events.find(handle);
  return *event != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult check_not_captured(Session& session, const Event& event) {
  const uint32_t number = event.capture.load(std::memory_order_acquire);
  Capture open;
  if (number == 0 || !session.captures.find(number, &open)) {
    return number == 0 ? CUDA_SUCCESS : CUDA_ERROR_CAPTURED_EVENT;
  }
  session.captures.invalidate(number);
  return CUDA_ERROR_CAPTURED_EVENT;
}

FencePoint recorded_point(const Event& event) {
  return FencePoint::from_bits(event.recorded.load(std::memory_order_acquire));
}

// The worker has handed everything so far to the driver.
CUresult settle(Session& session) {
  return session.channel.call(wire::Opcode::kPing, wire::ObjectOnly{});
}

// An event that several processes record is the driver's to judge.
CUresult query_shared(Session& session, const Event& event) {
  return session.channel.call(wire::Opcode::kEventQuery, wire::ObjectOnly{event.id, 0});
}

// Pauses between two looks at another process's event: about as long as a small kernel, up to what
// a wait that is long anyway does not feel.
constexpr long kShortestPauseNs = 10'000;
constexpr long kLongestPauseNs = 200'000;

CUresult wait_shared(Session& session, const Event& event) {
  for (long pause = kShortestPauseNs;; pause = std::min(2 * pause, kLongestPauseNs)) {
    const CUresult result = query_shared(session, event);
    if (result != CUDA_ERROR_NOT_READY) return result;
    const timespec time{0, pause};
    nanosleep(&time, nullptr);
  }
}

}  // namespace

CUresult destroy_event(Session& session, Event* event) {
  if (!session.events.retire(event)) return CUDA_ERROR_INVALID_HANDLE;
  const CUresult result =
      session.channel.push(wire::Opcode::kEventDestroy, wire::ObjectOnly{event->id, 0});
  session.events.recycle(event);
  return result;
}

namespace impl {

CUresult cuEventCreate(CUevent* phEvent, unsigned int Flags) {
  constexpr unsigned int kKnown =
      CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
  Session* session = nullptr;
  Context* context = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session, &context));
  const bool interprocess = (Flags & CU_EVENT_INTERPROCESS) != 0;
  if (phEvent == nullptr || (Flags & ~kKnown) != 0 ||
      (interprocess && (Flags & CU_EVENT_DISABLE_TIMING) == 0)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Event* event = session->events.allocate();
  if (event == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  event->context = context;
  event->flags = Flags;
  event->shared = interprocess;
  const CUresult result = session->channel.push(
      wire::Opcode::kEventCreate, wire::EventCreate{event->id, Flags, context->wire_device, 0});
  if (result != CUDA_SUCCESS) {
    session->events.recycle(event);
    return result;
  }
  session->events.publish(event);
  *phEvent = event->as<CUevent>();
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent hEvent) {
  Session* session = nullptr;
  Event* event = nullptr;
  OPENMPS_CUDA_CHECK(find_event(hEvent, &session, &event));
  return destroy_event(*session, event);
}

CUresult cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags) {
  Session* session = nullptr;
  Context* context = nullptr;
  Stream* stream = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session, &context, hStream, &stream));
  Event* event = session->events.find(hEvent);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if ((flags & ~static_cast<unsigned int>(CU_EVENT_RECORD_EXTERNAL)) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (stream->context != event->context) return CUDA_ERROR_INVALID_HANDLE;
  OPENMPS_CUDA_CHECK(check_implicit_capture(*session, *stream));
  const uint32_t capture = stream->capture.load(std::memory_order_relaxed);
  if (flags != 0 && capture == 0) return CUDA_ERROR_INVALID_VALUE;
  if (flags != 0) {
    return capture_work(*session, *stream, CU_GRAPH_NODE_TYPE_EVENT_RECORD, EventWork{hEvent});
  }
  if (capture != 0) {
    session->captures.record(capture, stream, event);
    event->capture.store(capture, std::memory_order_release);
    return CUDA_SUCCESS;
  }
  {
    const Channel::Order order = session->channel.order();
    const FencePoint point = session->fences.take_next(order, *stream);
    event->recorded.store(point.bits(), std::memory_order_release);
    event->capture.store(0, std::memory_order_release);
    OPENMPS_CUDA_CHECK(session->channel.push(
        order, wire::Opcode::kEventRecord,
        wire::EventRecord{event->id, stream->id, point.slot(), 0, point.value()}));
  }
  // Another process may wait for it as soon as this call has returned.
  return event->shared ? settle(*session) : CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent hEvent, CUstream hStream) {
  return impl::cuEventRecordWithFlags(hEvent, hStream, CU_EVENT_RECORD_DEFAULT);
}

CUresult cuEventQuery(CUevent hEvent) {
  Session* session = nullptr;
  Event* event = nullptr;
  OPENMPS_CUDA_CHECK(find_event(hEvent, &session, &event));
  OPENMPS_CUDA_CHECK(check_not_captured(*session, *event));
  if (event->shared) {
    OPENMPS_CUDA_CHECK(query_shared(*session, *event));
  } else if (!session->fences.reached(recorded_point(*event))) {
    return CUDA_ERROR_NOT_READY;
  }
  return session->managed.fetch_after(*session, session->channel.take_async_error());
}

CUresult cuEventSynchronize(CUevent hEvent) {
  Session* session = nullptr;
  Event* event = nullptr;
  OPENMPS_CUDA_CHECK(find_event(hEvent, &session, &event));
  OPENMPS_CUDA_CHECK(check_not_captured(*session, *event));
  if (event->shared) OPENMPS_CUDA_CHECK(wait_shared(*session, *event));
  OPENMPS_CUDA_CHECK(session->output.show_end(session->fences.wait(recorded_point(*event))));
  return synchronised(*session, session->channel.take_async_error());
}

CUresult cuEventElapsedTime_v2(float* pMilliseconds, CUevent hStart, CUevent hEnd) {
  Session* session = nullptr;
  Event* start = nullptr;
  Event* end = nullptr;
  OPENMPS_CUDA_CHECK(find_event(hStart, &session, &start));
  OPENMPS_CUDA_CHECK(find_event(hEnd, &session, &end));
  if (pMilliseconds == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (const Event* event : {start, end}) {
    if ((event->flags & CU_EVENT_DISABLE_TIMING) != 0 || recorded_point(*event).bits() == 0) {
      return CUDA_ERROR_INVALID_HANDLE;
    }
    OPENMPS_CUDA_CHECK(check_not_captured(*session, *event));
  }
  const bool complete = session->fences.reached(recorded_point(*start)) &&
                        session->fences.reached(recorded_point(*end));
  if (!complete) return CUDA_ERROR_NOT_READY;
  wire::EventElapsedReply reply{};
  OPENMPS_CUDA_CHECK(session->channel.call(wire::Opcode::kEventElapsed,
                                           wire::EventElapsed{start->id, end->id}, {}, &reply,
                                           sizeof(reply)));
  *pMilliseconds = reply.milliseconds;
  return CUDA_SUCCESS;
}

}  // namespace impl
}  // namespace openmps::client
