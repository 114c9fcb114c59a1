// SPDX-License-Identifier: Apache-2.0
// What the recorder learns from when work has run on the devices of this process.
#pragma once

#include <cstdint>
#include <span>

#include "cuda/status.h"
#include "cupti/activity.h"

namespace openmps::worker {

// What a session gives the driver with one command.
struct GivenWork {
  uint32_t session = 0;  // 0: nobody's that is recorded
  uint32_t stream = 0;   // the client's number
  uint64_t command = 0;  // where the command ends in the session's ring; 0: not known
  uint64_t given_ns = 0;
};

// By the calling thread, now.
inline thread_local GivenWork current_work;

class ActivitySource {
 public:
  // Work that has ended, and who gave it.
  struct Ended {
    GivenWork work;
    cupti::Activity activity;
    const char* name = nullptr;  // a kernel's; null: none
  };
  // Told of them on any thread, by several at once. Work of nobody's is not told.
  class Listener {
   public:
    virtual void take(std::span<const Ended> ended) = 0;

   protected:
    ~Listener() = default;
  };

  ActivitySource() = default;
  virtual ~ActivitySource() = default;
  ActivitySource(const ActivitySource&) = delete;
  ActivitySource& operator=(const ActivitySource&) = delete;

  // Between start() and stop() the listener is told of work. One thread starts, flushes and stops.
  // An error says why nothing can be recorded here.
  virtual Status start(Listener& listener) = 0;
  // The listener is not told anything any more, and the driver works as if there had been no
  // start(). Nothing runs on the devices, and nothing is given to them meanwhile.
  virtual void stop() = 0;
  // The listener has been told of what had ended before this call, as far as the source knows.
  // kAll: and of what the source would keep until there is more of it. What runs now may be lost
  // then.
  enum class Flush { kFull, kAll };
  virtual void flush(Flush how) = 0;
  // What has been lost since start().
  [[nodiscard]] virtual uint64_t lost() const = 0;
};

}  // namespace openmps::worker
