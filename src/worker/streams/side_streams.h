// SPDX-License-Identifier: Apache-2.0
// Streams beside the client's, for what a client's stream can't do itself. They wait by an event
// until the client's stream has come to some point. Session's thread.
//
// Wakes for the client's sleeping threads: in the client's stream the host function that wakes
// would hold up the work behind it until a thread of the driver has run, 15-45 us (decision 1). A
// wake that waits here occupies a hardware queue: where these are short the wake goes into the
// client's stream all the same (decision 23).
// Records of an event of another device: the driver takes them in streams of that device alone, but
// an event of another process is one of the device that was current when it was opened.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "worker/admission/queue_credits.h"
#include "worker/core/session_core.h"
#include "worker/streams/stream.h"

namespace openmps::worker {

class SideStreams {
 public:
  // `credits`: null: hardware queues are not counted.
  SideStreams(SessionCore& core, PerDevice<QueueCredits>* credits)
      : core_(core), credits_(credits) {}

  // Wake the client when the earlier work of `stream`, which has been entered, has ended.
  Status wake_after(const Stream& stream);
  // Record `event`, which may be of another device, when the earlier work of `stream`, which has
  // been entered, has ended.
  Status record_after(const Stream& stream, const DriverEvent& event);
  // No wake is under way: the header that they write to may go. After a fault none is.
  [[nodiscard]] bool idle();
  void release_all();

 private:
  struct Side {
    uint32_t device;
    CUstream stream;
    CUevent event;
    StreamSlot slots;
  };
  // What a wake from a side stream needs.
  struct Waking {
    wire::ChannelHeader* header = nullptr;
    QueueCredits* credits = nullptr;  // of its device, to give its credit back; null: it has none
  };
  static void wake(void* waking);
  // A wake by a side stream occupies a hardware queue. Empty: few are left.
  [[nodiscard]] std::optional<QueueCredit> take_credit(uint32_t device);
  // A side stream. Null: there is none, and no stream slot is free.
  Result<Side*> take(uint32_t device);
  // A side stream; the driver may wait to make it.
  Result<Side*> take_for_certain(uint32_t device);
  Result<Side*> add(uint32_t device, StreamSlot slots);
  Status wake_beside(const Side& side, const Stream& stream);

  SessionCore& core_;
  PerDevice<QueueCredits>* const credits_;
  std::vector<Side> sides_;
  size_t next_ = 0;
  std::array<Waking, wire::kMaxDevices> wakings_{};  // by device
};

}  // namespace openmps::worker
