// SPDX-License-Identifier: Apache-2.0
// Copies and fills within a session's memory. Session's thread only.
#pragma once

#include "worker/session_core.h"
#include "worker/worker_memory.h"
#include "worker/worker_stream.h"

namespace openmps::worker {

// From the first to the last byte of a box of rows and slices; ~0 if that overflows, which no
// session's memory contains.
[[nodiscard]] uint64_t span_of_box(uint64_t width, uint64_t height, uint64_t depth, uint64_t pitch,
                                   uint64_t slice);
// The rows of a slice as cuMemcpy3D counts them. A single slice needs no more than its own.
Status rows_of_slice(uint64_t slice, uint64_t pitch, const wire::Memcpy3D& command, size_t* rows);

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

  SessionCore& core_;
  Streams& streams_;
  SessionMemory& memory_;
};

}  // namespace openmps::worker
