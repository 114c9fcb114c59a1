// SPDX-License-Identifier: Apache-2.0
// The events of a session: driver events of the shared context, made at their first record.
// Session's thread only.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "wire/commands/stream.h"
#include "worker/core/object_table.h"
#include "worker/core/reply_writer.h"
#include "worker/core/session_core.h"
#include "worker/device/driver_event.h"

namespace openmps::worker {

struct Event {
  uint32_t flags = 0;  // CUevent_flags that matter to the driver
  uint32_t device = 0;
  std::shared_ptr<DriverEvent> driver_event;  // null until the first record
  // The last record by a command of its own: its stream (0: there was none) and its fence.
  wire::Id recorded_in = 0;
  uint32_t slot = wire::kNoFence;
  uint64_t value = 0;
  // The stream whose loss the last record was part of (losses.h); 0: none.
  wire::Id lost_in = 0;
  // When it was recorded in a former worker, by the host's clock (wire::EventTime); 0: not there,
  // or it is not known.
  uint64_t recorded_ns = 0;
};
inline constexpr wire::Id kSomeStream = ~wire::Id{0};  // in Event::lost_in: it is not known

class Events {
 public:
  explicit Events(SessionCore& core) : core_(core) {}

  Status handle(const wire::EventCreate& command);
  Status handle(const wire::EventDestroy& command);
  // cuEventElapsedTime: INVALID_HANDLE for one never recorded, NOT_READY for an unfinished one. Of
  // one that was recorded in a former worker to some 10 us.
  Status handle(const wire::EventElapsed& command, Event& start, Event& end,
                ReplyTo<wire::EventElapsed> reply);
  // cuEventQuery of an event that other sessions record, too.
  Status handle(const wire::EventQuery& command, Event& event);
  // The driver's event, to be shared with other sessions; and an event that another session shares.
  Status share(Event& event, std::shared_ptr<DriverEvent>* shared);
  Status adopt(wire::Id id, uint32_t flags, std::shared_ptr<DriverEvent> event);
  // The session leaves this worker with nothing under way: write when its events were recorded,
  // of as many as fit. And read that in the next worker.
  void write_times();
  void read_times();
  [[nodiscard]] const auto& events() const { return events_; }
  void release_all() {
    events_.clear();
    for (Reference& reference : references_) reference.event = nullptr;
  }

 private:
  // An event of the driver, and when it was recorded by the host's clock.
  struct Reference {
    std::unique_ptr<DriverEvent> event;
    uint64_t ns = 0;
  };
  Status make_reference(uint32_t device, Reference* made);
  // The host's time at which it was recorded. Errors: those of cuEventElapsedTime.
  Status time_of(const Event& event, uint64_t* ns);

  SessionCore& core_;
  ObjectTable<Event> events_{"event", wire::kMaxEvents};
  std::array<Reference, wire::kMaxDevices> references_;  // made with the first use
};

}  // namespace openmps::worker
