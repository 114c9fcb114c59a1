// SPDX-License-Identifier: Apache-2.0
// Wakes for the client's sleeping threads, once a stream has come to some point. The host function
// that wakes runs in a stream of our own behind an event: in the client's stream it would hold up
// the work behind it until a thread of the driver has run, 15-45 us (decision 1). Session's thread.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/core/session_core.h"
#include "worker/streams/stream.h"

namespace openmps::worker {

class Wakers {
 public:
  explicit Wakers(SessionCore& core) : core_(core) {}

  // Wake the client once `stream`, which has been entered, has come here.
  Status wake_after(const Stream& stream);
  // No wake is under way: the header that they write to may go. After a fault none is.
  [[nodiscard]] bool idle();
  void release_all();

 private:
  struct Waker {
    uint32_t device;
    CUstream stream;
    CUevent event;
  };
  Result<Waker*> take(uint32_t device);
  Result<Waker*> add(uint32_t device);

  SessionCore& core_;
  std::vector<Waker> wakers_;
  size_t next_ = 0;
};

}  // namespace openmps::worker
