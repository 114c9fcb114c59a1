// SPDX-License-Identifier: Apache-2.0
// Allocation, registration, pointer facts. Any thread.
#include <algorithm>
#include <cstring>

#include "cuda/devices.h"
#include "softgpu/device/graphs/capture.h"
#include "softgpu/device/memory/graph_memory.h"
#include "softgpu/device/memory/memory.h"
#include "softgpu/device/memory/vmm.h"
#include "softgpu/front/families.h"

using namespace openmps;           // NOLINT: entry points live outside the namespace
using namespace openmps::softgpu;  // NOLINT: entry points live outside the namespace

namespace {

// Rows of cuMemAllocPitch start at multiples of this: the alignment of allocations.
constexpr size_t kPitchUnit = kDeviceAlignment;

uint64_t as_address(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

// Memory that the program may ask about. That of an allocation node is there from a launch to the
// free, no sooner and no longer (measured on an H200).
bool find_for_program(Driver& driver, uint64_t address, MappedRange* range) {
  return driver.address_space.find_mapped(address, range) &&
         (range->kind != RangeKind::kGraph || driver.graph_memory.is_open(range->begin));
}

Status allocate(Caller& caller, CUdeviceptr* out, size_t bytes, RangeKind kind, unsigned flags) {
  if (out == nullptr) return no_result();
  OPENMPS_RETURN_IF_ERROR(caller.driver.captures.check_unsafe_call());
  return deliver(caller.driver.memory.allocate_device(*caller.context, bytes, kind, flags), out);
}
CUresult allocate(CUdeviceptr* out, size_t bytes, RangeKind kind, unsigned flags) {
  return with_context([&](Caller& caller) { return allocate(caller, out, bytes, kind, flags); });
}

CUresult allocate_host(void** out, size_t bytes, unsigned flags) {
  return with_context([&](Caller& caller) -> Status {
    if (out == nullptr) return no_result();
    constexpr unsigned kKnown =
        CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
    if ((flags & ~kKnown) != 0) return invalid_value("unknown flags");
    OPENMPS_RETURN_IF_ERROR(caller.driver.captures.check_unsafe_call());
    if (bytes == 0) {
      *out = nullptr;
      return Status();
    }
    Result<uint64_t> address = caller.driver.memory.allocate_host(*caller.context, bytes, flags);
    if (!address.ok()) return address.status();
    *out = reinterpret_cast<void*>(*address);
    return Status();
  });
}

bool is_host(const MappedRange& range) {
  return range.kind == RangeKind::kHostAllocated || range.kind == RangeKind::kHostRegistered;
}

template <typename T>
Status store(void* data, T value) {
  memcpy(data, &value, sizeof(T));  // NOLINT(bugprone-sizeof-expression): of handles themselves
  return Status();
}

// The context that owns a range; a mapping belongs to the context that asks.
CUcontext owner_of(Driver& driver, const MappedRange& range) {
  auto found = driver.contexts.find_if([&](const Context& c) { return &c == range.owner; });
  if (!found.empty()) return found.front()->handle();
  return driver.devices[range.device].primary->handle();
}

// Also a managed variable, of a module or of a library.
bool is_managed(const MappedRange& range) {
  return range.kind == RangeKind::kManaged ||
         (range.kind == RangeKind::kModuleGlobal && range.flags == CU_MEM_ATTACH_GLOBAL);
}

Status pointer_attribute(Driver& driver, CUpointer_attribute attribute, const MappedRange& range,
                         uint64_t address, void* data) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT: {
      const bool of_none = range.kind == RangeKind::kMapped || range.kind == RangeKind::kGraph ||
                           range.pool != nullptr;
      return store(data, of_none ? nullptr : owner_of(driver, range));
    }
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return store<unsigned>(data, is_host(range) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: return store<CUdeviceptr>(data, address);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (!is_host(range) && !is_managed(range)) {
        return invalid_value("device memory has no host pointer");
      }
      return store(data, reinterpret_cast<void*>(address));
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: return store<unsigned>(data, range.sync_memops);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE: return store<unsigned>(data, 0);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID: return store<unsigned long long>(data, range.id);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED: return store<unsigned>(data, is_managed(range));
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: return store<int>(data, range.device);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR: return store<CUdeviceptr>(data, range.begin);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE: return store<size_t>(data, range.bytes);
    case CU_POINTER_ATTRIBUTE_MAPPED: return store<unsigned>(data, 1);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return store<unsigned long long>(
          data, range.kind == RangeKind::kMapped ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : 0);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return store<unsigned>(data, range.writable ? CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE
                                                  : CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READ);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: return store(data, range.pool);
    default: return invalid_value("no such pointer attribute");
  }
}

// The memory of one managed allocation.
Status check_managed(Driver& driver, CUdeviceptr address, size_t bytes) {
  MappedRange range;
  if (bytes == 0 || !driver.address_space.find_mapped(address, &range) || !is_managed(range) ||
      bytes > range.end - address) {
    return invalid_value("not managed memory");
  }
  return Status();
}

bool is_place(Driver& driver, const CUmemLocation& location) {
  if (location.type == CU_MEM_LOCATION_TYPE_DEVICE) return driver.device(location.id) != nullptr;
  return location.type == CU_MEM_LOCATION_TYPE_HOST ||
         location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
         location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
}

// `no_place`: the error of a place that is not there.
CUresult check_advice(CUdeviceptr address, size_t bytes, CUmem_advise advice,
                      const CUmemLocation& location, CUresult no_place) {
  return with_context([&](Caller& caller) -> Status {
    OPENMPS_RETURN_IF_ERROR(check_managed(caller.driver, address, bytes));
    if (advice < CU_MEM_ADVISE_SET_READ_MOSTLY || advice > CU_MEM_ADVISE_UNSET_ACCESSED_BY) {
      return invalid_value("no such advice");
    }
    const bool somewhere = advice >= CU_MEM_ADVISE_SET_PREFERRED_LOCATION &&
                           advice != CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION;
    return somewhere && !is_place(caller.driver, location) ? Status(no_place, "no such place")
                                                           : Status();
  });
}

}  // namespace

CUresult openmps::softgpu::advise(CUdeviceptr address, size_t bytes, CUmem_advise advice,
                                  CUdevice device) {
  return check_advice(address, bytes, advice, cuda::location_of(device), CUDA_ERROR_INVALID_DEVICE);
}

CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  return with_context([&](Caller& caller) -> Status {
    uint64_t free_bytes = 0;
    uint64_t total_bytes = 0;
    caller.context->device().segment->memory_info(&free_bytes, &total_bytes);
    if (free != nullptr) *free = free_bytes;
    if (total != nullptr) *total = total_bytes;
    return Status();
  });
}

CUresult cuMemAlloc_v2(CUdeviceptr* dptr, size_t bytesize) {
  return allocate(dptr, bytesize, RangeKind::kDevice, 0);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr* dptr, size_t* pPitch, size_t WidthInBytes, size_t Height,
                            unsigned int ElementSizeBytes) {
  if (dptr == nullptr || pPitch == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return with_context([&](Caller& caller) -> Status {
    if (WidthInBytes == 0 || Height == 0 ||
        (ElementSizeBytes != 4 && ElementSizeBytes != 8 && ElementSizeBytes != 16)) {
      return invalid_value("an empty allocation, or elements of no such size");
    }
    const size_t pitch = (WidthInBytes + kPitchUnit - 1) / kPitchUnit * kPitchUnit;
    size_t bytes = 0;
    if (pitch < WidthInBytes || __builtin_mul_overflow(pitch, Height, &bytes)) {
      return invalid_value("more rows than there are addresses");
    }
    OPENMPS_RETURN_IF_ERROR(allocate(caller, dptr, bytes, RangeKind::kDevice, 0));
    *pPitch = pitch;
    return Status();
  });
}

CUresult cuMemAllocManaged(CUdeviceptr* dptr, size_t bytesize, unsigned int flags) {
  unsigned where = flags & (CU_MEM_ATTACH_GLOBAL | CU_MEM_ATTACH_HOST);
  if (where != flags || (where != CU_MEM_ATTACH_GLOBAL && where != CU_MEM_ATTACH_HOST)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return allocate(dptr, bytesize, RangeKind::kManaged, flags);
}

CUresult cuMemFree_v2(CUdeviceptr dptr) {
  return with_any_context([&](Caller& caller) -> Status {
    OPENMPS_RETURN_IF_ERROR(caller.driver.captures.check_unsafe_call());
    if (dptr == 0) return Status();
    GraphMemory& graphs = caller.driver.graph_memory;
    if (const std::shared_ptr<ExecutionContext> owner = graphs.owner_of_open(dptr)) {
      caller.driver.scheduler.wait_idle(*owner);
      if (!graphs.close(dptr, nullptr)) return invalid_value("it was freed already");
    } else {
      OPENMPS_RETURN_IF_ERROR(caller.driver.memory.free_device(dptr));
    }
    if (caller.execution == nullptr) return Status();
    caller.execution->flush_output();
    return sticky_error(*caller.execution);
  });
}

CUresult cuMemHostAlloc(void** pp, size_t bytesize, unsigned int Flags) {
  return allocate_host(pp, bytesize, Flags);
}

CUresult cuMemFreeHost(void* p) {
  return with_any_context([&](Caller& caller) -> Status {
    OPENMPS_RETURN_IF_ERROR(caller.driver.captures.check_unsafe_call());
    if (p == nullptr) return Status();
    return caller.driver.memory.free_host(as_address(p));
  });
}

CUresult cuMemHostRegister_v2(void* p, size_t bytesize, unsigned int Flags) {
  return with_context([&](Caller& caller) -> Status {
    constexpr unsigned kKnown = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                                CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;
    if ((Flags & ~kKnown) != 0) return invalid_value("unknown flags");
    OPENMPS_RETURN_IF_ERROR(caller.driver.captures.check_unsafe_call());
    return caller.driver.memory.register_host(*caller.context, as_address(p), bytesize, Flags);
  });
}

CUresult cuMemHostUnregister(void* p) {
  return with_any_context([&](Caller& caller) -> Status {
    OPENMPS_RETURN_IF_ERROR(caller.driver.captures.check_unsafe_call());
    return caller.driver.memory.unregister_host(as_address(p));
  });
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* pdptr, void* p, unsigned int Flags) {
  return with_context([&](Caller& caller) -> Status {
    if (pdptr == nullptr || Flags != 0) return no_result();
    MappedRange range;
    if (!caller.driver.address_space.find_mapped(as_address(p), &range) || !is_host(range)) {
      return invalid_value("not pinned host memory");
    }
    *pdptr = as_address(p);
    return Status();
  });
}

CUresult cuMemHostGetFlags(unsigned int* pFlags, void* p) {
  return with_context([&](Caller& caller) -> Status {
    if (pFlags == nullptr) return no_result();
    MappedRange range;
    if (!caller.driver.address_space.find_mapped(as_address(p), &range) || !is_host(range)) {
      return invalid_value("not pinned host memory");
    }
    // Under unified addressing every pinned allocation is mapped.
    *pFlags = range.flags | CU_MEMHOSTALLOC_DEVICEMAP;
    return Status();
  });
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr* pbase, size_t* psize, CUdeviceptr dptr) {
  return with_context([&](Caller& caller) -> Status {
    if (pbase == nullptr && psize == nullptr) return Status();
    MappedRange range;
    if (!find_for_program(caller.driver, dptr, &range)) {
      return Status(CUDA_ERROR_NOT_FOUND, "not inside an allocation");
    }
    if (pbase != nullptr) *pbase = range.begin;
    if (psize != nullptr) *psize = range.bytes;
    return Status();
  });
}

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr ptr) {
  return with_driver([&](Driver& driver) -> Status {
    if (data == nullptr) return no_result();
    uint64_t begin = 0;
    uint64_t bytes = 0;
    MappedRange range;
    if (find_for_program(driver, ptr, &range)) {
      return pointer_attribute(driver, attribute, range, ptr, data);
    }
    bool reserved = driver.virtual_memory.reservation_of(ptr, &begin, &bytes);
    if (reserved && attribute == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR) return store(data, begin);
    if (reserved && attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE) return store(data, bytes);
    if (reserved && attribute == CU_POINTER_ATTRIBUTE_MAPPED) return store<unsigned>(data, 0);
    return invalid_value("not a pointer that softgpu knows");
  });
}

CUresult cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute* attributes,
                                void** data, CUdeviceptr ptr) {
  return with_driver([&](Driver& driver) -> Status {
    if (numAttributes == 0 || attributes == nullptr || data == nullptr) {
      return invalid_value("a null argument");
    }
    MappedRange range;
    bool ours = find_for_program(driver, ptr, &range);
    for (unsigned i = 0; i < numAttributes; ++i) {
      if (data[i] == nullptr) return no_result();
      if (attributes[i] < CU_POINTER_ATTRIBUTE_CONTEXT ||
          attributes[i] > CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE) {
        return invalid_value("no such attribute");
      }
      // Answers of attributes that do not apply are zero, never an error.
      if (!ours || !pointer_attribute(driver, attributes[i], range, ptr, data[i]).ok()) {
        cuda::clear_pointer_attribute(attributes[i], data[i]);
      }
    }
    return Status();
  });
}

CUresult cuPointerSetAttribute(const void* value, CUpointer_attribute attribute, CUdeviceptr ptr) {
  return with_driver([&](Driver& driver) -> Status {
    MappedRange range;
    if (value == nullptr || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS ||
        !find_for_program(driver, ptr, &range)) {
      return invalid_value("no pointer attribute that can be set");
    }
    if (range.kind == RangeKind::kMapped) {
      return Status(CUDA_ERROR_NOT_SUPPORTED, "memory that the program maps has no such attribute");
    }
    OPENMPS_RETURN_IF_ERROR(driver.captures.check_unsafe_call());
    unsigned on = 0;
    memcpy(&on, value, sizeof(on));
    driver.address_space.change(ptr, [&](MappedRange& found) { found.sync_memops = on != 0; });
    return Status();
  });
}

// All processors always reach managed memory directly: hints have nothing to do.

CUresult cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise advice,
                        CUmemLocation location) {
  return check_advice(devPtr, count, advice, location, CUDA_ERROR_INVALID_VALUE);
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr devPtr, size_t count, CUmemLocation location,
                               unsigned int flags, CUstream hStream) {
  return with_stream(hStream, [&](Caller& caller, Stream& stream) -> Status {
    OPENMPS_RETURN_IF_ERROR(caller.driver.captures.refuse(stream));
    if (flags != 0) return invalid_value("the flags must be 0");
    OPENMPS_RETURN_IF_ERROR(check_managed(caller.driver, devPtr, count));
    if (location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
        caller.driver.device(location.id) == nullptr) {
      return Status(CUDA_ERROR_INVALID_DEVICE, "no such device");
    }
    return is_place(caller.driver, location) ? Status() : invalid_value("no such place");
  });
}

CUresult cuStreamAttachMemAsync(CUstream hStream, CUdeviceptr dptr, size_t length,
                                unsigned int flags) {
  return with_stream(hStream, [&](Caller& caller, Stream& stream) -> Status {
    OPENMPS_RETURN_IF_ERROR(caller.driver.captures.refuse(stream));
    MappedRange range;
    if (!caller.driver.address_space.find_mapped(dptr, &range) || !is_managed(range)) {
      return invalid_value("not managed memory");
    }
    if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST &&
        flags != CU_MEM_ATTACH_SINGLE) {
      return invalid_value("not one kind of attachment");
    }
    if (flags == CU_MEM_ATTACH_SINGLE && stream.is_default()) {
      return invalid_value("attached to no stream in particular");
    }
    if (length != 0 && (dptr != range.begin || length != range.bytes)) {
      return invalid_value("not a whole allocation");
    }
    return Status();
  });
}

CUresult cuMemRangeGetAttribute(void* data, size_t dataSize, CUmem_range_attribute attribute,
                                CUdeviceptr devPtr, size_t count) {
  return with_driver([&](Driver& driver) -> Status {
    if (data == nullptr || dataSize < sizeof(int) || count == 0 ||
        driver.address_space.coverage(devPtr, count, false) != AddressSpace::Coverage::kInside) {
      return invalid_value("not managed memory, or no place for the result");
    }
    if (attribute < CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY ||
        attribute > CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID) {
      return invalid_value("no such attribute");
    }
    OPENMPS_RETURN_IF_ERROR(check_managed(driver, devPtr, count));
    bool location = attribute == CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION ||
                    attribute == CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION;
    memset(data, 0, dataSize);
    return location ? store<int>(data, CU_DEVICE_INVALID) : Status();
  });
}
