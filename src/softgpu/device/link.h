// SPDX-License-Identifier: Apache-2.0
// A link in progress: CUlinkState. Plain data, which the front works on.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "softgpu/ptx/linker.h"

namespace openmps::softgpu {

// The log buffers that JIT options name (CU_JIT_INFO_LOG_BUFFER and its relatives): the program's.
struct JitLogs {
  char* info = nullptr;
  size_t info_size = 0;
  void** info_filled = nullptr;
  char* error = nullptr;
  size_t error_size = 0;
  void** error_filled = nullptr;
};

struct Link {
  explicit Link(const JitLogs& of_the_program) : logs(of_the_program) {}

  const JitLogs logs;
  Mutex mutex{LockRank::kSoftLink};
  std::vector<ptx::LinkInput> inputs GUARDED_BY(mutex);
  // The linked PTX with a final NUL, which the program reads until it destroys the link.
  std::string result GUARDED_BY(mutex);
};

}  // namespace openmps::softgpu
