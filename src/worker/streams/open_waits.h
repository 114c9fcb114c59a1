// SPDX-License-Identifier: Apache-2.0
// The values that a session's streams wait for (cuStreamWaitValue, alone or in a graph), for as
// long as they wait: when the client has gone, only the worker can write them. An event behind each
// wait tells when the stream has passed it; the first that is left is the one that the stream waits
// for now. Session's thread only.
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
#include "worker/streams/side_streams.h"
#include "worker/streams/stream.h"

namespace openmps::worker {

// At most so many waits of a session are open. NVIDIA's driver takes some 1,020 items of a stream,
// so only dozens of streams with thousands of open waits each are refused.
inline constexpr size_t kMostOpenWaits = 1u << 16;

class OpenWaits {
 public:
  OpenWaits(SessionCore& core, SessionMemory& memory) : core_(core), memory_(memory) {}

  // Before waits are submitted to the stream, which has been entered. CUDA_ERROR_OUT_OF_MEMORY:
  // kMostOpenWaits, or the driver has no event.
  Status prepare(const Stream& stream, size_t count);
  // Forget the waits that have passed: they are shown no longer.
  void sweep();
  // These waits have been submitted, as the stream's last work.
  Status add(const Stream& stream, std::span<const wire::StreamValue> values);

  // The client has gone: write the values that the streams wait for now, from streams made for
  // that. Called again and again: behind a wait that passes there may be another, and work in
  // between may change the value. True: a stream has passed a wait since the last call.
  bool pass();
  // The writes of pass() have ended: the memory may go.
  [[nodiscard]] bool passed() const { return writers_.idle(); }
  [[nodiscard]] size_t size() const { return size_; }
  void release_all();

 private:
  // The waits of one command, and an event behind them.
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

  // True: some have passed.
  bool forget_passed(Line& line);
  bool forget_all_passed();
  void write(const wire::StreamValue& wait, uint32_t device);

  SessionCore& core_;
  SessionMemory& memory_;
  // A stream's handle may be reused: the first stream's waits have passed by then.
  std::map<CUstream, Line> lines_;
  size_t size_ = 0;                     // values in all lines
  size_t rounds_ = 0;                   // of pass()
  std::unique_ptr<DriverEvent> spare_;  // the next to use
  SideStreams writers_{core_, 1};
};

}  // namespace openmps::worker
