// SPDX-License-Identifier: Apache-2.0
// Virtual memory management. Any thread; no current context needed, as with the real driver.
#include "softgpu/device/memory/vmm.h"
#include "softgpu/front/front.h"

using namespace openmps;           // NOLINT: entry points live outside the namespace
using namespace openmps::softgpu;  // NOLINT: entry points live outside the namespace

CUresult cuMemAddressReserve(CUdeviceptr* ptr, size_t size, size_t alignment, CUdeviceptr addr,
                             unsigned long long flags) {
  return with_driver([&](Driver& driver) -> Status {
    if (ptr == nullptr || flags != 0) return no_result();
    return deliver(driver.virtual_memory.reserve(size, alignment, addr), ptr);
  });
}

CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size) {
  return with_driver(
      [&](Driver& driver) { return driver.virtual_memory.free_reservation(ptr, size); });
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size,
                     const CUmemAllocationProp* prop, unsigned long long flags) {
  return with_driver([&](Driver& driver) -> Status {
    if (handle == nullptr || prop == nullptr || flags != 0) return invalid_value("a bad argument");
    return deliver(driver.virtual_memory.create(size, *prop), handle);
  });
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  return with_driver([&](Driver& driver) { return driver.virtual_memory.release(handle); });
}

CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
  return with_driver([&](Driver& driver) -> Status {
    if (flags != 0) return invalid_value("the flags must be 0");
    return driver.virtual_memory.map(ptr, size, offset, handle);
  });
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t size) {
  return with_driver([&](Driver& driver) { return driver.virtual_memory.unmap(ptr, size); });
}

CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc* desc, size_t count) {
  return with_driver([&](Driver& driver) -> Status {
    if (desc == nullptr || count == 0) return invalid_value("no access description");
    for (size_t i = 0; i < count; ++i) {
      bool known = desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE ||
                   desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READ ||
                   desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
      if (!known) return invalid_value("no such access");
      if (desc[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
          driver.device(desc[i].location.id) == nullptr) {
        return invalid_value("no such device");
      }
      OPENMPS_RETURN_IF_ERROR(driver.virtual_memory.set_access(ptr, size, desc[i].flags));
    }
    return Status();
  });
}

CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr ptr) {
  return with_driver([&](Driver& driver) -> Status {
    if (flags == nullptr || location == nullptr) return no_result();
    if (location->type == CU_MEM_LOCATION_TYPE_DEVICE && driver.device(location->id) == nullptr) {
      return Status(CUDA_ERROR_INVALID_DEVICE, "no such device");
    }
    return deliver(driver.virtual_memory.access(ptr), flags);
  });
}

CUresult cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* prop,
                                       CUmemAllocationGranularity_flags option) {
  return with_driver([&](Driver&) -> Status {
    if (granularity == nullptr || prop == nullptr) return no_result();
    if (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM &&
        option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) {
      return invalid_value("no such granularity");
    }
    *granularity = kVmmGranularity;
    return Status();
  });
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* prop,
                                                CUmemGenericAllocationHandle handle) {
  return with_driver([&](Driver& driver) -> Status {
    if (prop == nullptr) return no_result();
    return deliver(driver.virtual_memory.properties(handle), prop);
  });
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* addr) {
  return with_driver([&](Driver& driver) -> Status {
    if (handle == nullptr) return no_result();
    return deliver(driver.virtual_memory.retain_mapped(reinterpret_cast<uint64_t>(addr)), handle);
  });
}

CUresult cuMemExportToShareableHandle(void* shareableHandle, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType handleType,
                                      unsigned long long flags) {
  return with_driver([&](Driver& driver) -> Status {
    if (shareableHandle == nullptr || flags != 0) return no_result();
    if (handleType == CU_MEM_HANDLE_TYPE_NONE) return invalid_value("no kind of handle");
    if (handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
      return Status(CUDA_ERROR_NOT_SUPPORTED, "only POSIX descriptors are exported");
    }
    return deliver(driver.virtual_memory.export_descriptor(handle),
                   static_cast<int*>(shareableHandle));
  });
}

// CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED is 0: there is no kernel driver behind this memory that
// could make one.
CUresult cuMemGetHandleForAddressRange(void* handle, CUdeviceptr dptr, size_t size,
                                       CUmemRangeHandleType handleType, unsigned long long flags) {
  return with_driver([&](Driver&) -> Status {
    constexpr uint64_t kPage = 4096;
    constexpr unsigned long long kFlags = CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE;
    const bool whole = size != 0 && dptr % kPage == 0 && size % kPage == 0;
    if (handle == nullptr || handleType != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD ||
        (flags & ~kFlags) != 0 || !whole) {
      return invalid_value("a bad argument");
    }
    return Status(CUDA_ERROR_NOT_SUPPORTED, "the device has no dma-bufs");
  });
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* osHandle,
                                        CUmemAllocationHandleType shHandleType) {
  return with_driver([&](Driver& driver) -> Status {
    if (handle == nullptr) return no_result();
    if (shHandleType == CU_MEM_HANDLE_TYPE_NONE) return invalid_value("no kind of handle");
    if (shHandleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
      return Status(CUDA_ERROR_NOT_SUPPORTED, "only POSIX descriptors are imported");
    }
    // The descriptor itself, not its address, travels in the pointer.
    int descriptor = static_cast<int>(reinterpret_cast<intptr_t>(osHandle));
    return deliver(driver.virtual_memory.import_descriptor(descriptor), handle);
  });
}
