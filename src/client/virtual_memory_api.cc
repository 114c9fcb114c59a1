// SPDX-License-Identifier: Apache-2.0
// cuMemAddressReserve, cuMemCreate, cuMemMap and what goes with them: implementations behind the
// generated entry points, on the program's threads.
#include "api/client_impl.h"
#include "client/context.h"
#include "client/thread_state.h"

namespace openmps::client {
namespace {

using Locked = VirtualMemory::Locked;

bool whole_granules(uint64_t bytes) { return bytes != 0 && bytes % wire::kMemoryGranularity == 0; }

// Copies and attributes know mapped memory as an allocation of the device's primary context.
CUresult map_physical(Session& session, PhysicalMemory& memory, uint64_t address) {
  Context* context = session.primary[memory.device];
  OPENMPS_CUDA_CHECK(session.memory.map_at(*context, address, memory.bytes));
  memory.address = address;
  memory.was_mapped = true;
  return CUDA_SUCCESS;
}

}  // namespace

namespace impl {

// Neither a wanted address nor flags bind the driver.
CUresult cuMemAddressReserve(CUdeviceptr* ptr, size_t size, size_t alignment, CUdeviceptr,
                             unsigned long long) {
  Session* session = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session));
  if (ptr == nullptr || !whole_granules(size) || (alignment & (alignment - 1)) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  uint64_t address = 0;
  OPENMPS_CUDA_CHECK(session->memory.reserve(size, alignment, &address));
  Locked(session->virtual_memory)->reserved.emplace(address, size);
  *ptr = address;
  return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size) {
  Session* session = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session));
  Locked memory(session->virtual_memory);
  const auto found = memory->reserved.find(ptr);
  if (found == memory->reserved.end() || found->second != size ||
      memory->overlaps_mapping(ptr, size)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  memory->reserved.erase(found);
  session->memory.unreserve(ptr, size);
  return CUDA_SUCCESS;
}

// Allocators ask for memory that could be exported as a descriptor and seldom export it: that
// wish is granted, the export is not.
CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size,
                     const CUmemAllocationProp* prop, unsigned long long flags) {
  Session* session = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session));
  if (handle == nullptr || prop == nullptr || flags != 0 || !whole_granules(size) ||
      prop->type != CU_MEM_ALLOCATION_TYPE_PINNED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
      (prop->requestedHandleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  if (!session->valid_device(prop->location.id)) return CUDA_ERROR_INVALID_DEVICE;
  Locked memory(session->virtual_memory);
  *handle = memory->next_handle++;
  memory->physical.emplace(
      *handle,
      PhysicalMemory{
          .bytes = size, .device = static_cast<uint32_t>(prop->location.id), .properties = *prop});
  return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  Session* session = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session));
  Locked memory(session->virtual_memory);
  const auto found = memory->physical.find(handle);
  if (found == memory->physical.end() || found->second.references == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  --found->second.references;
  memory->drop_unused();
  return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
  Session* session = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session));
  Locked memory(session->virtual_memory);
  const auto found = memory->physical.find(handle);
  if (found == memory->physical.end() || flags != 0 || !whole_granules(size) ||
      ptr % wire::kMemoryGranularity != 0 || !memory->is_reserved(ptr, size) ||
      memory->overlaps_mapping(ptr, size)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  PhysicalMemory& physical = found->second;
  // A second place, or a later one, would have to show the same contents.
  if (offset != 0 || size != physical.bytes || physical.was_mapped) return CUDA_ERROR_NOT_SUPPORTED;
  return map_physical(*session, physical, ptr);
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t size) {
  Session* session = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session));
  if (!whole_granules(size) || ptr + size < ptr) return CUDA_ERROR_INVALID_VALUE;
  Locked memory(session->virtual_memory);
  // Look first: all or nothing.
  for (uint64_t at = ptr; at < ptr + size;) {
    const PhysicalMemory* physical = memory->mapped_at(at);
    if (physical == nullptr || physical->bytes > ptr + size - at) return CUDA_ERROR_INVALID_VALUE;
    at += physical->bytes;
  }
  OPENMPS_CUDA_CHECK(synchronize(*session, nullptr));
  for (uint64_t at = ptr; at < ptr + size;) {
    PhysicalMemory* physical = memory->mapped_at(at);
    OPENMPS_CUDA_CHECK(session->memory.unmap_at(at));
    physical->address = 0;
    at += physical->bytes;
  }
  memory->drop_unused();
  return CUDA_SUCCESS;
}

// Mapped memory can be read and written from the start; anything less cannot be had.
CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc* desc, size_t count) {
  Session* session = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session));
  if (desc == nullptr || count == 0 || !whole_granules(size) || ptr + size < ptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Locked memory(session->virtual_memory);
  for (uint64_t at = ptr; at < ptr + size;) {
    const PhysicalMemory* physical = memory->mapped_at(at);
    if (physical == nullptr) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; ++i) {
      const bool own = desc[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
                       desc[i].location.id == static_cast<int>(physical->device);
      if (!own || desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
        return CUDA_ERROR_NOT_SUPPORTED;
      }
    }
    at += physical->bytes;
  }
  return CUDA_SUCCESS;
}

// Needs no current context.
CUresult cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* prop,
                                       CUmemAllocationGranularity_flags option) {
  Session* session = nullptr;
  OPENMPS_CUDA_CHECK(enter_local(&session));
  if (granularity == nullptr || prop == nullptr || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
      (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM &&
       option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
  if (!session->valid_device(prop->location.id)) return CUDA_ERROR_INVALID_DEVICE;
  *granularity = wire::kMemoryGranularity;
  return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* prop,
                                                CUmemGenericAllocationHandle handle) {
  Session* session = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session));
  Locked memory(session->virtual_memory);
  const auto found = memory->physical.find(handle);
  if (prop == nullptr || found == memory->physical.end()) return CUDA_ERROR_INVALID_VALUE;
  *prop = found->second.properties;
  return CUDA_SUCCESS;
}

}  // namespace impl
}  // namespace openmps::client
