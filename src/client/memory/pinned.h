// SPDX-License-Identifier: Apache-2.0
// The heap of pinned host memory: the part of the host file behind the channel, mapped at the same
// address in the program and the worker and registered with the driver in chunks. Registrations are
// kept and reused: the driver unregisters only while nothing runs on the GPU. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/kept_fd.h"
#include "base/mutex.h"
#include "base/unique_fd.h"
#include "client/link/channel.h"
#include "client/memory/interval_map.h"
#include "client/memory/range_allocator.h"
#include "client/memory/returned_ranges.h"
#include "cuda/abi.h"

namespace openmps::client {

struct Context;

// Small allocations share registered chunks of this size; larger ones have their own registration.
inline constexpr uint64_t kPinnedChunkBytes = 4 * wire::kMiB;
// Of the first chunk so much is registered, of each further one twice as much as of the last: most
// programs have a few words.
inline constexpr uint64_t kFirstPinnedBytes = 256 * wire::kKiB;
inline constexpr uint64_t kPinnedUnit = 4 * wire::kKiB;  // the page
// Registered but free bytes that are kept for reuse.
inline constexpr uint64_t kPinnedCacheBytes = 256 * wire::kMiB;

// Beside CU_MEMHOSTALLOC_*: the block came from cuMemAllocManaged.
inline constexpr uint32_t kManagedBlock = 0x8000'0000;

struct PinnedBlock {
  uint32_t flags = 0;     // CU_MEMHOSTALLOC_*, kManagedBlock
  uint64_t reserved = 0;  // bytes taken
  bool own_registration = false;
  Context* context = nullptr;
  uint64_t buffer_id = 0;
  bool sync_memops = false;  // CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
};

class PinnedHeap {
 public:
  using Entry = IntervalMap<PinnedBlock>::Entry;

  // `file`: the host file, whose first byte lies at `file_base`; without one (tests) the worker
  // makes the pages.
  PinnedHeap(Channel& channel, uint64_t base, uint64_t end, UniqueFd file = UniqueFd(),
             uint64_t file_base = 0);

  // Errors: CUDA_ERROR_OUT_OF_MEMORY, the session's end.
  [[nodiscard]] CUresult allocate(Context* context, uint64_t bytes, uint32_t flags, void** address);
  // The caller has waited for the GPU. Errors: CUDA_ERROR_INVALID_VALUE: not a live allocation's
  // start.
  [[nodiscard]] CUresult release(const void* address);
  void release_all(const Context* context);

  [[nodiscard]] bool find(uint64_t address, Entry* entry) const;
  // For reading back: with host memory, synchronous operations end before they return anyway.
  bool set_sync_memops(uint64_t address, bool on);
  [[nodiscard]] bool contains(uint64_t address, uint64_t bytes) const;

  // Around fork(). In the child the blocks are there, but for managed ones, as CUDA has it: the
  // host file's pages, private once the child writes them.
  void before_fork() ACQUIRE(lock_) { lock_.lock(); }
  void after_fork_in_parent() RELEASE(lock_) { lock_.unlock(); }
  void after_fork_in_child() RELEASE(lock_);

  [[nodiscard]] bool in_heap(uint64_t address) const { return address - base_ < end_ - base_; }

 private:
  // The lock is held for microseconds: copies look up their operands under it. These release the
  // lock while they wait for the worker, and hold it again when they return.
  std::optional<uint64_t> take_addresses(uint64_t bytes) REQUIRES(lock_);
  CUresult register_pages(uint64_t bytes, uint64_t* base) REQUIRES(lock_);
  // Pages of the host file there, registered with the driver.
  CUresult make_pages(uint64_t address, uint64_t bytes);
  void unregister_locked(uint64_t base, uint64_t bytes) REQUIRES(lock_);
  void release_locked(const Entry& entry) REQUIRES(lock_);

  Channel& channel_;
  const uint64_t base_;
  const uint64_t end_;
  const KeptFd file_;
  const uint64_t file_base_;
  mutable Mutex lock_{LockRank::kClientPinned};
  RangeAllocator addresses_ GUARDED_BY(lock_);  // in chunks
  ReturnedRanges returned_ GUARDED_BY(lock_);
  // Inside registered chunks, in pages.
  RangeAllocator small_ GUARDED_BY(lock_){kPinnedChunkBytes};
  // Bytes of the next chunk that are registered.
  uint64_t next_chunk_ GUARDED_BY(lock_) = kFirstPinnedBytes;
  // Bytes -> base of free own registrations.
  std::multimap<uint64_t, uint64_t> cache_ GUARDED_BY(lock_);
  uint64_t cached_total_ GUARDED_BY(lock_) = 0;
  uint64_t next_buffer_id_ GUARDED_BY(lock_) = 1ull << 40;  // apart from those of device memory
  IntervalMap<PinnedBlock> blocks_ GUARDED_BY(lock_);
};

}  // namespace openmps::client
