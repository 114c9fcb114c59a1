// SPDX-License-Identifier: Apache-2.0
// The values that a session's streams wait for (cuStreamWaitValue, alone or in a graph), for as
// long as they wait: when the client has gone, nobody else will write them. Each is marked by an
// event behind it, so a stream's waits are forgotten as it passes them, whatever the other streams
// do, and the first that is left is the one that it stands at. Session's thread only.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "worker/core/session_core.h"
#include "worker/device/driver_event.h"
#include "worker/device/shown.h"
#include "worker/memory/memory.h"
#include "worker/streams/stream.h"

namespace openmps::worker {

// Remembered at once, of a session. NVIDIA's driver lets a stream hold some 1,020 items; what this
// refuses are thousands of open waits in each of dozens of streams.
inline constexpr size_t kMostOpenWaits = 1u << 16;

class OpenWaits {
 public:
  OpenWaits(SessionCore& core, SessionMemory& memory) : core_(core), memory_(memory) {}

  // Before waits are submitted to the stream, which has been entered. CUDA_ERROR_OUT_OF_MEMORY:
  // kMostOpenWaits, or the driver has no event.
  Status prepare(const Stream& stream, size_t count);
  // Forget those that have passed, which are no longer shown.
  void sweep();
  // They have been submitted, as the stream's last work.
  Status add(const Stream& stream, std::span<const wire::StreamValue> values);

  // The client has gone: write what the streams stand at, from streams of our own, wherever it
  // lies. Called again and again, because each wait that passes may uncover the next, and because
  // work in between may change the value. True: a stream has passed one since the last call.
  bool pass();
  // What pass() wrote has arrived: the memory may go.
  [[nodiscard]] bool passed();
  [[nodiscard]] size_t size() const { return size_; }
  void release_all();

 private:
  // What one command waits for; the event comes when it has passed.
  struct Value {
    wire::StreamValue wait;
    ShownValues::Row shown;
  };
  struct Open {
    std::vector<Value> values;
    std::unique_ptr<DriverEvent> behind;
    size_t next = 0;  // to be written
  };
  using Line = std::deque<Open>;  // of one driver's stream, oldest first

  static bool is_same(const Open& open, std::span<const wire::StreamValue> values);
  // The first of the line is not open any more.
  void forget_first(Line& line);
  bool forget_passed(Line& line);
  bool forget_all_passed();
  void write(const wire::StreamValue& wait, uint32_t device);
  CUstream stream_on(uint32_t device);

  SessionCore& core_;
  SessionMemory& memory_;
  // A stream's handle may name another one later: what the first left has passed by then.
  std::map<CUstream, Line> lines_;
  size_t size_ = 0;                     // values in all lines
  size_t rounds_ = 0;                   // of pass()
  std::unique_ptr<DriverEvent> spare_;  // the next to use
  struct Writer {
    CUstream stream = nullptr;
    StreamSlot slots;
  };
  std::map<uint32_t, Writer> streams_;  // by device
};

}  // namespace openmps::worker
