// SPDX-License-Identifier: Apache-2.0
// What a piece of work uses, and that its numbers make sense: one check for what a stream is given
// and for a node of a graph. The caller then asks the session's memory for the ranges: a stream's
// are violations (the client has asked before), a graph's are the program's errors (memory may go
// after the client asked). Session's thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "cuda/status.h"
#include "wire/commands.h"

namespace openmps::worker {

struct WorkRange {
  uint64_t address = 0;
  uint64_t bytes = 0;  // 0: nothing is used
  bool writable = false;
};

// The rows of a slice as cuMemcpy3D counts them. A single slice needs no more than its own.
// Violation: a slice that is no whole number of rows.
Status rows_of_slice(uint64_t height, uint64_t depth, uint64_t pitch, uint64_t slice, size_t* rows);

// What a copy or a fill touches by addresses of its own, as its description says.
template <typename Command>
[[nodiscard]] std::array<WorkRange, 2> ranges_of(const Command& command) {
  std::array<WorkRange, 2> ranges;
  size_t count = 0;
  const auto add = [&](uint64_t address, uint64_t bytes, bool writes, const char*) {
    ranges[count++] = {address, bytes, writes};
    return Status();
  };
  static_cast<void>(wire::visit_ranges(command, add).ok());
  return ranges;
}

// Violations: an element that is none.
Status check_element(const wire::Memset& command);
// Bytes from row to row.
[[nodiscard]] uint64_t pitch_of(const wire::Memset& command);

// A wait for a value of a variable in the cold lane: nobody could let it pass once the client has
// gone.
Status no_wait_in_cold_variable();

// Violations: a width or a kind that is none, an address that is not aligned.
Status check_value(const wire::ValueOperation& operation);
// A wait only reads. That the session can be drained is another matter: see
// SessionMemory::allow_writes().
[[nodiscard]] WorkRange range_of(const wire::ValueOperation& operation);
// As the driver takes it; `address` as the GPU knows it.
[[nodiscard]] CUstreamBatchMemOpParams operation_of(const wire::ValueOperation& operation,
                                                    CUdeviceptr address);

}  // namespace openmps::worker
