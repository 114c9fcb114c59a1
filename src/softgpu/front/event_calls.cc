// SPDX-License-Identifier: Apache-2.0
// Events. Any thread.
#include "softgpu/device/graphs/capture.h"
#include "softgpu/device/issue/event_issue.h"
#include "softgpu/device/work/event.h"
#include "softgpu/front/front.h"

using namespace openmps;           // NOLINT: entry points live outside the namespace
using namespace openmps::softgpu;  // NOLINT: entry points live outside the namespace

namespace {

// A call about an event, which needs no context: body(Driver&, Event&) -> Status.
template <typename Body>
CUresult with_event(CUevent handle, Body&& body) {
  return with_any_context([&](Caller& caller) -> Status {
    std::shared_ptr<Event> event = caller.driver.events.find(handle);
    if (event == nullptr) return invalid_handle("not an event");
    return body(caller.driver, *event);
  });
}

}  // namespace

CUresult cuEventCreate(CUevent* phEvent, unsigned int Flags) {
  return with_context([&](Caller& caller) -> Status {
    if (phEvent == nullptr) return no_result();
    return deliver_handle(create_event(caller.context, Flags), phEvent);
  });
}

CUresult cuEventDestroy_v2(CUevent hEvent) {
  return with_driver([&](Driver& driver) -> Status {
    return driver.events.remove(hEvent) == nullptr ? invalid_handle("not an event") : Status();
  });
}

CUresult cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags) {
  return with_stream(hStream, [&](Caller& caller, Stream& stream) -> Status {
    const std::shared_ptr<Event> event = caller.driver.events.find(hEvent);
    if (event == nullptr) return invalid_handle("not an event");
    if ((flags & ~static_cast<unsigned>(CU_EVENT_RECORD_EXTERNAL)) != 0) {
      return invalid_value("unknown flags");
    }
    if (flags == 0) return record_event(*event, stream);
    if (!stream.capturing) return Status(CUDA_ERROR_ILLEGAL_STATE, "only captures have an outside");
    return caller.driver.captures.add(stream, RecordWork{event});
  });
}

CUresult cuEventQuery(CUevent hEvent) {
  return with_event(hEvent, [](Driver&, Event& event) { return query_event(event); });
}

CUresult cuEventSynchronize(CUevent hEvent) {
  return with_event(hEvent, [](Driver&, Event& event) { return synchronize_event(event); });
}

CUresult cuEventElapsedTime_v2(float* pMilliseconds, CUevent hStart, CUevent hEnd) {
  return with_event(hStart, [&](Driver& driver, Event& start) -> Status {
    if (pMilliseconds == nullptr) return invalid_handle("no place for the result");  // an H200's
    std::shared_ptr<Event> end = driver.events.find(hEnd);
    if (end == nullptr) return invalid_handle("not an event");
    return deliver(elapsed_ms(start, *end), pMilliseconds);
  });
}
