// SPDX-License-Identifier: Apache-2.0
// Device memory of the session: which parts of its address window are mapped, which allocation a
// pointer lies in. Small blocks are carved out of 2 MiB slabs here, so most allocations and frees
// make no call; limits and out-of-memory come from the worker. Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <vector>

#include "base/mutex.h"
#include "base/shared_memory.h"
#include "client/link/channel.h"
#include "client/link/fence.h"
#include "client/memory/arena.h"
#include "client/memory/deferred_frees.h"
#include "client/memory/returned_ranges.h"
#include "cuda/abi.h"

namespace openmps::client {

struct Context;
struct Stream;

// Alignment of every allocation: what CUDA's texture alignment asks, and what cuMemAlloc gives.
inline constexpr uint64_t kBlockBytes = 512;
// Freed, still mapped memory that an arena keeps for its next allocations.
inline constexpr uint64_t kGranuleCacheBytes = 32 * wire::kMiB;
// Ranges that were unmapped last stay apart for as many allocations of their size: the worker may
// have their memory still.
inline constexpr size_t kRangesApart = 64;
// Frees whose point has been reached and that one allocation carries out: a few microseconds.
inline constexpr size_t kReapedPerAllocation = 16;
// Reservations from this size on have an extent of their own, which leaves the window to
// allocations.
inline constexpr uint64_t kOwnExtentBytes = wire::kExtentBytes / 192;

// The numbers of a pool, in bytes.
struct ArenaUse {
  uint64_t keep = 0;  // its release threshold
  uint64_t used = 0;
  uint64_t used_high = 0;
  uint64_t reserved = 0;
  uint64_t reserved_high = 0;
};

class DeviceMemory {
 public:
  using Entry = AllocationEntry;

  DeviceMemory(Channel& channel, Fences& fences, uint64_t window_base);
  // The session is in a group, whose members may allocate what this one frees: cuMemFree returns
  // when the memory is free for them, and only pools keep memory. Called before the first
  // allocation.
  void join_group() { in_group_ = true; }
  // The program has synchronised, with that result: in a group, memory that was freed before goes
  // back to the worker. Returns `result`.
  CUresult reclaim_after(CUresult result);

  // Errors: CUDA_ERROR_OUT_OF_MEMORY (device, limit or window is full), the session's end.
  // `async`: not for cuMemAlloc, so other processes can't be given it (cuIpcGetMemHandle).
  [[nodiscard]] CUresult allocate(Context& context, uint64_t bytes, bool async,
                                  CUdeviceptr* address);
  // From a pool, for use in the order of `stream`: what was freed in that order before may come
  // back although the GPU has not come so far. `pool`: its handle.
  [[nodiscard]] CUresult allocate_async(Context& context, Arena& arena, uint64_t pool,
                                        const Stream& stream, uint64_t bytes, CUdeviceptr* address);
  // Remove an allocation from the map, so that it can't be freed twice. Its memory is kept until
  // release(). Errors: CUDA_ERROR_INVALID_VALUE: `address` is not the start of a live allocation.
  [[nodiscard]] CUresult forget(CUdeviceptr address, Entry* entry);
  // Return the memory of a forgotten allocation; no work may use it any more.
  void release(const Entry& entry);
  // Return the memory once `point` is reached, behind which no work uses it. The stream of the
  // point's slot may be given it again before.
  void release_after(const Entry& entry, FencePoint point);
  // Everything that belongs to a context, or (nullptr) to anyone.
  std::vector<Entry> forget_all(const Context* context);

  // Addresses for memory that the program maps by itself, in whole granules; `alignment` is a power
  // of two. Errors: CUDA_ERROR_OUT_OF_MEMORY.
  [[nodiscard]] CUresult reserve(uint64_t bytes, uint64_t alignment, uint64_t* address);
  void unreserve(uint64_t address, uint64_t bytes);
  // Memory of the program's own or of another process, or a module's variable, is accessible there,
  // or not any more: known for checks and attributes, not ours to free.
  void add_mapping(Context* context, uint64_t address, uint64_t bytes, AllocationKind kind,
                   bool writable);
  void remove_mapping(uint64_t address);
  // Makes a call that needs device memory, and again with all that is kept given back if there was
  // none.
  template <typename Call>
  [[nodiscard]] CUresult retry_after_reclaim(Call&& call) {
    const CUresult result = call();
    if (result != CUDA_ERROR_OUT_OF_MEMORY) return result;
    {
      const MutexLock guard(lock_);
      reclaim();
    }
    return call();
  }

  // ---- Pools ----
  Arena* add_arena(uint32_t wire_device, uint64_t most_bytes);
  // Its live allocations remain valid.
  void abandon(Arena* arena);
  void set_keep_bytes(Arena& arena, uint64_t bytes);
  [[nodiscard]] ArenaUse use_of(const Arena& arena) const;
  void reset_high(Arena& arena, bool used, bool reserved);
  // Unmap what is unused while the arena has more than this.
  void trim(Arena& arena, uint64_t keep_mapped_bytes);

  // The key under which other processes open the allocation that begins there, made at first; where
  // its physical memory begins, and how long it is. Errors: CUDA_ERROR_INVALID_VALUE: no allocation
  // of cuMemAlloc (or, with `pooled`, of a pool) begins there.
  struct Published {
    wire::ShareKey key;
    uint64_t base = 0;
    uint64_t bytes = 0;
  };
  [[nodiscard]] CUresult publish(uint64_t address, bool pooled, Published* published, Entry* entry);

  [[nodiscard]] bool find(uint64_t address, Entry* entry) const;
  // CU_POINTER_ATTRIBUTE_SYNC_MEMOPS of the allocation that the address lies in. False: of none.
  bool set_sync_memops(uint64_t address, bool on);
  [[nodiscard]] bool has_sync_memops(uint64_t address) const;
  // All of [address, address + bytes) lies in one allocation, or in neighbouring mappings.
  // `writable`: and may be written.
  [[nodiscard]] bool contains(uint64_t address, uint64_t bytes, bool writable = false) const;
  // The range lies in the host pages that one allocation touches, or in neighbouring mappings; the
  // allocation, or the first of them.
  [[nodiscard]] bool contains_pages(uint64_t address, uint64_t bytes, Entry* entry) const;
  // The address is the session's, mapped or not.
  [[nodiscard]] bool in_window(uint64_t address) const {
    if (address - base_ < wire::kDeviceBytes) return true;
    return extent_count_.load(std::memory_order_acquire) != 0 && in_extent(address);
  }

  // Mapped but free bytes, which the program may count as free.
  [[nodiscard]] uint64_t cached_bytes(uint32_t wire_device) const;
  // Unmap all that is cached.
  void trim();

 private:
  // The lock is held for microseconds: copies look up their operands under it. These release the
  // lock while they wait for the worker or the GPU, and hold it again when they return.
  CUresult allocate(Context& context, Arena& arena, uint64_t bytes, Allocation allocation,
                    CUdeviceptr* address) REQUIRES(lock_);
  CUresult map(Arena& arena, uint64_t bytes, uint64_t* base) REQUIRES(lock_);
  CUresult map_granules(uint32_t wire_device, uint64_t bytes, uint64_t* base) REQUIRES(lock_);
  // A range of the window, or of an extent that allocations share.
  std::optional<uint64_t> take_addresses(uint64_t bytes) REQUIRES(lock_);
  CUresult reserve_extent(uint64_t bytes, uint64_t alignment, uint64_t* address) REQUIRES(lock_);
  // Unmaps everything that is cached, and what is freed but still in use once that use has ended.
  void reclaim() REQUIRES(lock_);
  // Waits until the worker has unmapped what was given back so far, or for kLongestReclaimWaitNs.
  void await_returns() REQUIRES(lock_);
  void reap_all() REQUIRES(lock_);

  // An extent of the worker's, with its addresses reserved in this process.
  CUresult map_extent(uint64_t bytes, uint64_t alignment, uint64_t* address, Mapping* reserved);
  bool take_cached_locked(Arena& arena, uint64_t bytes, uint64_t* base) REQUIRES(lock_);
  void cache_locked(Arena& arena, uint64_t base, uint64_t bytes) REQUIRES(lock_);
  [[nodiscard]] bool in_extent(uint64_t address) const;
  template <typename Visit>
  void for_each_arena_locked(Visit&& visit) REQUIRES(lock_);
  // Only allocations of ours are freed or go with their context.
  static bool is_allocated(const Entry& entry) {
    return entry.value.kind == AllocationKind::kOwn || entry.value.kind == AllocationKind::kSlab;
  }
  // `flags` as of wire::MemoryUnmap.
  void unmap_locked(Arena& arena, uint64_t base, uint64_t bytes, uint32_t flags) REQUIRES(lock_);
  void evict_locked(Arena& arena, uint64_t keep_cached_bytes, uint32_t flags) REQUIRES(lock_);
  void forgotten_locked(const Entry& entry) REQUIRES(lock_);
  void release_locked(const Entry& entry) REQUIRES(lock_);
  size_t reap_locked(size_t most) REQUIRES(lock_);
  void end_abandoned_locked(Arena& arena) REQUIRES(lock_);

  Channel& channel_;
  Fences& fences_;
  const uint64_t base_;
  mutable Mutex lock_{LockRank::kClientDeviceMemory};
  RangeAllocator addresses_ GUARDED_BY(lock_);  // of the window's device part, in granules
  IntervalMap<Allocation> allocations_ GUARDED_BY(lock_);
  DeferredFrees deferred_ GUARDED_BY(lock_);
  ReturnedRanges returned_ GUARDED_BY(lock_);
  // Of cuMemAlloc, by the worker's device.
  Arena plain_[wire::kMaxDevices] GUARDED_BY(lock_);
  std::list<Arena> pools_ GUARDED_BY(lock_);
  // Reserved in this process, without access.
  std::map<uint64_t, Mapping> extents_ GUARDED_BY(lock_);
  std::atomic<uint32_t> extent_count_{0};
  std::atomic<bool> any_sync_memops_{false};  // was ever set
  bool in_group_ = false;
  uint64_t next_buffer_id_ GUARDED_BY(lock_) = 1;
};

}  // namespace openmps::client
