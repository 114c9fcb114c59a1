// SPDX-License-Identifier: Apache-2.0
// Device memory of the session: which parts of its address window are mapped, which allocation a
// pointer lies in. Small blocks are carved out of 2 MiB slabs here, so most allocations and frees
// make no call; limits and out-of-memory come from the worker. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "base/cuda_abi.h"
#include "client/channel.h"
#include "client/fence.h"
#include "client/interval_map.h"
#include "client/range_allocator.h"
#include "wire/handshake.h"

namespace openmps::client {

struct Context;

// From this size an allocation has granules of its own; below it shares a slab.
inline constexpr uint64_t kOwnGranuleBytes = wire::kMiB;
// Alignment of every allocation: what CUDA's texture alignment asks, and what cuMemAlloc gives.
inline constexpr uint64_t kBlockBytes = 512;
// Freed, still mapped memory that is kept for the next allocations.
inline constexpr uint64_t kGranuleCacheBytes = 32 * wire::kMiB;

enum class AllocationKind : uint8_t { kOwn, kSlab, kGlobal, kMapped };

struct Allocation {
  AllocationKind kind = AllocationKind::kOwn;
  uint32_t wire_device = 0;
  uint32_t device = 0;
  Context* context = nullptr;  // the one that was current
  uint64_t reserved = 0;       // bytes taken, at least what was asked for
  uint64_t buffer_id = 0;      // unique in the process
  bool async = false;          // from the device's pool: freed in stream order
};

class DeviceMemory {
 public:
  using Entry = IntervalMap<Allocation>::Entry;

  DeviceMemory(Channel& channel, Fences& fences, uint64_t window_base);

  // Errors: CUDA_ERROR_OUT_OF_MEMORY (device, limit or window is full), the session's end.
  [[nodiscard]] CUresult allocate(Context& context, uint64_t bytes, bool async,
                                  CUdeviceptr* address);
  // Take an allocation off the map, so that nobody frees it twice. Its memory stays until
  // release(). Errors: CUDA_ERROR_INVALID_VALUE: `address` is not the start of a live allocation.
  [[nodiscard]] CUresult forget(CUdeviceptr address, Entry* entry);
  // Give the memory of a forgotten allocation back; nothing may use it any more.
  void release(const Entry& entry);
  // The same once `point` is reached.
  void release_after(const Entry& entry, FencePoint point);
  // Everything that belongs to a context, or (nullptr) to anyone.
  std::vector<Entry> forget_all(const Context* context);

  // A module's global: known for checks and attributes, not ours to free.
  void add_global(Context* context, uint32_t device, uint64_t address, uint64_t bytes);
  void remove_global(uint64_t address);

  // Addresses for memory that the program maps by itself, in whole granules; `alignment` is a power
  // of two. Errors: CUDA_ERROR_OUT_OF_MEMORY.
  [[nodiscard]] CUresult reserve(uint64_t bytes, uint64_t alignment, uint64_t* address);
  void unreserve(uint64_t address, uint64_t bytes);
  // Physical memory at reserved addresses. Errors as of allocate().
  [[nodiscard]] CUresult map_at(Context& context, uint64_t address, uint64_t bytes);
  // Nothing may use it any more. Errors: the session's end.
  [[nodiscard]] CUresult unmap_at(uint64_t address);

  [[nodiscard]] bool find(uint64_t address, Entry* entry) const;
  // All of [address, address + bytes) lies in one allocation, or in neighbouring mappings.
  [[nodiscard]] bool contains(uint64_t address, uint64_t bytes) const;
  [[nodiscard]] bool in_window(uint64_t address) const {
    return address - base_ < wire::kDeviceBytes;
  }

  // Mapped but free bytes, which the program may count as free.
  [[nodiscard]] uint64_t cached_bytes(uint32_t wire_device) const;
  // Unmap all that is cached (a program that trims a pool wants it back).
  void trim();

 private:
  struct Deferred {
    FencePoint point;
    Entry entry;
  };
  struct PerDevice {
    RangeAllocator slabs{wire::kMemoryGranularity};
    std::multimap<uint64_t, uint64_t> cache;  // bytes -> base of mapped, unused granules
  };

  CUresult map_locked(uint32_t device, uint64_t bytes, uint64_t* base, uint64_t* mapped);
  bool take_cached_locked(uint32_t device, uint64_t bytes, uint64_t* base, uint64_t* mapped);
  void cache_locked(uint32_t device, uint64_t base, uint64_t bytes);
  // Only allocations of ours are freed or go with their context.
  static bool is_allocated(const Entry& entry) {
    return entry.value.kind == AllocationKind::kOwn || entry.value.kind == AllocationKind::kSlab;
  }
  void unmap_locked(uint32_t device, uint64_t base, uint64_t bytes);
  void evict_locked(uint64_t keep_bytes);
  void release_locked(const Entry& entry);
  void reap_locked();

  Channel& channel_;
  Fences& fences_;
  const uint64_t base_;
  mutable std::mutex lock_;
  RangeAllocator addresses_;  // of the window's device part, in granules
  IntervalMap<Allocation> allocations_;
  std::vector<Deferred> deferred_;
  PerDevice devices_[wire::kMaxDevices];
  uint64_t cached_total_ = 0;
  uint64_t next_buffer_id_ = 1;
};

}  // namespace openmps::client
