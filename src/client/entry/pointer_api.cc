// SPDX-License-Identifier: Apache-2.0
// cuPointerGetAttribute(s): answered from the maps of allocations. Implementations behind the
// generated entry points, on the program's threads.
#include <cstdint>
#include <cstring>

#include "api/client_handlers.h"
#include "client/session/enter.h"
#include "cuda/devices.h"

namespace openmps::client {
namespace {

// What is known of a pointer that lies in CUDA's memory.
struct Known {
  CUmemorytype type = CU_MEMORYTYPE_DEVICE;
  uint64_t base = 0;
  uint64_t bytes = 0;
  Context* context = nullptr;  // none: of a pool, or mapped by the program
  uint32_t device = 0;
  uint64_t buffer_id = 0;
  uint64_t device_address = 0;  // 0: no device has access
  bool managed = false;
  bool sync_memops = false;
  bool ipc = false;   // cuIpcGetMemHandle takes it
  bool rdma = false;  // other devices can reach it, through a dma-buf
  uint64_t pool = 0;  // handle
  unsigned int handle_types = CU_MEM_HANDLE_TYPE_NONE;
  unsigned int access = CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE;
};

// Memory that the program maps, also where no device has access.
bool find_mapping(Session& session, uint64_t address, Known* known) {
  VirtualMemory::Locked memory(session.virtual_memory);
  const auto* found = memory->mappings.find(address);
  if (found == nullptr) return false;
  const VirtualMapping& mapping = found->value;
  const CUmemAllocationProp& properties = mapping.memory->properties;
  known->base = found->base;
  known->bytes = found->bytes;
  known->device = mapping.memory->device;
  known->handle_types = static_cast<unsigned int>(properties.requestedHandleTypes);
  known->access = static_cast<unsigned int>(mapping.most_access());
  known->rdma = properties.allocFlags.gpuDirectRDMACapable != 0;
  return true;
}

void know_device_memory(Session& session, const DeviceMemory::Entry& entry, Known* known) {
  const Allocation& allocation = entry.value;
  known->base = entry.base;
  known->bytes = entry.bytes;
  known->device = allocation.device;
  known->buffer_id = allocation.buffer_id;
  known->sync_memops = allocation.sync_memops;
  if (allocation.kind == AllocationKind::kMapped) {
    find_mapping(session, entry.base, known);
  } else if (allocation.pool != 0) {
    known->pool = allocation.pool;
    const MemoryPool* pool = session.pools.find(allocation.pool);
    if (pool != nullptr) known->handle_types = pool->handle_types;
  } else {
    known->context = allocation.context;
    // What cuMemAlloc gives, wherever the device can.
    known->ipc = known->rdma = !allocation.async && (allocation.kind == AllocationKind::kOwn ||
                                                     allocation.kind == AllocationKind::kSlab);
  }
  known->rdma &=
      session.device(known->device).attribute[CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED] != 0;
}

bool find_pointer(Session& session, uint64_t address, Known* known) {
  DeviceMemory::Entry device;
  if (session.memory.find(address, &device)) {
    if (session.graph_memory.hides(device)) return false;
    know_device_memory(session, device, known);
    known->device_address = address;
    known->managed = session.managed.contains(address);
    return true;
  }
  PinnedHeap::Entry host;
  if (session.pinned.find(address, &host)) {
    const bool managed = (host.value.flags & kManagedBlock) != 0;
    // CUDA calls managed memory device memory.
    *known = {.type = managed ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST,
              .base = host.base,
              .bytes = host.bytes,
              .context = host.value.context,
              .device = host.value.context->device,
              .buffer_id = host.value.buffer_id,
              .device_address = address,
              .managed = managed,
              .sync_memops = host.value.sync_memops};
    return true;
  }
  HostRegistrations::Entry registered;
  if (session.registered.find(address, &registered)) {
    *known = {.type = CU_MEMORYTYPE_HOST,
              .base = registered.base,
              .bytes = registered.bytes,
              .context = registered.value.context,
              .device = registered.value.context->device,
              .buffer_id = registered.value.buffer_id,
              .device_address = session.registered.device_address(address),
              .sync_memops = registered.value.sync_memops};
    return true;
  }
  return find_mapping(session, address, known);
}

template <typename T>
CUresult put(void* data, T value) {
  memcpy(data, &value, sizeof(T));  // NOLINT(bugprone-sizeof-expression): of handles themselves
  return CUDA_SUCCESS;
}

CUresult attribute_of(const Known& known, uint64_t address, CUpointer_attribute attribute,
                      void* data) {
  const bool host = known.type == CU_MEMORYTYPE_HOST;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return put(data, known.context != nullptr ? known.context->as<CUcontext>() : nullptr);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE: return put(data, static_cast<unsigned int>(known.type));
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return known.device_address != 0 ? put(data, static_cast<CUdeviceptr>(known.device_address))
                                       : CUDA_ERROR_INVALID_VALUE;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      return host || known.managed ? put(data, reinterpret_cast<void*>(address))
                                   : CUDA_ERROR_INVALID_VALUE;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: return put(data, known.sync_memops ? 1u : 0u);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      return put(data, static_cast<unsigned long long>(known.buffer_id));
    case CU_POINTER_ATTRIBUTE_IS_MANAGED: return put(data, known.managed ? 1u : 0u);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: return put(data, static_cast<int>(known.device));
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: return put(data, known.ipc ? 1u : 0u);
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE: return put(data, 0u);
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE: return put(data, known.rdma ? 1u : 0u);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return put(data, static_cast<CUdeviceptr>(known.base));
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE: return put(data, static_cast<size_t>(known.bytes));
    case CU_POINTER_ATTRIBUTE_MAPPED: return put(data, 1u);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return put(data, static_cast<unsigned long long>(known.handle_types));
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS: return put(data, known.access);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: return put(data, known.pool);
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return put(data, static_cast<unsigned long long>(known.buffer_id));
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS: return CUDA_ERROR_NOT_SUPPORTED;  // of a kernel's driver
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace

namespace impl {

// The three need no current context: addresses are unique among all of them, and the runtime asks
// on threads that have none yet (PyTorch's pin_memory thread).
CUresult cuPointerGetAttribute(Session& session, void* data, CUpointer_attribute attribute,
                               CUdeviceptr ptr) {
  if (data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Known known{};
  if (!find_pointer(session, ptr, &known)) return CUDA_ERROR_INVALID_VALUE;
  return attribute_of(known, ptr, attribute, data);
}

CUresult cuPointerGetAttributes(Session& session, unsigned int numAttributes,
                                CUpointer_attribute* attributes, void** data, CUdeviceptr ptr) {
  if (numAttributes == 0 || attributes == nullptr || data == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (unsigned int i = 0; i < numAttributes; ++i) {
    if (attributes[i] < CU_POINTER_ATTRIBUTE_CONTEXT ||
        attributes[i] > CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  Known known{};
  const bool found = find_pointer(session, ptr, &known);
  for (unsigned int i = 0; i < numAttributes; ++i) {
    if (data[i] == nullptr) continue;
    if (!found || attribute_of(known, ptr, attributes[i], data[i]) != CUDA_SUCCESS) {
      cuda::clear_pointer_attribute(attributes[i], data[i]);
    }
  }
  return CUDA_SUCCESS;
}

// Errors: CUDA_ERROR_NOT_SUPPORTED: memory that the program maps (measured: driver 580).
CUresult cuPointerSetAttribute(Session& session, const void* value, CUpointer_attribute attribute,
                               CUdeviceptr ptr) {
  if (value == nullptr || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  OPENMPS_CUDA_CHECK(check_unsafe(session));
  if (VirtualMemory::Locked(session.virtual_memory)->mappings.find(ptr) != nullptr) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  unsigned int on = 0;
  memcpy(&on, value, sizeof(on));
  return session.memory.set_sync_memops(ptr, on != 0) ||
                 session.pinned.set_sync_memops(ptr, on != 0) ||
                 session.registered.set_sync_memops(ptr, on != 0)
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace impl
}  // namespace openmps::client
