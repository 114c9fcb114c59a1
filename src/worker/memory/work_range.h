// SPDX-License-Identifier: Apache-2.0
// The memory ranges that a piece of work names, as the description of its command says. Ranges of
// work for a stream that are not the session's (SessionMemory) are a violation, since the client
// has checked them; those of a graph's node are the program's error, since memory may be freed
// after the client has checked it. Any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "cuda/status.h"
#include "wire/commands/stream.h"

namespace openmps::worker {

struct WorkRange {
  uint64_t address = 0;
  uint64_t bytes = 0;  // 0: none
  bool writable = false;
};

// The ranges of a copy or a fill: the one that it writes, then the one that it reads.
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

// A wait only reads, though the worker may have to write the word to end the wait: see
// SessionMemory::allow_writes().
[[nodiscard]] inline WorkRange range_of(const wire::ValueOperation& operation) {
  if (operation.kind == wire::ValueKind::kBarrier) return {};
  return {operation.value.address, operation.value.width,
          operation.kind == wire::ValueKind::kWrite};
}

}  // namespace openmps::worker
