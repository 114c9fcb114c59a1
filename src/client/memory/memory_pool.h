// SPDX-License-Identifier: Apache-2.0
// The object behind a CUmemoryPool: an arena of device memory of its own, so that its numbers are
// exact and it can be trimmed and limited by itself. Any thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "client/devices.h"
#include "client/handle_table.h"
#include "client/memory/memory.h"
#include "cuda/abi.h"

namespace openmps::client {

struct MemoryPool : Object {
  uint32_t device = 0;     // the program's ordinal
  Arena* arena = nullptr;  // null: imported, only for pointers of another process
  unsigned int handle_types = CU_MEM_HANDLE_TYPE_NONE;
  std::atomic<uint32_t> peers{0};  // other devices with access, a bit each
  // What tells the pools of all processes apart, from the first export or the import on; else 0.
  std::atomic<uint64_t> key{0};
  // Kept for the program only: blocks are reused in the order of their stream, and across streams
  // once they are idle, which every setting allows.
  std::atomic<int> reuse_follow_event{1};
  std::atomic<int> reuse_opportunistic{1};
  std::atomic<int> reuse_internal{1};
};

class MemoryPools : public HandleTable<MemoryPool> {
 public:
  // With the pool that each device begins with.
  MemoryPools(const Devices& devices, DeviceMemory& memory)
      : HandleTable<MemoryPool>(HandleKind::kMemoryPool) {
    for (uint32_t device = 0; device < devices.size(); ++device) {
      defaults[device] = add(device, memory.add_arena(devices[device], 0));
      current[device].store(defaults[device]);
    }
  }

  // nullptr: the limit of objects is reached.
  MemoryPool* add(uint32_t device, Arena* arena) {
    MemoryPool* pool = allocate();
    if (pool == nullptr) return nullptr;
    pool->device = device;
    pool->arena = arena;
    publish(pool);
    return pool;
  }

  MemoryPool* defaults[wire::kMaxDevices] = {};  // by the program's ordinal
  std::atomic<MemoryPool*> current[wire::kMaxDevices] = {};
};

}  // namespace openmps::client
