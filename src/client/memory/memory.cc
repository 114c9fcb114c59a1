// SPDX-License-Identifier: Apache-2.0
// Slabs, granules and the map of allocations. Calls are made without the lock: two threads that
// need a slab at once map one each.
#include "client/memory/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/rounding.h"
#include "client/objects.h"

namespace openmps::client {
namespace {

// Places that are tried for an extent before the program has run out of addresses.
constexpr int kExtentTries = 16;

}  // namespace

DeviceMemory::DeviceMemory(Channel& channel, Fences& fences, uint64_t window_base)
    : channel_(channel), fences_(fences), base_(window_base) {
  addresses_.add(window_base, wire::kDeviceBytes);
  for (uint32_t device = 0; device < wire::kMaxDevices; ++device) {
    plain_[device].wire_device = device;
  }
}

// ---- Addresses ---------------------------------------------------------------------------------

CUresult DeviceMemory::reserve_extent(uint64_t bytes, uint64_t alignment, uint64_t* address) {
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  Mapping reserved;
  {
    const MutexUnlock unlocked(lock_);
    result = map_extent(bytes, alignment, address, &reserved);
  }
  if (result != CUDA_SUCCESS) return result;
  extents_[*address] = std::move(reserved);
  extent_count_.fetch_add(1, std::memory_order_release);
  return CUDA_SUCCESS;
}

CUresult DeviceMemory::map_extent(uint64_t bytes, uint64_t alignment, uint64_t* address,
                                  Mapping* reserved) {
  const wire::AddressReserve wanted{bytes, std::max(alignment, wire::kMemoryGranularity)};
  // A mapping of the program may lie at the address that the worker chose: ask for another, and
  // give those back afterwards.
  std::vector<uint64_t> unusable;
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  for (int tries = 0; tries < kExtentTries; ++tries) {
    wire::AddressReserve::Reply reply{};
    result = channel_.call(wanted, &reply);
    if (result != CUDA_SUCCESS) break;
    *address = reply.address;
    Result<Mapping> mapping = reserve_addresses(reply.address, bytes);
    if (mapping.ok()) {
      // If that fails, children and dumps have the range without access, as this process does.
      (void)keep_from_children_and_dumps(mapping->address(), bytes);
      *reserved = std::move(mapping).value();
      break;
    }
    unusable.push_back(reply.address);
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  for (const uint64_t base : unusable) {
    const CUresult freed = channel_.push(wire::AddressFree{base, bytes});
    if (result == CUDA_SUCCESS) result = freed;
  }
  return result;
}

std::optional<uint64_t> DeviceMemory::take_addresses(uint64_t bytes) {
  const auto done = [this] {
    return channel_.view().header().unmapped.load(std::memory_order_acquire);
  };
  returned_.collect(done(), kRangesApart, addresses_);
  if (const std::optional<uint64_t> found = addresses_.allocate(bytes)) return found;
  returned_.collect(done(), 0, addresses_);
  if (const std::optional<uint64_t> found = addresses_.allocate(bytes)) return found;
  // Nothing may lie across two extents, which can be neighbours: the last granule stays unused.
  constexpr uint64_t kGap = wire::kMemoryGranularity;
  uint64_t extent = 0;
  uint64_t whole = std::max(bytes + kGap, wire::kExtentBytes);
  CUresult result = reserve_extent(whole, wire::kMemoryGranularity, &extent);
  if (result == CUDA_ERROR_OUT_OF_MEMORY && whole > bytes + kGap) {
    whole = bytes + kGap;  // where addresses are short
    result = reserve_extent(whole, wire::kMemoryGranularity, &extent);
  }
  if (result != CUDA_SUCCESS) return std::nullopt;
  addresses_.add(extent, whole - kGap);
  return addresses_.allocate(bytes);
}

bool DeviceMemory::in_extent(uint64_t address) const {
  if (address < wire::kFirstWindow || address >= wire::kAddressEnd) return false;
  const MutexLock guard(lock_);
  const auto above = extents_.upper_bound(address);
  if (above == extents_.begin()) return false;
  const auto& [base, mapping] = *std::prev(above);
  return address - base < mapping.bytes();
}

CUresult DeviceMemory::reserve(uint64_t bytes, uint64_t alignment, uint64_t* address) {
  const MutexLock guard(lock_);
  if (bytes >= kOwnExtentBytes || alignment >= kOwnExtentBytes) {
    return reserve_extent(bytes, alignment, address);
  }
  const uint64_t spare = alignment > wire::kMemoryGranularity ? alignment : 0;
  const std::optional<uint64_t> found = take_addresses(bytes + spare);
  if (!found.has_value()) return CUDA_ERROR_OUT_OF_MEMORY;
  *address = spare == 0 ? *found : round_up(*found, alignment);
  const uint64_t before = *address - *found;
  if (before != 0) addresses_.add(*found, before);
  if (spare > before) addresses_.add(*address + bytes, spare - before);
  return CUDA_SUCCESS;
}

void DeviceMemory::unreserve(uint64_t address, uint64_t bytes) {
  const MutexLock guard(lock_);
  const auto extent = extents_.find(address);
  // Extents that allocations share are larger than anything that is reserved in them.
  if (extent == extents_.end() || extent->second.bytes() != bytes) {
    addresses_.add(address, bytes);
    return;
  }
  extents_.erase(extent);
  extent_count_.fetch_sub(1, std::memory_order_release);
  // A session at its end frees it by itself.
  static_cast<void>(channel_.push(wire::AddressFree{address, bytes}));
}

// ---- Granules ----------------------------------------------------------------------------------

// An exact match only: a larger piece would count in full against the client's limit.
bool DeviceMemory::take_cached_locked(Arena& arena, uint64_t bytes, uint64_t* base) {
  const auto found = arena.cache.find(bytes);
  if (found == arena.cache.end()) return false;
  *base = found->second;
  arena.cached -= found->first;
  arena.cache.erase(found);
  return true;
}

// Physical memory at addresses of the worker's and ours.
CUresult DeviceMemory::map_granules(uint32_t wire_device, uint64_t bytes, uint64_t* base) {
  for (;;) {
    ReturnedRanges::Range range;
    const bool again = returned_.take(bytes, wire_device, &range);
    if (!again) {
      const std::optional<uint64_t> address = take_addresses(bytes);
      if (!address.has_value()) return CUDA_ERROR_OUT_OF_MEMORY;
      range.base = *address;
    }
    CUresult result = CUDA_SUCCESS;
    {
      const MutexUnlock unlocked(lock_);
      result = channel_.call(wire::MemoryMap{range.base, bytes, wire_device});
    }
    if (result == CUDA_SUCCESS) {
      *base = range.base;
      return CUDA_SUCCESS;
    }
    if (!again) {
      addresses_.add(range.base, bytes);
      return result;
    }
    returned_.put_back(range);
    if (result != CUDA_ERROR_NOT_READY) return result;
  }
}

CUresult DeviceMemory::map(Arena& arena, uint64_t bytes, uint64_t* base) {
  for (const bool last_try : {false, true}) {
    if (take_cached_locked(arena, bytes, base)) return CUDA_SUCCESS;
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    if (arena.most_bytes == 0 || arena.reserved + bytes <= arena.most_bytes) {
      arena.reserved += bytes;  // others count it, too, while the worker maps
      result = map_granules(arena.wire_device, bytes, base);
      if (result == CUDA_SUCCESS) {
        arena.reserved_high = std::max(arena.reserved_high, arena.reserved);
        return CUDA_SUCCESS;
      }
      arena.reserved -= bytes;
    }
    if (result != CUDA_ERROR_OUT_OF_MEMORY || last_try) return result;
    reclaim();
  }
  return CUDA_ERROR_OUT_OF_MEMORY;
}

void DeviceMemory::unmap_locked(Arena& arena, uint64_t base, uint64_t bytes, uint32_t flags) {
  arena.reserved -= bytes;
  const CUresult result = channel_.push(wire::MemoryUnmap{base, bytes, arena.wire_device, flags});
  // A dead session has no next map.
  if (result != CUDA_SUCCESS) return;
  const bool can_come_back = (flags & wire::kUnmapKeep) != 0;
  returned_.add({base, bytes, arena.wire_device, can_come_back, 0});
}

void DeviceMemory::evict_locked(Arena& arena, uint64_t keep_cached_bytes, uint32_t flags) {
  while (arena.cached > keep_cached_bytes && !arena.cache.empty()) {
    const auto largest = std::prev(arena.cache.end());
    arena.cached -= largest->first;
    unmap_locked(arena, largest->second, largest->first, flags);
    arena.cache.erase(largest);
  }
}

template <typename Visit>
void DeviceMemory::for_each_arena_locked(Visit&& visit) {
  for (Arena& arena : plain_) visit(arena);
  for (Arena& arena : pools_) visit(arena);
}

void DeviceMemory::reclaim() {
  const uint64_t end = now_ns() + kLongestReclaimWaitNs;
  const std::vector<FencePoint> points = deferred_.newest();
  {
    const MutexUnlock unlocked(lock_);
    for (const FencePoint point : points) {
      const auto done = [&] { return fences_.reached(point) || now_ns() > end; };
      if (fences_.force(point) != CUDA_SUCCESS) break;
      if (channel_.wait(done, kUnwokenNs) != CUDA_SUCCESS) break;
    }
  }
  reap_all();
  for_each_arena_locked([this](Arena& arena) REQUIRES(lock_) { evict_locked(arena, 0, 0); });
  await_returns();
}

void DeviceMemory::await_returns() {
  const uint64_t end = now_ns() + kLongestReclaimWaitNs;
  const uint64_t last = returned_.last_ticket();
  const MutexUnlock unlocked(lock_);
  const std::atomic<uint64_t>& unmapped = channel_.view().header().unmapped;
  const auto done = [&] {
    return unmapped.load(std::memory_order_acquire) >= last || now_ns() > end;
  };
  // If the session ends, the next call says so.
  static_cast<void>(channel_.wait(done, kUnwokenNs));
}

void DeviceMemory::cache_locked(Arena& arena, uint64_t base, uint64_t bytes) {
  arena.cache.emplace(bytes, base);
  arena.cached += bytes;
  const uint64_t least = in_group_ ? 0 : kGranuleCacheBytes;
  evict_locked(arena, arena.abandoned ? 0 : std::max(least, arena.keep_bytes),
               arena.abandoned ? 0 : wire::kUnmapKeep);
}

// ---- Allocations -------------------------------------------------------------------------------

CUresult DeviceMemory::allocate(Context& context, Arena& arena, uint64_t bytes,
                                Allocation allocation, CUdeviceptr* address) {
  allocation.device = context.device;
  allocation.context = context.owner();
  allocation.arena = &arena;
  allocation.buffer_id = next_buffer_id_++;
  uint64_t base = *address;  // not 0: it is there already
  if (base == 0 && bytes >= kOwnGranuleBytes) {
    allocation.kind = AllocationKind::kOwn;
    allocation.reserved = round_up(bytes, wire::kMemoryGranularity);
    const CUresult result = map(arena, allocation.reserved, &base);
    if (result != CUDA_SUCCESS) return result;
  } else if (base == 0) {
    allocation.kind = AllocationKind::kSlab;
    allocation.reserved = round_up(bytes, kBlockBytes);
    std::optional<uint64_t> block = arena.slabs.allocate(allocation.reserved);
    if (!block.has_value()) {
      uint64_t slab = 0;
      const CUresult result = map(arena, wire::kMemoryGranularity, &slab);
      if (result != CUDA_SUCCESS) return result;
      arena.slabs.add(slab, wire::kMemoryGranularity);
      block = arena.slabs.allocate(allocation.reserved);
    }
    base = *block;
  }
  arena.used += allocation.reserved;
  arena.used_high = std::max(arena.used_high, arena.used);
  allocations_.insert(base, bytes, allocation);
  *address = base;
  return CUDA_SUCCESS;
}

CUresult DeviceMemory::allocate(Context& context, uint64_t bytes, bool async,
                                CUdeviceptr* address) {
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (bytes > wire::kMaxExtentBytes) return CUDA_ERROR_OUT_OF_MEMORY;
  const MutexLock guard(lock_);
  reap_locked(kReapedPerAllocation);
  CUdeviceptr found = 0;
  const CUresult result =
      allocate(context, plain_[context.wire_device], bytes, Allocation{.async = async}, &found);
  if (result == CUDA_SUCCESS) *address = found;
  return result;
}

CUresult DeviceMemory::allocate_async(Context& context, Arena& arena, uint64_t pool,
                                      const Stream& stream, uint64_t bytes, CUdeviceptr* address) {
  if (bytes > wire::kMaxExtentBytes) return CUDA_ERROR_OUT_OF_MEMORY;
  const MutexLock guard(lock_);
  reap_locked(kReapedPerAllocation);
  const uint64_t unit = bytes >= kOwnGranuleBytes ? wire::kMemoryGranularity : kBlockBytes;
  Allocation allocation{.async = true, .pool = pool};
  CUdeviceptr found = 0;
  Entry freed{};
  if (deferred_.take(stream.fence_slot, arena, round_up(bytes, unit), &freed)) {
    allocation.kind = freed.value.kind;
    allocation.reserved = freed.value.reserved;
    found = freed.base;
  }
  const CUresult result = allocate(context, arena, bytes, allocation, &found);
  if (result == CUDA_SUCCESS) *address = found;
  return result;
}

CUresult DeviceMemory::forget(CUdeviceptr address, Entry* entry) {
  const MutexLock guard(lock_);
  const Entry* found = allocations_.find(address);
  if (found == nullptr || found->base != address || !is_allocated(*found)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *entry = *found;
  allocations_.erase(address);
  forgotten_locked(*entry);
  return CUDA_SUCCESS;
}

// The program counts the memory as free from now on, and other processes can't open it any more.
void DeviceMemory::forgotten_locked(const Entry& entry) {
  entry.value.arena->used -= entry.value.reserved;
  if (!entry.value.key.has_value()) return;
  static_cast<void>(channel_.push(wire::MemoryWithdraw{*entry.value.key}));
}

void DeviceMemory::release_locked(const Entry& entry) {
  const Allocation& allocation = entry.value;
  Arena& arena = *allocation.arena;
  if (allocation.kind == AllocationKind::kOwn) {
    if (allocation.key.has_value()) {
      // Processes that have opened it keep it, so this session maps nothing at these addresses
      // again.
      unmap_locked(arena, entry.base, allocation.reserved, 0);
    } else {
      cache_locked(arena, entry.base, allocation.reserved);
    }
  } else {
    arena.slabs.add(entry.base, allocation.reserved);
    const uint64_t slab = entry.base / wire::kMemoryGranularity * wire::kMemoryGranularity;
    if (arena.slabs.take(slab, wire::kMemoryGranularity)) {
      cache_locked(arena, slab, wire::kMemoryGranularity);
    }
  }
  end_abandoned_locked(arena);
}

void DeviceMemory::release(const Entry& entry) {
  const MutexLock guard(lock_);
  release_locked(entry);
  if (in_group_ && !entry.value.async) await_returns();
}

void DeviceMemory::release_after(const Entry& entry, FencePoint point) {
  const MutexLock guard(lock_);
  deferred_.add(entry, point);
}

CUresult DeviceMemory::reclaim_after(CUresult result) {
  if (!in_group_ || result != CUDA_SUCCESS) return result;
  const MutexLock guard(lock_);
  reap_all();
  return result;
}

size_t DeviceMemory::reap_locked(size_t most) {
  return deferred_.reap(
      most, [this](FencePoint point) { return fences_.reached(point); },
      [this](const Entry& entry) {
        lock_.assert_held();
        release_locked(entry);
      });
}

void DeviceMemory::reap_all() {
  // Once around all slots without a find.
  size_t left = wire::kFenceSlots;
  while (!deferred_.empty() && left >= DeferredFrees::kSlotsPerReap) {
    left = reap_locked(kReapedPerAllocation) != 0 ? wire::kFenceSlots
                                                  : left - DeferredFrees::kSlotsPerReap;
    const MutexUnlock others_may_have_it(lock_);
  }
}

std::vector<DeviceMemory::Entry> DeviceMemory::forget_all(const Context* context) {
  const MutexLock guard(lock_);
  std::vector<Entry> entries;
  allocations_.for_each([&](const Entry& entry) {
    const bool ours = context == nullptr || entry.value.context == context;
    if (ours && is_allocated(entry)) entries.push_back(entry);
  });
  for (const Entry& entry : entries) {
    allocations_.erase(entry.base);
    forgotten_locked(entry);
  }
  return entries;
}

void DeviceMemory::add_mapping(Context* context, uint64_t address, uint64_t bytes,
                               AllocationKind kind, bool writable) {
  const MutexLock guard(lock_);
  allocations_.insert(address, bytes,
                      Allocation{.kind = kind,
                                 .device = context->device,
                                 .context = context,
                                 .reserved = bytes,
                                 .buffer_id = next_buffer_id_++,
                                 .writable = writable});
}

void DeviceMemory::remove_mapping(uint64_t address) {
  const MutexLock guard(lock_);
  allocations_.erase(address);
}

bool DeviceMemory::find(uint64_t address, Entry* entry) const {
  const MutexLock guard(lock_);
  const Entry* found = allocations_.find(address);
  if (found == nullptr) return false;
  *entry = *found;
  return true;
}

bool DeviceMemory::set_sync_memops(uint64_t address, bool on) {
  const MutexLock guard(lock_);
  Entry* found = allocations_.find(address);
  if (found == nullptr) return false;
  found->value.sync_memops = on;
  if (on) any_sync_memops_.store(true, std::memory_order_release);
  return true;
}

bool DeviceMemory::has_sync_memops(uint64_t address) const {
  if (!any_sync_memops_.load(std::memory_order_acquire)) return false;
  const MutexLock guard(lock_);
  const Entry* found = allocations_.find(address);
  return found != nullptr && found->value.sync_memops;
}

bool DeviceMemory::contains(uint64_t address, uint64_t bytes, bool writable) const {
  const MutexLock guard(lock_);
  for (;;) {
    const Entry* found = allocations_.find(address);
    if (found == nullptr || (writable && !found->value.writable)) return false;
    const uint64_t here = found->bytes - (address - found->base);
    if (bytes <= here) return true;
    // What a program maps piece by piece it may use as a whole.
    if (found->value.kind != AllocationKind::kMapped) return false;
    address += here;
    bytes -= here;
  }
}

bool DeviceMemory::contains_pages(uint64_t address, uint64_t bytes, Entry* entry) const {
  if (bytes == 0 || address + bytes < address) return false;
  if (contains(address, bytes)) return find(address, entry);
  const MutexLock guard(lock_);
  const uint64_t end = address + bytes;
  const Entry* last = allocations_.find_below(end - 1);
  if (last == nullptr) return false;
  constexpr uint64_t kPage = wire::kHostPageBytes;
  const uint64_t first_page = last->base / kPage * kPage;
  const uint64_t end_page = (last->base + last->bytes + kPage - 1) / kPage * kPage;
  if (address < first_page || end > end_page) return false;
  *entry = *last;
  return true;
}

uint64_t DeviceMemory::cached_bytes(uint32_t wire_device) const {
  const MutexLock guard(lock_);
  uint64_t bytes = plain_[wire_device].cached;
  for (const Arena& arena : pools_) {
    if (arena.wire_device == wire_device) bytes += arena.cached;
  }
  return bytes;
}

void DeviceMemory::trim() {
  const MutexLock guard(lock_);
  reap_all();
  for_each_arena_locked([this](Arena& arena) REQUIRES(lock_) { evict_locked(arena, 0, 0); });
}

CUresult DeviceMemory::publish(uint64_t address, bool pooled, Published* published, Entry* entry) {
  const MutexLock guard(lock_);
  const auto find = [&]() REQUIRES(lock_) -> Entry* {
    Entry* found = allocations_.find(address);
    const bool right = found != nullptr && is_allocated(*found) &&
                       (found->value.pool != 0) == pooled && found->value.async == pooled;
    return right ? found : nullptr;
  };
  Entry* found = find();
  if (found == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const bool slab = found->value.kind == AllocationKind::kSlab;
  published->base =
      slab ? found->base / wire::kMemoryGranularity * wire::kMemoryGranularity : found->base;
  published->bytes = slab ? wire::kMemoryGranularity : found->value.reserved;
  if (!found->value.key.has_value()) {
    const uint64_t id = found->value.buffer_id;
    const wire::MemoryPublish range{published->base, published->bytes};
    wire::MemoryPublish::Reply shared;
    CUresult result = CUDA_SUCCESS;
    {
      const MutexUnlock unlocked(lock_);
      result = channel_.call(range, &shared);
    }
    if (result != CUDA_SUCCESS) return result;
    found = find();
    const bool same = found != nullptr && found->value.buffer_id == id;
    if (same && !found->value.key.has_value()) {
      found->value.key = shared.key;
    } else {  // another thread was faster, or the allocation is gone
      static_cast<void>(channel_.push(wire::MemoryWithdraw{shared.key}));
      if (!same) return CUDA_ERROR_INVALID_VALUE;
    }
  }
  published->key = *found->value.key;
  *entry = *found;
  return CUDA_SUCCESS;
}

// ---- Pools -------------------------------------------------------------------------------------

Arena* DeviceMemory::add_arena(uint32_t wire_device, uint64_t most_bytes) {
  const MutexLock guard(lock_);
  Arena& arena = pools_.emplace_back();
  arena.wire_device = wire_device;
  arena.most_bytes = most_bytes;
  return &arena;
}

void DeviceMemory::end_abandoned_locked(Arena& arena) {
  if (!arena.abandoned || arena.reserved != 0) return;
  pools_.remove_if([&arena](const Arena& pool) { return &pool == &arena; });
}

void DeviceMemory::abandon(Arena* arena) {
  const MutexLock guard(lock_);
  arena->abandoned = true;
  evict_locked(*arena, 0, 0);
  end_abandoned_locked(*arena);
}

void DeviceMemory::set_keep_bytes(Arena& arena, uint64_t bytes) {
  const MutexLock guard(lock_);
  arena.keep_bytes = bytes;
}

ArenaUse DeviceMemory::use_of(const Arena& arena) const {
  const MutexLock guard(lock_);
  return {arena.keep_bytes, arena.used, arena.used_high, arena.reserved, arena.reserved_high};
}

void DeviceMemory::reset_high(Arena& arena, bool used, bool reserved) {
  const MutexLock guard(lock_);
  if (used) arena.used_high = arena.used;
  if (reserved) arena.reserved_high = arena.reserved;
}

void DeviceMemory::trim(Arena& arena, uint64_t keep_mapped_bytes) {
  const MutexLock guard(lock_);
  reap_all();
  while (arena.reserved > keep_mapped_bytes && !arena.cache.empty()) {
    // The smallest piece that is enough, else the largest.
    const auto enough = arena.cache.lower_bound(arena.reserved - keep_mapped_bytes);
    const auto piece = enough != arena.cache.end() ? enough : std::prev(arena.cache.end());
    if (piece->first > arena.reserved - keep_mapped_bytes && keep_mapped_bytes != 0) break;
    arena.cached -= piece->first;
    unmap_locked(arena, piece->second, piece->first, 0);
    arena.cache.erase(piece);
  }
}

}  // namespace openmps::client
