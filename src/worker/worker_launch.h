// SPDX-License-Identifier: Apache-2.0
// Kernel launches of a session. Session's thread only.
#pragma once

#include "wire/decode.h"
#include "worker/session_core.h"
#include "worker/worker_event.h"
#include "worker/worker_memory.h"
#include "worker/worker_module.h"
#include "worker/worker_stream.h"

namespace openmps::worker {

class Launches {
 public:
  Launches(SessionCore& core, Streams& streams, Modules& modules, Events& events,
           SessionMemory& memory)
      : core_(core), streams_(streams), modules_(modules), events_(events), memory_(memory) {}

  // `variable`: the attributes, then the parameters as one buffer. What is wrong with grid, block
  // or shared memory is the driver's to say.
  Status launch(const wire::Launch& command, wire::Variable variable);

 private:
  Status launch_with_attributes(const wire::Launch& command, const unsigned char* attributes,
                                const Stream& stream, const Function& function, void** extra);
  Status translate(CUlaunchAttribute* attribute);

  SessionCore& core_;
  Streams& streams_;
  Modules& modules_;
  Events& events_;
  SessionMemory& memory_;
};

}  // namespace openmps::worker
