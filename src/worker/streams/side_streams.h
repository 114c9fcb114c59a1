// SPDX-License-Identifier: Apache-2.0
// Streams of a session beside the client's, on each device, for what can't be done in a client's
// stream. They are made when they are needed. Session's thread.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/core/session_core.h"

namespace openmps::worker {

class SideStreams {
 public:
  // `most`: of a device. Each costs a stream: 0.55 MiB of an H200's memory.
  SideStreams(SessionCore& core, size_t most) : core_(core), most_(most) {}
  SideStreams(const SideStreams&) = delete;
  SideStreams& operator=(const SideStreams&) = delete;

  // A stream of that device without work, else a new one, else any. The device's context is made
  // current. Null: there is none, and no slot for a stream is free.
  Status take(uint32_t device, SessionCore::Leaves leaves, CUstream* stream);
  // As take(), but if no slot is free the driver makes the first stream all the same, and may wait.
  Status take_for_certain(uint32_t device, CUstream* stream);
  // No work is under way. After a fault none is.
  [[nodiscard]] bool idle() const;
  void release_all();

 private:
  struct Side {
    uint32_t device;
    CUstream handle;
    StreamSlot slots;
  };
  Status add(uint32_t device, StreamSlot slots, CUstream* stream);

  SessionCore& core_;
  const size_t most_;
  std::vector<Side> sides_;
  size_t next_ = 0;
};

}  // namespace openmps::worker
