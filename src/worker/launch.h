// SPDX-License-Identifier: Apache-2.0
// Kernel launches of a session. Session's thread only.
#pragma once

#include "wire/codec.h"
#include "worker/event.h"
#include "worker/memory.h"
#include "worker/module.h"
#include "worker/prints.h"
#include "worker/session_core.h"
#include "worker/stream.h"

namespace openmps::worker {

class Launches {
 public:
  Launches(SessionCore& core, Streams& streams, Modules& modules, Events& events,
           SessionMemory& memory, Prints& prints)
      : core_(core),
        streams_(streams),
        modules_(modules),
        events_(events),
        memory_(memory),
        prints_(prints) {}

  // What is wrong with grid, block or shared memory is the driver's to say.
  Status handle(const wire::Launch& command, Stream& stream, Function& function,
                const wire::Launch::Tail& tail);
  // An attribute as the driver takes it: handles are ids here, addresses must be the session's.
  Status translate(CUlaunchAttribute* attribute);

 private:
  Status submit(const wire::Launch& command, const wire::Launch::Tail& tail, CUstream stream,
                const Located& located);
  Status launch_with_attributes(const wire::Launch& command,
                                std::span<const CUlaunchAttribute> attributes, CUstream stream,
                                const Located& located, void** extra);
  Status record_events(std::span<const CUlaunchAttribute> attributes, const Stream& stream);

  SessionCore& core_;
  Streams& streams_;
  Modules& modules_;
  Events& events_;
  SessionMemory& memory_;
  Prints& prints_;
};

}  // namespace openmps::worker
