// SPDX-License-Identifier: Apache-2.0
// What device memory is accounted in: arenas, which memory comes from, and allocations, which are
// carved out of them. Guarded by DeviceMemory's lock.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "client/memory/interval_map.h"
#include "client/memory/range_allocator.h"
#include "wire/commands/memory.h"
#include "wire/handshake.h"

namespace openmps::client {

struct Context;

// From this size an allocation has granules of its own; below it shares a slab.
inline constexpr uint64_t kOwnGranuleBytes = wire::kMiB;

// Where allocations come from: mapped granules and what is carved out of them. Each device has one
// for cuMemAlloc, each memory pool has one.
struct Arena {
  uint32_t wire_device = 0;
  uint64_t keep_bytes = 0;  // a pool's release threshold
  uint64_t most_bytes = 0;  // that a pool may have mapped; 0: no limit
  RangeAllocator slabs{wire::kMemoryGranularity};
  std::multimap<uint64_t, uint64_t> cache;  // bytes -> base of mapped, unused granules
  uint64_t cached = 0;                      // bytes in the cache
  uint64_t used = 0;                        // bytes in live allocations
  uint64_t used_high = 0;
  uint64_t reserved = 0;  // bytes mapped, or about to be
  uint64_t reserved_high = 0;
  bool abandoned = false;  // its pool is destroyed: ends with its last allocation
};

enum class AllocationKind : uint8_t { kOwn, kSlab, kGlobal, kMapped, kImported };

struct Allocation {
  AllocationKind kind = AllocationKind::kOwn;
  uint32_t device = 0;
  Context* context = nullptr;  // the one that was current
  uint64_t reserved = 0;       // bytes taken, at least what was asked for
  uint64_t buffer_id = 0;      // unique in the process
  Arena* arena = nullptr;      // of kOwn and kSlab
  bool async = false;          // stream-ordered
  uint64_t pool = 0;           // handle of the memory pool that it is from; 0: cuMemAlloc
  bool writable = true;        // by the device
  bool sync_memops = false;    // CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
  // Other processes may open it by this key (cuIpcGetMemHandle).
  std::optional<wire::ShareKey> key = std::nullopt;
};

using AllocationEntry = IntervalMap<Allocation>::Entry;

}  // namespace openmps::client
