// SPDX-License-Identifier: Apache-2.0
// What stands behind a CUmemoryPool: an arena of device memory of its own, so that its numbers are
// exact and it can be trimmed and limited by itself. Any thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "client/handle_table.h"
#include "client/memory.h"
#include "cuda/abi.h"

namespace openmps::client {

struct Session;

struct MemoryPool : Object {
  uint32_t device = 0;     // the program's ordinal
  Arena* arena = nullptr;  // null: imported, only for pointers of another process
  unsigned int handle_types = CU_MEM_HANDLE_TYPE_NONE;
  std::atomic<uint32_t> peers{0};  // other devices with access, a bit each
  // Kept for the program only: blocks are reused in the order of their stream, and across streams
  // once they are idle, which every setting allows.
  std::atomic<int> reuse_follow_event{1};
  std::atomic<int> reuse_opportunistic{1};
  std::atomic<int> reuse_internal{1};
};

// The pool that each device begins with; called once at connect.
void create_default_pools(Session& session);

}  // namespace openmps::client
