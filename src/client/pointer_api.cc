// SPDX-License-Identifier: Apache-2.0
// cuPointerGetAttribute(s): answered from the maps of allocations. Implementations behind the
// generated entry points, on the program's threads.
#include <stdint.h>
#include <string.h>

#include "api/client_impl.h"
#include "client/stream.h"
#include "client/thread_state.h"

namespace openmps::client {
namespace {

// What is known of a pointer that lies in CUDA's memory.
struct Known {
  CUmemorytype type;
  uint64_t base;
  uint64_t bytes;
  Context* context;
  uint64_t buffer_id = 0;
  uint64_t device_address = 0;
  bool managed = false;
};

// Other devices can reach it, through a dma-buf. cuMemAlloc gives such memory wherever it can; what
// a program maps it has asked for or not.
bool is_rdma_capable(Session& session, uint64_t address) {
  DeviceMemory::Entry entry;
  if (!session.memory.find(address, &entry)) return false;
  const int32_t* has = session.device(entry.value.device).attribute;
  if (has[CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED] == 0) return false;
  const AllocationKind kind = entry.value.kind;
  if (kind == AllocationKind::kOwn || kind == AllocationKind::kSlab) return true;
  VirtualMemory::Locked memory(session.virtual_memory);
  const VirtualMapping* mapping = memory->mapping_of(address);
  return mapping != nullptr && mapping->memory->properties.allocFlags.gpuDirectRDMACapable != 0;
}

bool find_pointer(Session& session, uint64_t address, Known* known) {
  DeviceMemory::Entry device;
  if (session.memory.find(address, &device)) {
    *known = {.type = CU_MEMORYTYPE_DEVICE,
              .base = device.base,
              .bytes = device.bytes,
              .context = device.value.context,
              .buffer_id = device.value.buffer_id,
              .device_address = address,
              .managed = session.managed.contains(address)};
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
              .buffer_id = host.value.buffer_id,
              .device_address = address,
              .managed = managed};
    return true;
  }
  HostRegistrations::Entry registered;
  if (!session.registered.find(address, &registered)) return false;
  *known = {.type = CU_MEMORYTYPE_HOST,
            .base = registered.base,
            .bytes = registered.bytes,
            .context = registered.value.context,
            .device_address = session.registered.device_address(address)};
  return true;
}

template <typename T>
CUresult put(void* data, T value) {
  memcpy(data, &value, sizeof(T));  // NOLINT(bugprone-sizeof-expression): of handles themselves
  return CUDA_SUCCESS;
}

CUresult attribute_of(Session& session, const Known& known, uint64_t address,
                      CUpointer_attribute attribute, void* data) {
  const bool host = known.type == CU_MEMORYTYPE_HOST;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT: return put(data, known.context->as<CUcontext>());
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE: return put(data, static_cast<unsigned int>(known.type));
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return put(data, static_cast<CUdeviceptr>(known.device_address));
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      return host || known.managed ? put(data, reinterpret_cast<void*>(address))
                                   : CUDA_ERROR_INVALID_VALUE;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: return put(data, 0u);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      return put(data, static_cast<unsigned long long>(known.buffer_id));
    case CU_POINTER_ATTRIBUTE_IS_MANAGED: return put(data, known.managed ? 1u : 0u);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return put(data, static_cast<int>(known.context->device));
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE: return put(data, 0u);
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
      return put(data, is_rdma_capable(session, address) ? 1u : 0u);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return put(data, static_cast<CUdeviceptr>(known.base));
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE: return put(data, static_cast<size_t>(known.bytes));
    case CU_POINTER_ATTRIBUTE_MAPPED: return put(data, 1u);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return put(data, static_cast<unsigned long long>(0));
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return put(data, static_cast<unsigned int>(CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE));
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: return put(data, static_cast<CUmemoryPool>(nullptr));
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return put(data, static_cast<unsigned long long>(known.buffer_id));
    default: return CUDA_ERROR_NOT_SUPPORTED;
  }
}

// What cuPointerGetAttributes writes for memory that CUDA does not know.
void clear_attribute(CUpointer_attribute attribute, void* data) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE: put(data, 0u); return;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      put(data, static_cast<int>(CU_DEVICE_INVALID));
      return;
    default: put(data, static_cast<uint64_t>(0));
  }
}

}  // namespace

namespace impl {

// The three need no current context: addresses are unique among all of them, and the runtime asks
// on threads that have none yet (PyTorch's pin_memory thread).
CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr ptr) {
  Session* session = nullptr;
  OPENMPS_CUDA_CHECK(enter_local(&session));
  if (data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Known known{};
  if (!find_pointer(*session, ptr, &known)) return CUDA_ERROR_INVALID_VALUE;
  return attribute_of(*session, known, ptr, attribute, data);
}

CUresult cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute* attributes,
                                void** data, CUdeviceptr ptr) {
  Session* session = nullptr;
  OPENMPS_CUDA_CHECK(enter_local(&session));
  if (attributes == nullptr || data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Known known{};
  const bool found = find_pointer(*session, ptr, &known);
  for (unsigned int i = 0; i < numAttributes; ++i) {
    if (data[i] == nullptr) continue;
    if (!found || attribute_of(*session, known, ptr, attributes[i], data[i]) != CUDA_SUCCESS) {
      clear_attribute(attributes[i], data[i]);
    }
  }
  return CUDA_SUCCESS;
}

// The one attribute that can be set asks for synchronous copies: they are ordered anyway.
CUresult cuPointerSetAttribute(const void* value, CUpointer_attribute attribute, CUdeviceptr ptr) {
  Session* session = nullptr;
  OPENMPS_CUDA_CHECK(enter_local(&session));
  Known known{};
  if (value == nullptr || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS ||
      !find_pointer(*session, ptr, &known)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

}  // namespace impl
}  // namespace openmps::client
