// SPDX-License-Identifier: Apache-2.0
// Copies and fills within a session's memory. Session's thread only.
#pragma once

#include "worker/memory.h"
#include "worker/session_core.h"
#include "worker/stream.h"
#include "worker/work_check.h"

namespace openmps::worker {

class Copies {
 public:
  Copies(SessionCore& core, Streams& streams, SessionMemory& memory)
      : core_(core), streams_(streams), memory_(memory) {}

  Status handle(const wire::Memcpy& command, Stream& stream);
  Status handle(const wire::Memcpy3D& command, Stream& stream);
  Status handle(const wire::Memset& command, Stream& stream);

 private:
  Status finish(Stream& stream, uint32_t flags);
  Status submit_fill(const wire::Memset& command, CUstream stream);

  SessionCore& core_;
  Streams& streams_;
  SessionMemory& memory_;
};

}  // namespace openmps::worker
