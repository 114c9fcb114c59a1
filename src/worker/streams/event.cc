// SPDX-License-Identifier: Apache-2.0
// The events of a session. See event.h.
#include "worker/streams/event.h"

#include <memory>
#include <utility>

#include "worker/device/driver_check.h"

namespace openmps::worker {

Status Events::handle(const wire::EventCreate& command) {
  auto event = std::make_unique<Event>();
  // Blocking waits and sharing between processes are done by the client.
  event->flags = command.flags & CU_EVENT_DISABLE_TIMING;
  event->device = command.device;
  return events_.insert(command.event, std::move(event));
}

Status Events::handle(const wire::EventDestroy& command) {
  // The driver's event goes with its last holder: this session, or one that it was shared with.
  return events_.end(command.event);
}

Status Events::handle(const wire::EventQuery&, Event& event) {
  if (event.driver_event == nullptr) return Status();
  return check(core_.driver.cuEventQuery(event.driver_event->handle), "cuEventQuery");
}

Status Events::share(Event& event, std::shared_ptr<DriverEvent>* shared) {
  if (event.driver_event == nullptr) {
    OPENMPS_RETURN_IF_ERROR(core_.use(event.device));
    std::unique_ptr<DriverEvent> made;
    OPENMPS_RETURN_IF_ERROR(DriverEvent::make(core_.driver, event.device, &made, event.flags));
    event.driver_event = std::move(made);
  }
  *shared = event.driver_event;
  return Status();
}

Status Events::adopt(wire::Id id, uint32_t flags, std::shared_ptr<DriverEvent> shared) {
  auto event = std::make_unique<Event>();
  event->flags = flags & CU_EVENT_DISABLE_TIMING;
  event->device = shared->device;
  event->driver_event = std::move(shared);
  return events_.insert(id, std::move(event));
}

Status Events::handle(const wire::EventElapsed&, Event& start, Event& end,
                      ReplyTo<wire::EventElapsed> reply) {
  if (start.driver_event == nullptr || end.driver_event == nullptr) {
    return Status(CUDA_ERROR_INVALID_HANDLE, "an event has not been recorded");
  }
  OPENMPS_RETURN_IF_ERROR(core_.use(start.device));
  wire::EventElapsed::Reply answer{};
  OPENMPS_RETURN_IF_ERROR(
      check(core_.driver.cuEventElapsedTime(&answer.milliseconds, start.driver_event->handle,
                                            end.driver_event->handle),
            "cuEventElapsedTime"));
  reply.put(answer);
  return Status();
}

}  // namespace openmps::worker
