// SPDX-License-Identifier: Apache-2.0
// The events of a session by handle. They are recorded and waited for in event_api.cc. Any thread.
#pragma once

#include "client/handle_table.h"
#include "client/link/channel.h"
#include "client/objects.h"
#include "cuda/abi.h"

namespace openmps::client {

class Events : public HandleTable<Event> {
 public:
  explicit Events(Channel& channel)
      : HandleTable<Event>(HandleKind::kEvent, wire::kMaxEvents), channel_(channel) {}

  [[nodiscard]] CUresult destroy(Event* event) {
    if (!retire(event)) return CUDA_ERROR_INVALID_HANDLE;
    const CUresult result = channel_.push(wire::EventDestroy{event->id});
    recycle(event);
    return result;
  }

 private:
  Channel& channel_;
};

}  // namespace openmps::client
