// SPDX-License-Identifier: Apache-2.0
// Reservations, physical memory and mappings. See vmm.h.
#include "softgpu/device/memory/vmm.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "base/shared_memory.h"
#include "softgpu/device/driver.h"
#include "softgpu/device/schedule/scheduler.h"

namespace openmps::softgpu {
namespace {

bool aligned(uint64_t value) { return value % kVmmGranularity == 0; }

void* as_pointer(uint64_t address) { return reinterpret_cast<void*>(address); }

// Address space without memory behind it.
void* reserve_pages(uint64_t address, uint64_t bytes, int flags) {
  return mmap(as_pointer(address), bytes, PROT_NONE,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
}

int protection(CUmemAccess_flags access) {
  if (access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE) return PROT_READ | PROT_WRITE;
  return access == CU_MEM_ACCESS_FLAGS_PROT_READ ? PROT_READ : PROT_NONE;
}

}  // namespace

PhysicalMemory::~PhysicalMemory() {
  if (counted) driver->devices[device].segment->return_memory(bytes);
}

// ---- Reservations -----------------------------------------------------------------------------

Result<uint64_t> VirtualMemory::reserve(uint64_t bytes, uint64_t alignment, uint64_t wanted) {
  if (bytes == 0 || !aligned(bytes)) return invalid_value("the size is not a multiple of 2 MiB");
  if ((alignment & (alignment - 1)) != 0) {
    return invalid_value("the alignment is not a power of two");
  }
  if (!aligned(wanted)) return invalid_value("the wanted address is not a multiple of 2 MiB");
  if (alignment < kVmmGranularity) alignment = kVmmGranularity;
  uint64_t address = 0;
  if (wanted != 0 && wanted % alignment == 0) {
    void* got = reserve_pages(wanted, bytes, MAP_FIXED_NOREPLACE);
    // Kernels before 4.17 take the flag for a hint.
    if (got != MAP_FAILED && got != as_pointer(wanted)) munmap(got, bytes);
    if (got == as_pointer(wanted)) address = wanted;
  }
  if (address == 0) {
    uint64_t padded = 0;
    if (__builtin_add_overflow(bytes, alignment, &padded)) {
      return Status(CUDA_ERROR_OUT_OF_MEMORY, "no such address range");
    }
    void* got = reserve_pages(0, padded, 0);
    if (got == MAP_FAILED) return Status(CUDA_ERROR_OUT_OF_MEMORY, "no such address range");
    uint64_t begin = reinterpret_cast<uint64_t>(got);
    address = (begin + alignment - 1) / alignment * alignment;
    if (address > begin) munmap(got, address - begin);
    if (begin + padded > address + bytes) {
      munmap(as_pointer(address + bytes), begin + padded - address - bytes);
    }
  }
  const MutexLock lock(mutex_);
  reservations_.emplace(address, bytes);
  return address;
}

Status VirtualMemory::free_reservation(uint64_t address, uint64_t bytes) {
  const MutexLock lock(mutex_);
  auto found = reservations_.find(address);
  if (found == reservations_.end() || found->second != bytes) {
    return invalid_value("the range is not a reservation");
  }
  auto mapping = mappings_.lower_bound(address);
  if (mapping != mappings_.end() && mapping->first < address + bytes) {
    return invalid_value("something is still mapped in the reservation");
  }
  munmap(as_pointer(address), bytes);
  reservations_.erase(found);
  return Status();
}

bool VirtualMemory::reservation_of(uint64_t address, uint64_t* begin, uint64_t* bytes) {
  const MutexLock lock(mutex_);
  auto after = reservations_.upper_bound(address);
  if (after == reservations_.begin()) return false;
  auto found = std::prev(after);
  if (address - found->first >= found->second) return false;
  *begin = found->first;
  *bytes = found->second;
  return true;
}

// ---- Physical memory --------------------------------------------------------------------------

CUmemGenericAllocationHandle VirtualMemory::publish_locked(
    const std::shared_ptr<PhysicalMemory>& memory) {
  memory->handles = 1;
  memory->handle = objects_.add(memory);
  return memory->handle;
}

Result<CUmemGenericAllocationHandle> VirtualMemory::create(uint64_t bytes,
                                                           const CUmemAllocationProp& properties) {
  if (bytes == 0 || !aligned(bytes)) return invalid_value("the size is not a multiple of 2 MiB");
  if (properties.type != CU_MEM_ALLOCATION_TYPE_PINNED) {
    return invalid_value("only pinned physical memory exists");
  }
  if ((properties.requestedHandleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0) {
    return invalid_value("only POSIX descriptors are exported");
  }
  bool on_device = properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE;
  if (!on_device && properties.location.type != CU_MEM_LOCATION_TYPE_HOST &&
      properties.location.type != CU_MEM_LOCATION_TYPE_HOST_NUMA) {
    return invalid_value("no such location");
  }
  Device* device = driver_->device(on_device ? properties.location.id : 0);
  if (device == nullptr) return Status(CUDA_ERROR_INVALID_DEVICE, "no such device");

  auto memory = std::make_shared<PhysicalMemory>();
  memory->driver = driver_;
  memory->properties = properties;
  memory->bytes = bytes;
  memory->device = device->ordinal;
  if (on_device) {
    OPENMPS_RETURN_IF_ERROR(device->segment->reserve_memory(bytes));
    memory->counted = true;
  }
  memory->file.reset(memfd_create("softgpu-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory->file.valid() || ftruncate(memory->file.get(), static_cast<off_t>(bytes)) != 0) {
    return Status(CUDA_ERROR_OUT_OF_MEMORY, std::string("memfd: ") + strerror(errno));
  }
  // A peer that shrank the file would take every process that maps it down with SIGBUS.
  fcntl(memory->file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  const MutexLock lock(mutex_);
  return publish_locked(memory);
}

Status VirtualMemory::release(CUmemGenericAllocationHandle handle) {
  std::shared_ptr<PhysicalMemory> last;
  const MutexLock lock(mutex_);
  std::shared_ptr<PhysicalMemory> memory = objects_.find(handle);
  if (memory == nullptr) return invalid_value("not a handle of physical memory");
  if (--memory->handles == 0) last = objects_.remove(handle);
  return Status();
}

Result<int> VirtualMemory::export_descriptor(CUmemGenericAllocationHandle handle) {
  std::shared_ptr<PhysicalMemory> memory = objects_.find(handle);
  if (memory == nullptr) return invalid_value("not a handle of physical memory");
  if ((memory->properties.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) == 0) {
    return invalid_value("the memory was created without a shareable handle type");
  }
  int descriptor = fcntl(memory->file.get(), F_DUPFD_CLOEXEC, 0);
  if (descriptor < 0) return Status(CUDA_ERROR_OPERATING_SYSTEM, strerror(errno));
  return descriptor;
}

Result<CUmemGenericAllocationHandle> VirtualMemory::import_descriptor(int descriptor) {
  // Any sealed memfd of whole pages will do: shrinking must be impossible.
  if (fcntl(descriptor, F_GETFD) < 0) return Status(CUDA_ERROR_UNKNOWN, "no such descriptor");
  int seals = fcntl(descriptor, F_GET_SEALS);
  struct stat facts {};
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(descriptor, &facts) != 0 ||
      facts.st_size <= 0 || !aligned(static_cast<uint64_t>(facts.st_size))) {
    return invalid_value("the descriptor is not exported device memory");
  }
  auto memory = std::make_shared<PhysicalMemory>();
  memory->driver = driver_;
  memory->bytes = static_cast<uint64_t>(facts.st_size);
  memory->properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  memory->properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  memory->properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  memory->file.reset(fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
  if (!memory->file.valid()) return Status(CUDA_ERROR_OPERATING_SYSTEM, strerror(errno));
  const MutexLock lock(mutex_);
  return publish_locked(memory);
}

VirtualMemory::MappedObject* VirtualMemory::find_mapped_locked(uint64_t address) {
  const auto after = mappings_.upper_bound(address);
  if (after == mappings_.begin()) return nullptr;
  const auto found = std::prev(after);
  return address - found->first < found->second.bytes ? &found->second : nullptr;
}

Result<CUmemGenericAllocationHandle> VirtualMemory::retain_mapped(uint64_t address) {
  const MutexLock lock(mutex_);
  const MappedObject* const found = find_mapped_locked(address);
  if (found == nullptr) return invalid_value("nothing is mapped there");
  const std::shared_ptr<PhysicalMemory>& memory = found->memory;
  if (memory->handles == 0) return publish_locked(memory);
  ++memory->handles;
  return memory->handle;
}

Result<CUmemAllocationProp> VirtualMemory::properties(CUmemGenericAllocationHandle handle) {
  std::shared_ptr<PhysicalMemory> memory = objects_.find(handle);
  if (memory == nullptr) return invalid_value("not a handle of physical memory");
  return memory->properties;
}

// ---- Mappings ---------------------------------------------------------------------------------

Status VirtualMemory::map(uint64_t address, uint64_t bytes, uint64_t offset,
                          CUmemGenericAllocationHandle handle) {
  std::shared_ptr<PhysicalMemory> memory = objects_.find(handle);
  if (memory == nullptr) return invalid_value("not a handle of physical memory");
  if (bytes == 0 || address == 0 || !aligned(address)) {
    return invalid_value("no size, or an address that is not a multiple of 2 MiB");
  }
  if (offset != 0 || bytes != memory->bytes) {
    return Status(CUDA_ERROR_NOT_SUPPORTED, "a part of physical memory can't be mapped");
  }
  const MutexLock lock(mutex_);
  auto after = reservations_.upper_bound(address);
  if (after == reservations_.begin()) return invalid_value("the address is not reserved");
  auto reservation = std::prev(after);
  uint64_t into = address - reservation->first;
  if (into >= reservation->second || bytes > reservation->second - into) {
    return invalid_value("the range is not inside one reservation");
  }
  auto next = mappings_.lower_bound(address);
  bool taken = next != mappings_.end() && next->first < address + bytes;
  if (next != mappings_.begin()) {
    auto previous = std::prev(next);
    taken = taken || previous->first + previous->second.bytes > address;
  }
  if (taken) return invalid_value("something is mapped there already");
  void* got =
      mmap(as_pointer(address), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, memory->file.get(), 0);
  if (got == MAP_FAILED) return Status(CUDA_ERROR_OUT_OF_MEMORY, strerror(errno));
  keep_from_dumps(address, bytes);
  mappings_.emplace(address, MappedObject{bytes, memory, CU_MEM_ACCESS_FLAGS_PROT_NONE});
  return Status();
}

bool VirtualMemory::whole_mappings_locked(uint64_t address, uint64_t bytes,
                                          Mappings::iterator* first, Mappings::iterator* last) {
  *first = *last = mappings_.find(address);
  uint64_t at = address;
  while (*last != mappings_.end() && (*last)->first == at && at - address < bytes) {
    at += (*last)->second.bytes;
    ++*last;
  }
  return bytes != 0 && at - address == bytes;
}

bool VirtualMemory::whole_or_none_locked(uint64_t address, uint64_t bytes,
                                         Mappings::iterator* first, Mappings::iterator* last) {
  auto reservation = reservations_.upper_bound(address);
  if (bytes == 0 || !aligned(bytes) || !aligned(address) || reservation == reservations_.begin()) {
    return false;
  }
  --reservation;
  const uint64_t into = address - reservation->first;
  if (into >= reservation->second || bytes > reservation->second - into) return false;
  const auto cut = [this](uint64_t at) REQUIRES(mutex_) {
    const auto next = mappings_.lower_bound(at);
    if (next == mappings_.begin()) return false;
    const auto before = std::prev(next);
    return before->first + before->second.bytes > at;
  };
  *first = mappings_.lower_bound(address);
  *last = mappings_.lower_bound(address + bytes);
  return !cut(address) && !cut(address + bytes);
}

Status VirtualMemory::unmap(uint64_t address, uint64_t bytes) {
  std::vector<std::shared_ptr<PhysicalMemory>> unmapped;  // given back without the mutex
  const MutexLock lock(mutex_);
  Mappings::iterator first;
  Mappings::iterator last;
  // There may be gaps between the mappings, or no mapping at all, as on an H200.
  if (!whole_mappings_locked(address, bytes, &first, &last) &&
      !whole_or_none_locked(address, bytes, &first, &last)) {
    return invalid_value("the range does not consist of whole mappings");
  }
  if (first == last) return Status();
  for (auto mapping = first; mapping != last; ++mapping) {
    MappedRange range;
    driver_->address_space.remove(mapping->first, &range);
  }
  driver_->scheduler.grace_period();
  if (reserve_pages(address, bytes, MAP_FIXED) == MAP_FAILED) {
    return Status(CUDA_ERROR_OPERATING_SYSTEM, strerror(errno));
  }
  for (auto mapping = first; mapping != last; ++mapping) {
    unmapped.push_back(std::move(mapping->second.memory));
  }
  mappings_.erase(first, last);
  return Status();
}

Status VirtualMemory::set_access(uint64_t address, uint64_t bytes, CUmemAccess_flags access) {
  const MutexLock lock(mutex_);
  Mappings::iterator first;
  Mappings::iterator last;
  if (!whole_mappings_locked(address, bytes, &first, &last)) {
    return invalid_value("the range does not consist of whole mappings");
  }
  bool reduced = false;
  for (auto mapping = first; mapping != last; ++mapping) {
    MappedObject& object = mapping->second;
    if (object.access == access) continue;
    reduced = reduced || object.access > access;
    MappedRange range;
    driver_->address_space.remove(mapping->first, &range);
    object.access = access;
    if (access == CU_MEM_ACCESS_FLAGS_PROT_NONE) continue;
    range = MappedRange();
    range.begin = mapping->first;
    range.bytes = object.bytes;
    range.end = mapping->first + object.bytes;
    range.kind = RangeKind::kMapped;
    range.writable = access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    range.id = driver_->new_id();
    range.device = object.memory->device;
    // Readable before kernels can find it.
    if (!reduced && mprotect(as_pointer(range.begin), range.bytes, protection(access)) != 0) {
      return Status(CUDA_ERROR_OUT_OF_MEMORY, strerror(errno));
    }
    OPENMPS_RETURN_IF_ERROR(driver_->address_space.insert(range));
  }
  if (reduced) {
    driver_->scheduler.grace_period();
    if (mprotect(as_pointer(address), bytes, protection(access)) != 0) {
      return Status(CUDA_ERROR_OPERATING_SYSTEM, strerror(errno));
    }
  }
  return Status();
}

Result<CUmemAccess_flags> VirtualMemory::access(uint64_t address) {
  const MutexLock lock(mutex_);
  const MappedObject* const found = find_mapped_locked(address);
  if (found == nullptr) return invalid_value("nothing is mapped there");
  return found->access;
}

}  // namespace openmps::softgpu
