// SPDX-License-Identifier: Apache-2.0
// Allocations and registrations. See memory.h.
#include "softgpu/device/memory/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <vector>

#include "base/shared_memory.h"
#include "softgpu/device/contexts/context.h"
#include "softgpu/device/driver.h"
#include "softgpu/device/schedule/quiescence.h"
#include "softgpu/device/schedule/scheduler.h"

namespace openmps::softgpu {
namespace {

bool is_charged(const MappedRange& range) {
  const bool counts = range.kind == RangeKind::kDevice || range.kind == RangeKind::kManaged ||
                      range.kind == RangeKind::kModuleGlobal || range.kind == RangeKind::kGraph ||
                      range.kind == RangeKind::kArray;
  return counts && range.charged;
}

bool is_device_kind(const MappedRange& range) {
  return range.kind == RangeKind::kDevice || range.kind == RangeKind::kManaged ||
         (range.kind == RangeKind::kImported && range.pool != nullptr);
}

uint64_t page_bytes() {
  static const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return page;
}

// As on hardware, all pages are there from now on. False: some can't be. Linux 5.14; elsewhere they
// come when they are touched.
bool populate(uint64_t address, uint64_t end, bool write) {
  const int advice = write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
  alignas(4096) static char known[4096];
  if (madvise(known, sizeof(known), advice) != 0) return true;
  const uint64_t first = address / page_bytes() * page_bytes();
  return madvise(reinterpret_cast<void*>(first), end - first, advice) == 0;
}

// Whether every page of the range is mapped in this process: a worker that touched one that is not
// would die of SIGSEGV.
bool pages_exist(uint64_t address, uint64_t bytes) {
  const uint64_t page = page_bytes();
  uint64_t begin = address / page * page;
  uint64_t end = address + bytes;
  constexpr uint64_t kPagesAtOnce = 1 << 16;
  std::vector<unsigned char> present(std::min(kPagesAtOnce, (end - begin + page - 1) / page));
  while (begin < end) {
    uint64_t length = std::min(end - begin, kPagesAtOnce * page);
    if (mincore(reinterpret_cast<void*>(begin), length, present.data()) != 0) return false;
    begin += length;
  }
  return true;
}

Status invalid_address(uint64_t address, const char* what) {
  return Status(CUDA_ERROR_INVALID_VALUE, std::to_string(address) + " is not the begin of " + what);
}

}  // namespace

Status Memory::insert_range(const Device& device, Context* owner, const Backing& backing,
                            uint64_t bytes, RangeKind kind, unsigned flags) {
  MappedRange range;
  range.begin = backing.address;
  range.bytes = bytes;
  range.end = backing.address + backing.bytes;
  range.kind = kind;
  range.flags = flags;
  range.id = driver_->new_id();
  range.device = device.ordinal;
  range.owner = owner;
  range.charged = kind != RangeKind::kGraph;
  range.sync_memops = kind == RangeKind::kManaged;
  {
    const MutexLock lock(mutex_);
    backings_.emplace(backing.address, backing);
  }
  return driver_->address_space.insert(range);
}

Result<uint64_t> Memory::allocate_device(Context& context, uint64_t bytes, RangeKind kind,
                                         unsigned flags) {
  return allocate(context.device(), &context, bytes, kind, flags);
}

Result<uint64_t> Memory::allocate_library_global(Device& device, uint64_t bytes) {
  return allocate(device, nullptr, bytes, RangeKind::kModuleGlobal, CU_MEM_ATTACH_GLOBAL);
}

Result<uint64_t> Memory::allocate(Device& device, Context* owner, uint64_t bytes, RangeKind kind,
                                  unsigned flags) {
  if (bytes == 0) return Status(CUDA_ERROR_INVALID_VALUE, "an allocation of no bytes");
  uint64_t rounded = (bytes + kDeviceAlignment - 1) / kDeviceAlignment * kDeviceAlignment;
  if (rounded < bytes) return Status(CUDA_ERROR_OUT_OF_MEMORY, "the size overflows");
  DeviceSegment& segment = *device.segment;
  const uint64_t charged = kind == RangeKind::kGraph ? 0 : rounded;
  OPENMPS_RETURN_IF_ERROR(segment.reserve_memory(charged));
  Backing backing = allocate_backing(rounded, kind == RangeKind::kDevice);
  if (backing.address == 0) {
    segment.return_memory(charged);
    return Status(CUDA_ERROR_OUT_OF_MEMORY, "the host has no memory left");
  }
  // A GPU's memory is in no core dump of the host; managed memory is the program's as well.
  if (backing.mapped && kind != RangeKind::kManaged) {
    keep_from_dumps(backing.address, backing.bytes);
  }
  OPENMPS_RETURN_IF_ERROR(insert_range(device, owner, backing, bytes, kind, flags));
  return backing.address;
}

Backing Memory::take_backing(uint64_t address) {
  const MutexLock lock(mutex_);
  auto found = backings_.find(address);
  if (found == backings_.end()) return {};
  Backing backing = found->second;
  backings_.erase(found);
  return backing;
}

void Memory::release_range(const MappedRange& range) {
  driver_->scheduler.grace_period();
  free_backing(take_backing(range.begin));
  if (is_charged(range)) {
    driver_->devices[range.device].segment->return_memory(range.end - range.begin);
  }
}

bool Memory::is_device_allocation(uint64_t address) const {
  MappedRange range;
  return driver_->address_space.find_mapped(address, &range) && range.begin == address &&
         is_device_kind(range);
}

Status Memory::free_device(uint64_t address) {
  MappedRange range;
  if (!driver_->address_space.find_mapped(address, &range) || range.begin != address ||
      !is_device_kind(range)) {
    return invalid_address(address, "a device allocation");
  }
  std::optional<Quiescence> quiescence;
  const std::shared_ptr<ExecutionContext> execution = find_execution(*driver_, range.owner);
  if (execution != nullptr) quiescence.emplace(driver_->scheduler, *execution);
  // Another thread may have freed the range while this thread waited.
  if (!driver_->address_space.remove_if(address, is_device_kind, &range)) {
    return invalid_address(address, "a device allocation");
  }
  release_range(range);
  return Status();
}

Status Memory::free_array(uint64_t address) {
  MappedRange range;
  auto is_array = [](const MappedRange& r) { return r.kind == RangeKind::kArray; };
  if (!driver_->address_space.remove_if(address, is_array, &range)) {
    return invalid_address(address, "an array");
  }
  release_range(range);
  return Status();
}

void Memory::free_global(uint64_t address) {
  MappedRange range;
  auto is_global = [](const MappedRange& r) { return r.kind == RangeKind::kModuleGlobal; };
  if (driver_->address_space.remove_if(address, is_global, &range)) release_range(range);
}

Backing Memory::end_allocation(uint64_t address) {
  MappedRange range;
  auto ends_in_order = [](const MappedRange& r) {
    return is_device_kind(r) || r.kind == RangeKind::kGraph;
  };
  if (!driver_->address_space.remove_if(address, ends_in_order, &range)) return {};
  if (is_charged(range)) {
    driver_->devices[range.device].segment->return_memory(range.end - range.begin);
  }
  return take_backing(address);
}

std::shared_ptr<const SharedFile> Memory::share(uint64_t address) {
  const auto find = [&]() REQUIRES(mutex_) -> Backing* {
    const auto found = backings_.find(address);
    return found == backings_.end() ? nullptr : &found->second;
  };
  {
    const MutexLock lock(mutex_);
    const Backing* backing = find();
    if (backing == nullptr || backing->file != nullptr) {
      return backing == nullptr ? nullptr : backing->file;
    }
  }
  std::shared_ptr<const SharedFile> file;
  driver_->scheduler.with_memory_at_rest([&] {
    const MutexLock lock(mutex_);
    Backing* backing = find();
    if (backing != nullptr && (backing->file != nullptr || share_backing(backing))) {
      file = backing->file;
    }
  });
  return file;
}

Result<uint64_t> Memory::adopt_shared(Context& context, const Device& device, uint64_t address,
                                      uint64_t bytes, CUmemoryPool pool) {
  Backing backing;
  backing.address = address;
  backing.bytes = (bytes + kDeviceAlignment - 1) / kDeviceAlignment * kDeviceAlignment;
  backing.mapped = true;
  OPENMPS_RETURN_IF_ERROR(insert_range(device, &context, backing, bytes, RangeKind::kImported, 0));
  driver_->address_space.change(address, [pool](MappedRange& range) { range.pool = pool; });
  return address;
}

Status Memory::release_shared(uint64_t address) {
  MappedRange range;
  const auto is_imported = [](const MappedRange& r) { return r.kind == RangeKind::kImported; };
  if (driver_->address_space.find_mapped(address, &range)) {
    if (std::shared_ptr<ExecutionContext> execution = find_execution(*driver_, range.owner)) {
      driver_->scheduler.wait_idle(*execution);
    }
  }
  if (driver_->address_space.remove_if(address, is_imported, &range)) release_range(range);
  return Status();
}

Result<uint64_t> Memory::allocate_host(Context& context, uint64_t bytes, unsigned flags) {
  if (bytes == 0) return Status(CUDA_ERROR_INVALID_VALUE, "an allocation of no bytes");
  Backing backing = allocate_backing(bytes);
  if (backing.address == 0) return Status(CUDA_ERROR_OUT_OF_MEMORY, "the host has no memory left");
  OPENMPS_RETURN_IF_ERROR(
      insert_range(context.device(), &context, backing, bytes, RangeKind::kHostAllocated, flags));
  return backing.address;
}

Status Memory::free_host(uint64_t address) {
  MappedRange range;
  auto is_host = [](const MappedRange& r) { return r.kind == RangeKind::kHostAllocated; };
  if (!driver_->address_space.find_mapped(address, &range) || range.begin != address ||
      !is_host(range)) {
    return invalid_address(address, "a host allocation");
  }
  if (std::shared_ptr<ExecutionContext> execution = find_execution(*driver_, range.owner)) {
    driver_->scheduler.wait_idle(*execution);
  }
  if (!driver_->address_space.remove_if(address, is_host, &range)) {
    return invalid_address(address, "a host allocation");
  }
  release_range(range);
  return Status();
}

Status Memory::register_host(Context& context, uint64_t address, uint64_t bytes, unsigned flags) {
  uint64_t end = 0;
  if (address == 0 || bytes == 0 || __builtin_add_overflow(address, bytes, &end)) {
    return Status(CUDA_ERROR_INVALID_VALUE, "an empty or impossible range");
  }
  if (!pages_exist(address, bytes)) {
    return Status(CUDA_ERROR_INVALID_VALUE, "the range is not mapped in this process");
  }
  if (!populate(address, end, (flags & CU_MEMHOSTREGISTER_READ_ONLY) == 0)) {
    return Status(CUDA_ERROR_INVALID_VALUE, "pages that can't be read, or written");
  }
  MappedRange range;
  range.begin = address;
  range.bytes = bytes;
  range.end = end;
  range.kind = RangeKind::kHostRegistered;
  range.flags = flags;
  range.writable = (flags & CU_MEMHOSTREGISTER_READ_ONLY) == 0;
  range.id = driver_->new_id();
  range.device = context.device().ordinal;
  range.owner = &context;
  if (!driver_->address_space.insert(range).ok()) {
    MappedRange there;
    if (driver_->address_space.find_mapped(address, &there) &&
        there.kind != RangeKind::kHostRegistered) {
      return Status(CUDA_ERROR_INVALID_VALUE, "the driver's own memory");
    }
    return Status(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "the range is registered already");
  }
  return Status();
}

Status Memory::unregister_host(uint64_t address) {
  MappedRange range;
  auto is_registered = [](const MappedRange& r) { return r.kind == RangeKind::kHostRegistered; };
  if (driver_->config.loading_waits && driver_->address_space.find_mapped(address, &range) &&
      range.begin == address && is_registered(range)) {
    if (std::shared_ptr<ExecutionContext> execution = find_execution(*driver_, range.owner)) {
      driver_->scheduler.wait_idle(*execution);
    }
  }
  if (!driver_->address_space.remove_if(address, is_registered, &range)) {
    if (address == 0 || driver_->address_space.find_mapped(address, &range)) {
      return Status(CUDA_ERROR_INVALID_VALUE, "memory that was never registered");
    }
    return Status(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "the address is not registered");
  }
  driver_->scheduler.grace_period();
  return Status();
}

void Memory::release_context(const Context* context) {
  std::vector<MappedRange> owned;
  driver_->address_space.for_each([&](const MappedRange& range) {
    if (range.owner == context) owned.push_back(range);
  });
  if (owned.empty()) return;
  std::erase_if(owned, [&](MappedRange& range) {
    return !driver_->address_space.remove(range.begin, &range);
  });
  driver_->scheduler.grace_period();
  for (const MappedRange& range : owned) {
    free_backing(take_backing(range.begin));
    if (is_charged(range)) {
      driver_->devices[range.device].segment->return_memory(range.end - range.begin);
    }
  }
}

}  // namespace openmps::softgpu
