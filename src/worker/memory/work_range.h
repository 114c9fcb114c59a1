// SPDX-License-Identifier: Apache-2.0
// The memory that a piece of work uses by its address, as its command's description says. The
// session's memory is asked for it (SessionMemory): what a stream is given beyond that is a
// violation (the client has asked before), what a graph's node uses is the program's error (memory
// may go after the client asked). Any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "cuda/status.h"
#include "wire/commands/stream.h"

namespace openmps::worker {

struct WorkRange {
  uint64_t address = 0;
  uint64_t bytes = 0;  // 0: nothing is used
  bool writable = false;
};

// What a copy or a fill touches by addresses of its own: what it writes, then what it reads.
template <typename Command>
void set_ranges(const Command& command, std::array<WorkRange, 2>* ranges) {
  WorkRange* next = ranges->data();
  const auto add = [&](uint64_t address, uint64_t bytes, bool writes, const char*) {
    next->address = address;
    next->bytes = bytes;
    next++->writable = writes;
    return Status();
  };
  static_cast<void>(visit_ranges(command, add).ok());
}

// A wait only reads. That the session can be drained is another matter: see
// SessionMemory::allow_writes().
[[nodiscard]] inline WorkRange range_of(const wire::ValueOperation& operation) {
  if (operation.kind == wire::ValueKind::kBarrier) return {};
  return {operation.value.address, operation.value.width,
          operation.kind == wire::ValueKind::kWrite};
}

}  // namespace openmps::worker
