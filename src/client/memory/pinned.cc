// SPDX-License-Identifier: Apache-2.0
// Pinned host memory: chunks, own registrations and the map of blocks.
#include "client/memory/pinned.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/rounding.h"
#include "base/shared_memory.h"
#include "base/thread_end.h"
#include "wire/commands/memory.h"

namespace openmps::client {

PinnedHeap::PinnedHeap(Channel& channel, uint64_t base, uint64_t end, UniqueFd file,
                       uint64_t file_base)
    : channel_(channel), base_(base), end_(end), file_(std::move(file)), file_base_(file_base) {
  addresses_.add(base, (end - base) / kPinnedChunkBytes * kPinnedChunkBytes);
}

std::optional<uint64_t> PinnedHeap::take_addresses(uint64_t bytes) {
  const std::atomic<uint64_t>& done = channel_.view().header().unregistered;
  const auto take = [&]() REQUIRES(lock_) {
    returned_.collect(done.load(std::memory_order_acquire), 0, addresses_);
    return addresses_.allocate(bytes);
  };
  if (const std::optional<uint64_t> found = take()) return found;
  const uint64_t last = returned_.last_ticket();
  if (last == 0) return std::nullopt;
  const uint64_t end = now_ns() + kLongestReclaimWaitNs;
  {
    const MutexUnlock unlocked(lock_);
    // If the session ends, the next call says so.
    static_cast<void>(channel_.wait(
        [&] { return done.load(std::memory_order_acquire) >= last || now_ns() > end; },
        kUnwokenNs));
  }
  return take();
}

CUresult PinnedHeap::register_pages(uint64_t bytes, uint64_t* base) {
  const uint64_t range = round_up(bytes, kPinnedChunkBytes);
  const std::optional<uint64_t> address = take_addresses(range);
  if (!address.has_value()) return CUDA_ERROR_OUT_OF_MEMORY;
  const CancellationHeld held;
  CUresult result = CUDA_SUCCESS;
  {
    const MutexUnlock unlocked(lock_);
    result = make_pages(*address, bytes);
  }
  if (result != CUDA_SUCCESS) {
    addresses_.add(*address, range);
    return result;
  }
  *base = *address;
  put_into_dumps(*address, bytes);
  return CUDA_SUCCESS;
}

CUresult PinnedHeap::make_pages(uint64_t address, uint64_t bytes) {
  // The kernel charges pages to the cgroup of the process that makes them: this one, not the
  // worker.
  CUresult result = CUDA_SUCCESS;
  const auto change_pages = [&](int mode) {
    return !file_.valid() || fallocate(file_.get(), mode, static_cast<off_t>(address - file_base_),
                                       static_cast<off_t>(bytes)) == 0;
  };
  if (!change_pages(0)) {
    const bool is_lost = file_.get() < 0;  // the program has closed it
    result = is_lost ? CUDA_ERROR_MPS_RPC_FAILURE : CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (result == CUDA_SUCCESS) result = channel_.call(wire::HostRegister{address, bytes});
  if (result != CUDA_SUCCESS) change_pages(FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE);
  return result;
}

// The worker gives the pages back to the system once the driver has let go of them.
void PinnedHeap::unregister_locked(uint64_t base, uint64_t bytes) {
  const CUresult result = channel_.push(wire::HostUnregister{base, bytes});
  if (result != CUDA_SUCCESS) return;
  keep_from_dumps(base, bytes);
  returned_.add({base, round_up(bytes, kPinnedChunkBytes), 0, false, 0});
}

CUresult PinnedHeap::allocate(Context* context, uint64_t bytes, uint32_t flags, void** address) {
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (bytes > end_ - base_) return CUDA_ERROR_OUT_OF_MEMORY;
  const MutexLock guard(lock_);
  PinnedBlock block{.flags = flags,
                    .reserved = round_up(bytes, kPinnedUnit),
                    .context = context,
                    .buffer_id = next_buffer_id_++,
                    .sync_memops = (flags & kManagedBlock) != 0};
  uint64_t base = 0;
  if (bytes < kPinnedChunkBytes) {
    std::optional<uint64_t> found = small_.allocate(block.reserved);
    if (!found.has_value()) {
      const uint64_t registered = std::max(next_chunk_, block.reserved);
      uint64_t chunk = 0;
      const CUresult result = register_pages(registered, &chunk);
      if (result != CUDA_SUCCESS) return result;
      next_chunk_ = std::min(2 * registered, kPinnedChunkBytes);
      small_.add(chunk, registered);
      found = small_.allocate(block.reserved);
    }
    base = *found;
  } else {
    block.own_registration = true;
    const auto cached = cache_.lower_bound(block.reserved);
    if (cached != cache_.end() && cached->first <= block.reserved + block.reserved / 8) {
      block.reserved = cached->first;
      base = cached->second;
      cached_total_ -= cached->first;
      cache_.erase(cached);
    } else {
      const CUresult result = register_pages(block.reserved, &base);
      if (result != CUDA_SUCCESS) return result;
    }
  }
  blocks_.insert(base, bytes, block);
  *address = reinterpret_cast<void*>(base);
  return CUDA_SUCCESS;
}

void PinnedHeap::release_locked(const Entry& entry) {
  if (!entry.value.own_registration) {
    small_.add(entry.base, entry.value.reserved);
    return;
  }
  cache_.emplace(entry.value.reserved, entry.base);
  cached_total_ += entry.value.reserved;
  while (cached_total_ > kPinnedCacheBytes) {
    const auto largest = std::prev(cache_.end());
    cached_total_ -= largest->first;
    unregister_locked(largest->second, largest->first);
    cache_.erase(largest);
  }
}

CUresult PinnedHeap::release(const void* address) {
  const MutexLock guard(lock_);
  const uint64_t base = reinterpret_cast<uint64_t>(address);
  const Entry* found = blocks_.find(base);
  if (found == nullptr || found->base != base) return CUDA_ERROR_INVALID_VALUE;
  const Entry entry = *found;
  blocks_.erase(base);
  release_locked(entry);
  return CUDA_SUCCESS;
}

void PinnedHeap::release_all(const Context* context) {
  const MutexLock guard(lock_);
  std::vector<Entry> entries;
  blocks_.for_each([&](const Entry& entry) {
    if (entry.value.context == context) entries.push_back(entry);
  });
  for (const Entry& entry : entries) {
    blocks_.erase(entry.base);
    release_locked(entry);
  }
}

bool PinnedHeap::find(uint64_t address, Entry* entry) const {
  const MutexLock guard(lock_);
  const Entry* found = blocks_.find(address);
  if (found == nullptr) return false;
  *entry = *found;
  return true;
}

void PinnedHeap::after_fork_in_child() {
  blocks_.for_each([&](const Entry& entry) {
    if ((entry.value.flags & kManagedBlock) != 0) return;
    mmap(reinterpret_cast<void*>(entry.base), entry.value.reserved, PROT_READ | PROT_WRITE,
         MAP_PRIVATE | MAP_FIXED_NOREPLACE, file_.get(),
         static_cast<off_t>(entry.base - file_base_));
  });
  lock_.unlock();
}

bool PinnedHeap::set_sync_memops(uint64_t address, bool on) {
  const MutexLock guard(lock_);
  Entry* found = blocks_.find(address);
  if (found == nullptr) return false;
  found->value.sync_memops = on;
  return true;
}

bool PinnedHeap::contains(uint64_t address, uint64_t bytes) const {
  const MutexLock guard(lock_);
  const Entry* found = blocks_.find(address);
  return found != nullptr && bytes <= found->bytes - (address - found->base);
}

}  // namespace openmps::client
