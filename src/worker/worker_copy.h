// SPDX-License-Identifier: Apache-2.0
// Copies and fills within a session's memory. Session's thread only.
#pragma once

#include "worker/session_core.h"
#include "worker/work_check.h"
#include "worker/worker_memory.h"
#include "worker/worker_stream.h"

namespace openmps::worker {

class Copies {
 public:
  Copies(SessionCore& core, Streams& streams, SessionMemory& memory)
      : core_(core), streams_(streams), memory_(memory) {}

  // Operands outside the session's memory are violations; the rest is the driver's to judge.
  Status copy(const wire::Memcpy& command);
  Status copy_3d(const wire::Memcpy3D& command);
  Status fill(const wire::Memset& command);

 private:
  Status finish(Stream& stream, uint32_t flags);
  Status submit_fill(const wire::Memset& command, CUstream stream);

  SessionCore& core_;
  Streams& streams_;
  SessionMemory& memory_;
};

}  // namespace openmps::worker
