// SPDX-License-Identifier: Apache-2.0
// cuMemAddressReserve, cuMemCreate, cuMemMap and what goes with them: implementations behind the
// generated entry points, on the program's threads.
#include <fcntl.h>

#include <cstring>
#include <optional>

#include "api/client_handlers.h"
#include "client/session/context.h"
#include "client/session/enter.h"

namespace openmps::client {
namespace {

using Locked = VirtualMemory::Locked;

bool whole_granules(uint64_t bytes) { return bytes != 0 && bytes % wire::kMemoryGranularity == 0; }

// The worker forgets memory that neither the program nor a mapping needs.
CUresult drop_unused(Session& session, PhysicalMemory* memory) {
  if (memory->references != 0 || memory->mappings != 0) return CUDA_SUCCESS;
  if (!session.physical.retire(memory)) return CUDA_SUCCESS;
  const CUresult result = session.channel.push(wire::PhysicalRelease{memory->id});
  session.physical.recycle(memory);
  return result;
}

CUresult check_properties(const Session& session, const CUmemAllocationProp& prop) {
  if (prop.type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  constexpr int kExportable = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  if (prop.location.type == CU_MEM_LOCATION_TYPE_INVALID ||
      (prop.requestedHandleTypes & CU_MEM_HANDLE_TYPE_WIN32) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (prop.location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
      (prop.requestedHandleTypes & ~kExportable) != 0) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  return session.valid_device(prop.location.id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

// Copies and attributes know accessible memory as an allocation of its device's primary context.
void show_mapping(Session& session, const IntervalMap<VirtualMapping>::Entry& mapping) {
  session.memory.remove_mapping(mapping.base);
  const CUmemAccess_flags most = mapping.value.most_access();
  if (most == CU_MEM_ACCESS_FLAGS_PROT_NONE) return;
  session.memory.add_mapping(session.contexts.primary[mapping.value.memory->device], mapping.base,
                             mapping.bytes, AllocationKind::kMapped,
                             most == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

CUresult check_access(const Session& session, const CUmemAccessDesc& desc) {
  const bool known = desc.flags == CU_MEM_ACCESS_FLAGS_PROT_NONE ||
                     desc.flags == CU_MEM_ACCESS_FLAGS_PROT_READ ||
                     desc.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  if (!known) return CUDA_ERROR_INVALID_VALUE;
  if (desc.location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
  return session.valid_device(desc.location.id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

namespace impl {

// ---- Addresses ----------------------------------------------------------------------------------

// A wanted address does not bind the driver.
CUresult cuMemAddressReserve(Session& session, CUdeviceptr* ptr, size_t size, size_t alignment,
                             CUdeviceptr addr, unsigned long long flags) {
  if (!whole_granules(size) || (alignment & (alignment - 1)) != 0 ||
      addr % wire::kMemoryGranularity != 0 || flags != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  uint64_t address = 0;
  OPENMPS_CUDA_CHECK(session.memory.reserve(size, alignment, &address));
  Locked(session.virtual_memory)->reserved.insert(address, size, {});
  *ptr = address;
  return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(Session& session, CUdeviceptr ptr, size_t size) {
  Locked memory(session.virtual_memory);
  const auto* found = memory->reserved.find(ptr);
  if (found == nullptr || found->base != ptr || found->bytes != size ||
      memory->mappings.overlaps(ptr, size)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  memory->reserved.erase(ptr);
  session.memory.unreserve(ptr, size);
  return CUDA_SUCCESS;
}

// ---- Physical memory ----------------------------------------------------------------------------

CUresult cuMemCreate(Session& session, CUmemGenericAllocationHandle* handle, size_t size,
                     const CUmemAllocationProp* prop, unsigned long long flags) {
  if (flags != 0 || !whole_granules(size)) return CUDA_ERROR_INVALID_VALUE;
  OPENMPS_CUDA_CHECK(check_properties(session, *prop));
  PhysicalMemory* made = nullptr;
  const uint32_t wanted = (prop->requestedHandleTypes != 0 ? wire::kPhysicalExportable : 0) |
                          (prop->allocFlags.gpuDirectRDMACapable != 0 ? wire::kPhysicalRdma : 0) |
                          (prop->allocFlags.compressionType != 0 ? wire::kPhysicalCompressible : 0);
  OPENMPS_CUDA_CHECK(session.physical.make(&made, [&](PhysicalMemory& memory) {
    memory.bytes = size;
    memory.device = static_cast<uint32_t>(prop->location.id);
    memory.properties = *prop;
    const wire::PhysicalCreate command{memory.id, session.devices[memory.device], size, wanted, 0};
    return session.memory.retry_after_reclaim([&] { return session.channel.call(command); });
  }));
  *handle = made->handle;
  return CUDA_SUCCESS;
}

CUresult cuMemRelease(Session& session, PhysicalMemory& memory) {
  Locked locked(session.virtual_memory);
  if (memory.references == 0) return CUDA_ERROR_INVALID_VALUE;
  --memory.references;
  return drop_unused(session, &memory);
}

CUresult cuMemRetainAllocationHandle(Session& session, CUmemGenericAllocationHandle* handle,
                                     void* addr) {
  Locked locked(session.virtual_memory);
  const auto* mapping = locked->mappings.find(reinterpret_cast<uint64_t>(addr));
  if (mapping == nullptr) return CUDA_ERROR_INVALID_VALUE;
  ++mapping->value.memory->references;
  *handle = mapping->value.memory->handle;
  return CUDA_SUCCESS;
}

// Of whatever memory; needs no current context.
CUresult cuMemGetAllocationGranularity(Session&, size_t* granularity, const CUmemAllocationProp*,
                                       CUmemAllocationGranularity_flags option) {
  if (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM &&
      option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *granularity = wire::kMemoryGranularity;
  return CUDA_SUCCESS;
}

// The descriptor is the driver's own: the memory lives while any process holds it.
CUresult cuMemExportToShareableHandle(Session& session, void* shareableHandle,
                                      PhysicalMemory& memory, CUmemAllocationHandleType handleType,
                                      unsigned long long flags) {
  if (shareableHandle == nullptr || flags != 0 || handleType == CU_MEM_HANDLE_TYPE_NONE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  if ((memory.properties.requestedHandleTypes & handleType) == 0) return CUDA_ERROR_INVALID_VALUE;
  UniqueFd descriptor;
  OPENMPS_CUDA_CHECK(session.passage.export_physical(memory.id, &descriptor));
  const int number = descriptor.release();
  memcpy(shareableHandle, &number, sizeof(number));
  return CUDA_SUCCESS;
}

// A dma-buf for the drivers of other devices. Of memory that cuMemAlloc gave, or that is mapped. It
// begins and ends with a page of the host, so a small allocation's shows its neighbours, too, as
// with NVIDIA's driver.
CUresult cuMemGetHandleForAddressRange(Session& session, void* handle, CUdeviceptr dptr,
                                       size_t size, CUmemRangeHandleType handleType,
                                       unsigned long long flags) {
  constexpr unsigned long long kFlags = CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE;
  DeviceMemory::Entry entry;
  if (handle == nullptr || handleType != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD ||
      (flags & ~kFlags) != 0 || dptr % wire::kHostPageBytes != 0 ||
      size % wire::kHostPageBytes != 0 || !session.memory.contains_pages(dptr, size, &entry) ||
      entry.value.kind == AllocationKind::kGlobal) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (session.device(entry.value.device).attribute[CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED] == 0) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  UniqueFd descriptor;
  OPENMPS_CUDA_CHECK(
      session.passage.export_range(dptr, size, static_cast<uint32_t>(flags), &descriptor));
  const int number = descriptor.release();
  memcpy(handle, &number, sizeof(number));
  return CUDA_SUCCESS;
}

CUresult cuMemImportFromShareableHandle(Session& session, CUmemGenericAllocationHandle* handle,
                                        void* osHandle, CUmemAllocationHandleType shHandleType) {
  if (shHandleType == CU_MEM_HANDLE_TYPE_NONE) return CUDA_ERROR_INVALID_VALUE;
  if (shHandleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  // The descriptor itself, not its address, travels in the pointer.
  const int descriptor = static_cast<int>(reinterpret_cast<intptr_t>(osHandle));
  if (fcntl(descriptor, F_GETFD) < 0) return CUDA_ERROR_UNKNOWN;  // as an H200 has it
  PhysicalMemory* made = nullptr;
  OPENMPS_CUDA_CHECK(session.physical.make(&made, [&](PhysicalMemory& memory) {
    wire::PhysicalImport::Reply reply{};
    OPENMPS_CUDA_CHECK(session.passage.import_physical(memory.id, descriptor, &reply));
    const std::optional<uint32_t> device = session.devices.ordinal_of(reply.device);
    if (!device.has_value()) {
      static_cast<void>(session.channel.push(wire::PhysicalRelease{memory.id}));
      return CUDA_ERROR_INVALID_DEVICE;
    }
    memory.device = *device;
    memory.properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    memory.properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    memory.properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, static_cast<int>(memory.device)};
    return CUDA_SUCCESS;
  }));
  *handle = made->handle;
  return CUDA_SUCCESS;
}

// ---- Mappings -----------------------------------------------------------------------------------

CUresult cuMemMap(Session& session, CUdeviceptr ptr, size_t size, size_t offset,
                  PhysicalMemory& physical, unsigned long long flags) {
  Locked memory(session.virtual_memory);
  if (physical.references == 0 || flags != 0 || size == 0 || ptr == 0 ||
      ptr % wire::kMemoryGranularity != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // As NVIDIA's driver, which maps only the whole of a handle. That of an imported one is for the
  // worker to know.
  if (offset != 0 || (physical.bytes != 0 && size != physical.bytes)) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  if (!whole_granules(size) || !memory->is_reserved(ptr, size) ||
      memory->mappings.overlaps(ptr, size)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const wire::PhysicalMap command{ptr, size, offset, physical.id};
  OPENMPS_CUDA_CHECK(session.memory.retry_after_reclaim(
      [&] { return session.channel.call(command); }));  // if imported
  ++physical.mappings;
  memory->mappings.insert(ptr, size, {.memory = &physical});
  return CUDA_SUCCESS;
}

CUresult cuMemUnmap(Session& session, CUdeviceptr ptr, size_t size) {
  Locked memory(session.virtual_memory);
  if (!memory->is_whole(ptr, size)) {
    // There may be nothing (so on an H200).
    const bool empty = whole_granules(size) && ptr % wire::kMemoryGranularity == 0 &&
                       memory->is_reserved(ptr, size) && !memory->mappings.overlaps(ptr, size);
    return empty ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }
  // Neither this nor cuMemSetAccess waits for work in flight (seen on an H200).
  for (uint64_t at = ptr; at < ptr + size;) {
    const auto mapping = *memory->mappings.find(at);
    PhysicalMemory* physical = mapping.value.memory;
    session.memory.remove_mapping(at);
    memory->mappings.erase(at);
    OPENMPS_CUDA_CHECK(session.channel.push(wire::MemoryUnmap{
        at, mapping.bytes, session.devices[physical->device], wire::kUnmapAtOnce}));
    --physical->mappings;
    OPENMPS_CUDA_CHECK(drop_unused(session, physical));
    at += mapping.bytes;
  }
  return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(Session& session, CUdeviceptr ptr, size_t size, const CUmemAccessDesc* desc,
                        size_t count) {
  if (desc == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) OPENMPS_CUDA_CHECK(check_access(session, desc[i]));
  Locked memory(session.virtual_memory);
  if (!memory->is_whole(ptr, size)) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    const auto device = static_cast<uint32_t>(desc[i].location.id);
    OPENMPS_CUDA_CHECK(session.channel.call(wire::MemoryAccess{
        ptr, size, session.devices[device], static_cast<uint32_t>(desc[i].flags)}));
    for (uint64_t at = ptr; at < ptr + size;) {
      auto* mapping = memory->mappings.find(at);
      mapping->value.access[device] = desc[i].flags;
      show_mapping(session, *mapping);
      at += mapping->bytes;
    }
  }
  return CUDA_SUCCESS;
}

CUresult cuMemGetAccess(Session& session, unsigned long long* flags, const CUmemLocation* location,
                        CUdeviceptr ptr) {
  if (location->type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
  if (!session.valid_device(location->id)) return CUDA_ERROR_INVALID_DEVICE;
  Locked memory(session.virtual_memory);
  const auto* mapping = memory->mappings.find(ptr);
  if (mapping == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = mapping->value.access[location->id];
  return CUDA_SUCCESS;
}

}  // namespace impl
}  // namespace openmps::client
