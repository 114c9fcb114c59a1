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
  event.recorded_ns = 0;  // others record it, too
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
  if (start.recorded_ns != 0 || end.recorded_ns != 0) {
    uint64_t from = 0, to = 0;
    OPENMPS_RETURN_IF_ERROR(time_of(start, &from));
    OPENMPS_RETURN_IF_ERROR(time_of(end, &to));
    reply.put({static_cast<float>(static_cast<double>(static_cast<int64_t>(to - from)) / 1e6)});
    return Status();
  }
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

// ---- Times of a former worker -------------------------------------------------------------------

// The driver's streams wait for no legacy stream, and it for none of them.
Status Events::make_reference(uint32_t device, Reference* made) {
  OPENMPS_RETURN_IF_ERROR(core_.use(device));
  OPENMPS_RETURN_IF_ERROR(DriverEvent::make(core_.driver, device, &made->event, CU_EVENT_DEFAULT));
  const CUevent handle = made->event->handle;
  const uint64_t before = core_.clock.now_ns();
  OPENMPS_RETURN_IF_ERROR(check(core_.driver.cuEventRecord(handle, nullptr), "cuEventRecord"));
  OPENMPS_RETURN_IF_ERROR(check(core_.driver.cuEventSynchronize(handle), "cuEventSynchronize"));
  made->ns = before + (core_.clock.now_ns() - before) / 2;
  return Status();
}

Status Events::time_of(const Event& event, uint64_t* ns) {
  *ns = event.recorded_ns;
  if (*ns != 0) return Status();
  if (event.driver_event == nullptr) {
    return Status(CUDA_ERROR_INVALID_HANDLE, "an event has not been recorded");
  }
  Reference& reference = references_[event.device];
  if (reference.event == nullptr) {
    OPENMPS_RETURN_IF_ERROR(make_reference(event.device, &reference));
  }
  OPENMPS_RETURN_IF_ERROR(core_.use(event.device));
  float ms = 0;
  OPENMPS_RETURN_IF_ERROR(check(
      core_.driver.cuEventElapsedTime(&ms, reference.event->handle, event.driver_event->handle),
      "cuEventElapsedTime"));
  *ns = reference.ns + static_cast<uint64_t>(static_cast<int64_t>(double{ms} * 1e6));
  return Status();
}

void Events::write_times() {
  // Near to what was recorded last: milliseconds are a float.
  for (Reference& reference : references_) reference.event = nullptr;
  wire::EventTimes& times = core_.view.event_times();
  uint32_t count = 0;
  events_.for_each_id([&](wire::Id id, const Event& event) {
    const bool is_timed = (event.flags & CU_EVENT_DISABLE_TIMING) == 0;
    uint64_t ns = 0;
    if (!is_timed || count == wire::kMostEventTimes || !time_of(event, &ns).ok()) return;
    times.events[count].event.store(id, std::memory_order_relaxed);
    times.events[count++].ns.store(ns, std::memory_order_relaxed);
  });
  times.count.store(count, std::memory_order_release);
}

void Events::read_times() {
  wire::EventTimes& times = core_.view.event_times();
  const uint32_t count = times.count.exchange(0, std::memory_order_acquire);
  for (uint32_t i = 0; i < std::min(count, wire::kMostEventTimes); ++i) {
    const auto id = static_cast<wire::Id>(times.events[i].event.load(std::memory_order_relaxed));
    if (Event* const event = events_.find(id); event != nullptr) {
      event->recorded_ns = times.events[i].ns.load(std::memory_order_relaxed);
    }
  }
}

}  // namespace openmps::worker
