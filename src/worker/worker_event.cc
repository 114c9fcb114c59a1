// SPDX-License-Identifier: Apache-2.0
// The events of a session. See worker_event.h.
#include "worker/worker_event.h"

#include <memory>

#include "worker/driver_check.h"

namespace openmps::worker {

Status Events::create(const wire::EventCreate& command) {
  OPENMPS_RETURN_IF_ERROR(core_.check_device(command.device));
  auto event = std::make_unique<Event>();
  // How a program waits for the event is the client's affair, and so is sharing it.
  event->flags = command.flags & CU_EVENT_DISABLE_TIMING;
  event->device = command.device;
  return events_.insert(command.event, std::move(event));
}

Status Events::destroy(wire::Id id) {
  const std::unique_ptr<Event> event = events_.take(id);
  if (event == nullptr) return violation("there is no event " + std::to_string(id));
  if (event->handle == nullptr) return Status();
  OPENMPS_RETURN_IF_ERROR(core_.use(event->device));
  return check(core_.driver.cuEventDestroy_v2(event->handle), "cuEventDestroy");
}

Status Events::make(Event& event) {
  if (event.handle != nullptr) return Status();
  OPENMPS_RETURN_IF_ERROR(core_.use(event.device));
  return check(core_.driver.cuEventCreate(&event.handle, event.flags), "cuEventCreate");
}

Status Events::record(const wire::EventRecord& command, Stream& stream) {
  Event* event = nullptr;
  OPENMPS_RETURN_IF_ERROR(events_.get(command.event, &event));
  OPENMPS_RETURN_IF_ERROR(make(*event));
  OPENMPS_RETURN_IF_ERROR(core_.use(stream.device));
  event->capture = stream.capture;
  if ((command.flags & CU_EVENT_RECORD_EXTERNAL) == 0) {
    return check(core_.driver.cuEventRecord(event->handle, stream.handle), "cuEventRecord");
  }
  return check(
      core_.driver.cuEventRecordWithFlags(event->handle, stream.handle, CU_EVENT_RECORD_EXTERNAL),
      "cuEventRecordWithFlags");
}

Status Events::wait(const wire::StreamWaitEvent& command) {
  Stream* stream = nullptr;
  Event* event = nullptr;
  OPENMPS_RETURN_IF_ERROR(streams_.get(command.stream, &stream));
  OPENMPS_RETURN_IF_ERROR(events_.get(command.event, &event));
  if (event->handle == nullptr) return Status();
  if (stream->capture == 0 && event->capture != 0 && streams_.is_active(event->capture)) {
    OPENMPS_RETURN_IF_ERROR(streams_.join_capture(*stream, event->capture));
  }
  OPENMPS_RETURN_IF_ERROR(streams_.enter(*stream, Streams::Entry::kWork));
  return check(core_.driver.cuStreamWaitEvent(stream->handle, event->handle,
                                              command.flags & CU_EVENT_WAIT_EXTERNAL),
               "cuStreamWaitEvent");
}

Status Events::elapsed(const wire::EventElapsed& command, ReplyWriter& reply) {
  Event* start = nullptr;
  Event* end = nullptr;
  OPENMPS_RETURN_IF_ERROR(events_.get(command.start, &start));
  OPENMPS_RETURN_IF_ERROR(events_.get(command.end, &end));
  if (start->handle == nullptr || end->handle == nullptr) {
    return Status(CUDA_ERROR_INVALID_HANDLE, "an event has not been recorded");
  }
  OPENMPS_RETURN_IF_ERROR(core_.use(start->device));
  wire::EventElapsedReply answer{};
  OPENMPS_RETURN_IF_ERROR(
      check(core_.driver.cuEventElapsedTime(&answer.milliseconds, start->handle, end->handle),
            "cuEventElapsedTime"));
  reply.put(answer);
  return Status();
}

Status Events::handle_of(wire::Id id, CUevent* handle) {
  Event* event = nullptr;
  OPENMPS_RETURN_IF_ERROR(events_.get(id, &event));
  OPENMPS_RETURN_IF_ERROR(make(*event));
  *handle = event->handle;
  return Status();
}

void Events::release_all() {
  events_.for_each([this](Event& event) {
    if (event.handle != nullptr) core_.driver.cuEventDestroy_v2(event.handle);
  });
  events_.clear();
}

}  // namespace openmps::worker
