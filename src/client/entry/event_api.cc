// SPDX-License-Identifier: Apache-2.0
// cuEvent*: an event is complete once its stream's fence slot has come to the value of its last
// record, so queries and waits are local. Implementations behind the generated entry points.

#include <algorithm>

#include "api/client_handlers.h"
#include "base/adaptive_wait.h"
#include "base/thread_end.h"
#include "client/session/context.h"
#include "client/session/enter.h"
#include "client/session/submit.h"
#include "wire/commands/device.h"
#include "wire/commands/green.h"
#include "wire/commands/stream.h"

namespace openmps::client {
namespace {

// An event that was last recorded in a capture has no completion.
CUresult check_not_captured(Session& session, const Event& event) {
  const uint32_t number = event.capture.load(std::memory_order_acquire);
  if (number == 0) return CUDA_SUCCESS;
  Capture open;
  const bool active = session.captures.find(number, &open) && !open.invalidated;
  return active ? CUDA_ERROR_CAPTURED_EVENT : CUDA_ERROR_INVALID_VALUE;
}

// What asking whether it is complete begins with: also spoils the event's capture.
CUresult check_completion(Session& session, const Event& event) {
  const CUresult captured = check_not_captured(session, event);
  if (captured != CUDA_SUCCESS) {
    session.captures.invalidate(event.capture.load(std::memory_order_acquire));
    return captured;
  }
  return check_unsafe(session);
}

FencePoint recorded_point(const Event& event) {
  return FencePoint::from_bits(event.recorded.load(std::memory_order_acquire));
}

// An event that several processes record is the driver's to judge.
CUresult query_shared(Session& session, const Event& event) {
  return session.channel.call(wire::EventQuery{event.id});
}

// Between two looks at another process's event: from about the length of a small kernel to what
// adds little to a long wait.
constexpr WaitPlan kSharedEventPlan{.nap_until_ns = kNever, .nap = {10'000, 200'000}};

CUresult wait_shared(Session& session, const Event& event) {
  const CancellationHeld held;
  const AdaptiveWait wait(session.clock, kSharedEventPlan);
  for (;;) {
    const CUresult result = query_shared(session, event);
    if (result != CUDA_ERROR_NOT_READY) return result;
    wait.pause();
  }
}

// Behind what the stream has been given, outside of any capture.
CUresult record_event(Session& session, Event& event, Stream& stream) {
  {
    const Channel::Order order = session.channel.order();
    const FencePoint point = session.fences.take_next(order, stream);
    event.recorded.store(point.bits(), std::memory_order_release);
    event.capture.store(0, std::memory_order_release);
    OPENMPS_CUDA_CHECK(session.channel.push(
        order, wire::EventRecord{event.id, stream.id, point.slot(), 0, point.value()}));
  }
  // Another process may wait for it as soon as this call has returned: the worker answers when it
  // has handed everything so far to the driver.
  return event.shared ? session.channel.call(wire::Ping{}) : CUDA_SUCCESS;
}

struct Record {
  Event& event;
  unsigned int flags;

  CUresult capture(Session& session, Stream& stream, uint32_t number) const {
    if (flags == CU_EVENT_RECORD_EXTERNAL) {
      return session.captures.add(stream, RecordWork{event.as<CUevent>()});
    }
    OPENMPS_CUDA_CHECK(session.captures.record(number, &stream, &event));
    event.capture.store(number, std::memory_order_release);
    return CUDA_SUCCESS;
  }
  CUresult issue(Session& session, Stream& stream) const {
    if (flags == CU_EVENT_RECORD_EXTERNAL) return CUDA_ERROR_ILLEGAL_STATE;
    return record_event(session, event, stream);
  }
};

// ---- Events of a whole context ------------------------------------------------------------------

// The context itself and, of a primary context, its green contexts.
std::vector<Context*> family_of(Session& session, const Context& context) {
  std::vector<Context*> family;
  session.contexts.for_each([&](Context& other) {
    if (context.includes(&other)) family.push_back(&other);
  });
  return family;
}

}  // namespace

namespace impl {

CUresult cuEventCreate(Session& session, Context& context, CUevent* phEvent, unsigned int Flags) {
  constexpr unsigned int kKnown =
      CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
  const bool interprocess = (Flags & CU_EVENT_INTERPROCESS) != 0;
  if ((Flags & ~kKnown) != 0 || (interprocess && (Flags & CU_EVENT_DISABLE_TIMING) == 0)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return session.events.make(phEvent, [&](Event& event) {
    event.context = context.owner();
    event.flags = Flags;
    event.shared = interprocess;
    return session.channel.push(wire::EventCreate{event.id, Flags, context.wire_device});
  });
}

CUresult cuEventRecordWithFlags(Session& session, Event& event, Stream& stream,
                                unsigned int flags) {
  if ((flags & ~static_cast<unsigned int>(CU_EVENT_RECORD_EXTERNAL)) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (stream.context->owner() != event.context) return CUDA_ERROR_INVALID_HANDLE;
  return submit(session, stream, Record{event, flags});
}

CUresult cuEventQuery(Session& session, Event& event) {
  OPENMPS_CUDA_CHECK(check_completion(session, event));
  if (event.shared) {
    OPENMPS_CUDA_CHECK(query_shared(session, event));
  } else if (!session.fences.reached(recorded_point(event))) {
    return CUDA_ERROR_NOT_READY;
  } else {
    OPENMPS_CUDA_CHECK(session.fences.tell(recorded_point(event)));
  }
  return session.managed.fetch_after(session.channel.take_async_error());
}

CUresult cuEventSynchronize(Session& session, Event& event) {
  OPENMPS_CUDA_CHECK(check_completion(session, event));
  if (event.shared) OPENMPS_CUDA_CHECK(wait_shared(session, event));
  const FencePoint point = recorded_point(event);
  OPENMPS_CUDA_CHECK(session.output.show_end(session.fences.wait(point)));
  OPENMPS_CUDA_CHECK(session.fences.tell(point));
  return session.managed.fetch_after(session.output.show(session.channel.take_async_error()));
}

CUresult cuEventElapsedTime_v2(Session& session, float* pMilliseconds, Event& start, Event& end) {
  if (pMilliseconds == nullptr) return CUDA_ERROR_INVALID_HANDLE;  // so an H200 calls it
  for (const Event* event : {&start, &end}) {
    if ((event->flags & CU_EVENT_DISABLE_TIMING) != 0) return CUDA_ERROR_INVALID_HANDLE;
    OPENMPS_CUDA_CHECK(check_not_captured(session, *event));
    if (recorded_point(*event).bits() == 0) return CUDA_ERROR_INVALID_HANDLE;
  }
  const bool complete =
      session.fences.reached(recorded_point(start)) && session.fences.reached(recorded_point(end));
  if (!complete) return CUDA_ERROR_NOT_READY;
  wire::EventElapsed::Reply reply{};
  OPENMPS_CUDA_CHECK(session.channel.call(wire::EventElapsed{start.id, end.id}, &reply));
  *pMilliseconds = reply.milliseconds;
  return CUDA_SUCCESS;
}

// Recorded in a hidden stream, which waits for what the context's streams have been given.
CUresult cuCtxRecordEvent(CUcontext hCtx, CUevent hEvent) {
  if (hCtx == nullptr) return CUDA_ERROR_INVALID_CONTEXT;  // not the current one (measured, 580)
  Session* session = nullptr;
  Context* context = nullptr;
  OPENMPS_CUDA_CHECK(context_or_current(hCtx, &session, &context));
  Event* event = session->events.find(hEvent);
  if (event == nullptr || event->context != context->owner()) return CUDA_ERROR_INVALID_HANDLE;
  OPENMPS_CUDA_CHECK(session->captures.refuse(*context));
  Stream* gathering = nullptr;
  OPENMPS_CUDA_CHECK(session->streams.hidden(*context, context->gathering, &gathering));
  for (const Context* member : family_of(*session, *context)) {
    OPENMPS_CUDA_CHECK(
        session->streams.push(*gathering, wire::ContextJoin{gathering->id, member->id}));
  }
  return record_event(*session, *event, *gathering);
}

// A hidden stream waits for the event, and later work of the context comes behind that.
CUresult cuCtxWaitEvent(CUcontext hCtx, CUevent hEvent) {
  if (hCtx == nullptr) return CUDA_ERROR_INVALID_CONTEXT;  // not the current one (measured, 580)
  Session* session = nullptr;
  Context* context = nullptr;
  OPENMPS_CUDA_CHECK(context_or_current(hCtx, &session, &context));
  Event* event = session->events.find(hEvent);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  CUresult refused = session->captures.refuse(*context);
  Capture open;
  const uint32_t capture = event->capture.load(std::memory_order_acquire);
  if (capture != 0 && session->captures.find(capture, &open)) {
    session->captures.invalidate(capture);
    refused = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  OPENMPS_CUDA_CHECK(refused);
  if (!event->shared && session->fences.is_over(recorded_point(*event))) return CUDA_SUCCESS;
  for (Context* member : family_of(*session, *context)) {
    Stream* barrier = nullptr;
    OPENMPS_CUDA_CHECK(session->streams.hidden(*member, member->barrier, &barrier));
    OPENMPS_CUDA_CHECK(
        session->streams.push(*barrier, wire::StreamWaitEvent{barrier->id, event->id, 0}));
    OPENMPS_CUDA_CHECK(session->streams.push(*barrier, wire::ContextFollow{barrier->id}));
  }
  return CUDA_SUCCESS;
}

}  // namespace impl
}  // namespace openmps::client
