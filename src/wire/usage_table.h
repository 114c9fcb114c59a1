// SPDX-License-Identifier: Apache-2.0
// Reading a worker's table of usage (usage.h). Its writer is not trusted: the file is checked once,
// nothing in it is believed later but the figures themselves, and it is mapped read-only.
#pragma once

#include <cstdint>

#include "base/shared_memory.h"
#include "cuda/status.h"
#include "wire/usage.h"

namespace openmps::wire {

class UsageTable {
 public:
  UsageTable() = default;
  // Maps a file, which the caller may close then. CUDA_ERROR_INVALID_VALUE with the reason: it is
  // no table of usage, of another version, truncated, or could be truncated later.
  static Result<UsageTable> open(int file);

  [[nodiscard]] bool valid() const { return mapping_.valid(); }
  // The figures of that session if it has the row now, which is its window; else is_known is 0.
  [[nodiscard]] Usage read(uint32_t row, uint32_t session) const;

 private:
  Mapping mapping_;
  bool is_timed_ = false;
};

}  // namespace openmps::wire
