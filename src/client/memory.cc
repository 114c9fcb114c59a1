// SPDX-License-Identifier: Apache-2.0
// Slabs, granules and the map of allocations. Mapping calls are made under the lock: they are rare,
// and a second thread that needs memory meanwhile most likely waits for the same granule.
#include "client/memory.h"

#include <optional>

#include "client/debug.h"
#include "client/objects.h"

namespace openmps::client {
namespace {

constexpr uint64_t round_up(uint64_t value, uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace

DeviceMemory::DeviceMemory(Channel& channel, Fences& fences, uint64_t window_base)
    : channel_(channel), fences_(fences), base_(window_base) {
  addresses_.add(window_base, wire::kDeviceBytes);
}

bool DeviceMemory::take_cached_locked(uint32_t device, uint64_t bytes, uint64_t* base,
                                      uint64_t* mapped) {
  auto& cache = devices_[device].cache;
  const auto found = cache.lower_bound(bytes);
  // An eighth more than asked is fine; more would hide free memory from other clients.
  if (found == cache.end() || found->first > bytes + bytes / 8) return false;
  *mapped = found->first;
  *base = found->second;
  cached_total_ -= found->first;
  cache.erase(found);
  return true;
}

CUresult DeviceMemory::map_locked(uint32_t device, uint64_t bytes, uint64_t* base,
                                  uint64_t* mapped) {
  if (take_cached_locked(device, bytes, base, mapped)) return CUDA_SUCCESS;
  for (const bool last_try : {false, true}) {
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    const std::optional<uint64_t> address = addresses_.allocate(bytes);
    if (address.has_value()) {
      result =
          channel_.call(wire::Opcode::kMemoryMap, wire::MemoryRange{*address, bytes, device, 0});
      if (result == CUDA_SUCCESS) {
        *base = *address;
        *mapped = bytes;
        return CUDA_SUCCESS;
      }
      addresses_.add(*address, bytes);
    }
    if (result != CUDA_ERROR_OUT_OF_MEMORY || last_try) return result;
    evict_locked(0);
  }
  return CUDA_ERROR_OUT_OF_MEMORY;
}

void DeviceMemory::unmap_locked(uint32_t device, uint64_t base, uint64_t bytes) {
  const CUresult result =
      channel_.push(wire::Opcode::kMemoryUnmap, wire::MemoryRange{base, bytes, device, 0});
  // The ring keeps the order, so the addresses are free for the next map at once. A dead session
  // has no next map.
  if (result == CUDA_SUCCESS) addresses_.add(base, bytes);
}

void DeviceMemory::evict_locked(uint64_t keep_bytes) {
  for (uint32_t device = 0; device < wire::kMaxDevices; ++device) {
    auto& cache = devices_[device].cache;
    while (cached_total_ > keep_bytes && !cache.empty()) {
      const auto largest = std::prev(cache.end());
      cached_total_ -= largest->first;
      unmap_locked(device, largest->second, largest->first);
      cache.erase(largest);
    }
  }
}

void DeviceMemory::cache_locked(uint32_t device, uint64_t base, uint64_t bytes) {
  devices_[device].cache.emplace(bytes, base);
  cached_total_ += bytes;
  evict_locked(kGranuleCacheBytes);
}

CUresult DeviceMemory::allocate(Context& context, uint64_t bytes, bool async,
                                CUdeviceptr* address) {
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (bytes > wire::kDeviceBytes) return CUDA_ERROR_OUT_OF_MEMORY;
  std::lock_guard guard(lock_);
  reap_locked();
  const uint32_t device = context.wire_device;
  Allocation allocation{.wire_device = device,
                        .device = context.device,
                        .context = &context,
                        .buffer_id = next_buffer_id_++,
                        .async = async};
  uint64_t base = 0;
  if (bytes >= kOwnGranuleBytes) {
    allocation.kind = AllocationKind::kOwn;
    const CUresult result =
        map_locked(device, round_up(bytes, wire::kMemoryGranularity), &base, &allocation.reserved);
    if (result != CUDA_SUCCESS) return result;
  } else {
    allocation.kind = AllocationKind::kSlab;
    allocation.reserved = round_up(bytes, kBlockBytes);
    RangeAllocator& slabs = devices_[device].slabs;
    std::optional<uint64_t> block = slabs.allocate(allocation.reserved);
    if (!block.has_value()) {
      uint64_t slab = 0;
      uint64_t mapped = 0;
      const CUresult result = map_locked(device, wire::kMemoryGranularity, &slab, &mapped);
      if (result != CUDA_SUCCESS) return result;
      slabs.add(slab, mapped);
      block = slabs.allocate(allocation.reserved);
    }
    base = *block;
  }
  allocations_.insert(base, bytes, allocation);
  *address = base;
  return CUDA_SUCCESS;
}

CUresult DeviceMemory::forget(CUdeviceptr address, Entry* entry) {
  std::lock_guard guard(lock_);
  const Entry* found = allocations_.find(address);
  if (found == nullptr || found->base != address || !is_allocated(*found)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *entry = *found;
  allocations_.erase(address);
  return CUDA_SUCCESS;
}

void DeviceMemory::release_locked(const Entry& entry) {
  const Allocation& allocation = entry.value;
  if (allocation.kind == AllocationKind::kOwn) {
    cache_locked(allocation.wire_device, entry.base, allocation.reserved);
    return;
  }
  RangeAllocator& slabs = devices_[allocation.wire_device].slabs;
  slabs.add(entry.base, allocation.reserved);
  const uint64_t slab = entry.base / wire::kMemoryGranularity * wire::kMemoryGranularity;
  if (slabs.take(slab, wire::kMemoryGranularity)) {
    cache_locked(allocation.wire_device, slab, wire::kMemoryGranularity);
  }
}

void DeviceMemory::release(const Entry& entry) {
  std::lock_guard guard(lock_);
  release_locked(entry);
}

void DeviceMemory::release_after(const Entry& entry, FencePoint point) {
  std::lock_guard guard(lock_);
  deferred_.push_back({point, entry});
}

void DeviceMemory::reap_locked() {
  for (size_t i = 0; i < deferred_.size();) {
    if (!fences_.reached(deferred_[i].point)) {
      ++i;
      continue;
    }
    release_locked(deferred_[i].entry);
    deferred_[i] = deferred_.back();
    deferred_.pop_back();
  }
}

std::vector<DeviceMemory::Entry> DeviceMemory::forget_all(const Context* context) {
  std::lock_guard guard(lock_);
  std::vector<Entry> entries;
  allocations_.for_each([&](const Entry& entry) {
    const bool ours = context == nullptr || entry.value.context == context;
    if (ours && is_allocated(entry)) entries.push_back(entry);
  });
  for (const Entry& entry : entries) allocations_.erase(entry.base);
  return entries;
}

CUresult DeviceMemory::reserve(uint64_t bytes, uint64_t alignment, uint64_t* address) {
  const uint64_t spare = alignment > wire::kMemoryGranularity ? alignment : 0;
  if (bytes > wire::kDeviceBytes || spare > wire::kDeviceBytes) return CUDA_ERROR_OUT_OF_MEMORY;
  std::lock_guard guard(lock_);
  const std::optional<uint64_t> found = addresses_.allocate(bytes + spare);
  if (!found.has_value()) return CUDA_ERROR_OUT_OF_MEMORY;
  *address = spare == 0 ? *found : round_up(*found, alignment);
  const uint64_t before = *address - *found;
  if (before != 0) addresses_.add(*found, before);
  if (spare > before) addresses_.add(*address + bytes, spare - before);
  return CUDA_SUCCESS;
}

void DeviceMemory::unreserve(uint64_t address, uint64_t bytes) {
  std::lock_guard guard(lock_);
  addresses_.add(address, bytes);
}

CUresult DeviceMemory::map_at(Context& context, uint64_t address, uint64_t bytes) {
  std::lock_guard guard(lock_);
  const wire::MemoryRange range{address, bytes, context.wire_device, 0};
  CUresult result = channel_.call(wire::Opcode::kMemoryMap, range);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    reap_locked();
    evict_locked(0);
    result = channel_.call(wire::Opcode::kMemoryMap, range);
  }
  if (result != CUDA_SUCCESS) return result;
  allocations_.insert(address, bytes,
                      Allocation{.kind = AllocationKind::kMapped,
                                 .wire_device = context.wire_device,
                                 .device = context.device,
                                 .context = &context,
                                 .reserved = bytes,
                                 .buffer_id = next_buffer_id_++});
  return CUDA_SUCCESS;
}

CUresult DeviceMemory::unmap_at(uint64_t address) {
  std::lock_guard guard(lock_);
  const Entry* entry = allocations_.find(address);
  if (entry == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const wire::MemoryRange range{address, entry->bytes, entry->value.wire_device, 0};
  allocations_.erase(address);
  return channel_.push(wire::Opcode::kMemoryUnmap, range);
}

void DeviceMemory::add_global(Context* context, uint32_t device, uint64_t address, uint64_t bytes) {
  std::lock_guard guard(lock_);
  Allocation allocation{.kind = AllocationKind::kGlobal,
                        .device = device,
                        .context = context,
                        .reserved = bytes,
                        .buffer_id = next_buffer_id_++};
  allocations_.insert(address, bytes, allocation);
}

void DeviceMemory::remove_global(uint64_t address) {
  std::lock_guard guard(lock_);
  const Entry* entry = allocations_.find(address);
  if (entry == nullptr || entry->base != address) return;
  if (entry->value.kind == AllocationKind::kGlobal) allocations_.erase(address);
}

bool DeviceMemory::find(uint64_t address, Entry* entry) const {
  std::lock_guard guard(lock_);
  const Entry* found = allocations_.find(address);
  if (found == nullptr) return false;
  *entry = *found;
  return true;
}

bool DeviceMemory::contains(uint64_t address, uint64_t bytes) const {
  std::lock_guard guard(lock_);
  for (;;) {
    const Entry* found = allocations_.find(address);
    if (found == nullptr) return false;
    const uint64_t here = found->bytes - (address - found->base);
    if (bytes <= here) return true;
    // What a program maps piece by piece it may use as a whole.
    if (found->value.kind != AllocationKind::kMapped) return false;
    address += here;
    bytes -= here;
  }
}

uint64_t DeviceMemory::cached_bytes(uint32_t wire_device) const {
  std::lock_guard guard(lock_);
  uint64_t bytes = 0;
  for (const auto& [size, base] : devices_[wire_device].cache) bytes += size;
  return bytes;
}

void DeviceMemory::trim() {
  std::lock_guard guard(lock_);
  reap_locked();
  evict_locked(0);
}

}  // namespace openmps::client
