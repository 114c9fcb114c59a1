// SPDX-License-Identifier: Apache-2.0
// cuMemAlloc*, cuMemFree*, pinned host memory and memory information: implementations behind the
// generated entry points, on the program's threads.
#include <algorithm>

#include "api/client_handlers.h"
#include "client/session/enter.h"
#include "wire/commands/device.h"

namespace openmps::client {
namespace {

// Every GPU so far asks rows of pitched memory to start on this.
constexpr size_t kPitchBytes = 512;

// Freeing waits for the GPU, as CUDA does, and with no lock held: a program may free what its
// queued kernels still use.
CUresult wait_for_device(Session& session) { return session.synchronize(nullptr); }

CUresult free_host(Session& session, void* start) {
  OPENMPS_CUDA_CHECK(wait_for_device(session));
  return session.pinned.release(start);
}

// Memory that CUDA allocated can't be registered.
bool is_of_cuda(const Session& session, uint64_t address) {
  return session.pinned.in_heap(address) || session.memory.contains(address, 1);
}

// `known`: of the flags.
CUresult allocate_host(void** pointer, size_t bytes, unsigned int flags, unsigned int known) {
  Session* session = nullptr;
  Context* context = nullptr;
  OPENMPS_CUDA_CHECK(enter_unsafe(&session, &context));
  if (pointer == nullptr || (flags & ~known) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (bytes == 0) {
    *pointer = nullptr;
    return CUDA_SUCCESS;
  }
  return session->pinned.allocate(context->owner(), bytes, flags, pointer);
}

}  // namespace

namespace impl {

CUresult cuMemGetInfo_v2(Session& session, Context& context, size_t* free, size_t* total) {
  wire::MemoryInfo::Reply reply{};
  OPENMPS_CUDA_CHECK(session.channel.call(wire::MemoryInfo{context.wire_device}, &reply));
  if (total != nullptr) *total = reply.total;
  if (free != nullptr) {
    *free = std::min(reply.free + session.memory.cached_bytes(context.wire_device), reply.total);
  }
  return CUDA_SUCCESS;
}

CUresult cuMemAllocPitch_v2(Session&, Context&, CUdeviceptr* dptr, size_t* pPitch,
                            size_t WidthInBytes, size_t Height, unsigned int ElementSizeBytes) {
  if (WidthInBytes == 0 || Height == 0 ||
      (ElementSizeBytes != 4 && ElementSizeBytes != 8 && ElementSizeBytes != 16)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  size_t pitch = 0;
  size_t bytes = 0;
  if (__builtin_add_overflow(WidthInBytes, kPitchBytes - 1, &pitch)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  pitch = pitch / kPitchBytes * kPitchBytes;
  if (__builtin_mul_overflow(pitch, Height, &bytes)) return CUDA_ERROR_INVALID_VALUE;
  OPENMPS_CUDA_CHECK(impl::cuMemAlloc_v2(dptr, bytes));
  *pPitch = pitch;
  return CUDA_SUCCESS;
}

CUresult cuMemFree_v2(Session& session, CUdeviceptr dptr) {
  if (dptr == 0) return CUDA_SUCCESS;
  PinnedHeap::Entry managed;
  if (session.pinned.find(dptr, &managed)) {
    const bool start = managed.base == dptr && (managed.value.flags & kManagedBlock) != 0;
    return start ? free_host(session, reinterpret_cast<void*>(dptr)) : CUDA_ERROR_INVALID_VALUE;
  }
  if (session.graph_memory.owns(dptr)) {
    OPENMPS_CUDA_CHECK(wait_for_device(session));
    return session.graph_memory.close(dptr, FencePoint()) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }
  DeviceMemory::Entry entry;
  OPENMPS_CUDA_CHECK(session.memory.forget(dptr, &entry));
  // Of stream-ordered memory the program says that it is idle (seen on an H200: it does not wait).
  if (!entry.value.async) OPENMPS_CUDA_CHECK(wait_for_device(session));
  session.memory.release(entry);
  return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange_v2(Session& session, Context&, CUdeviceptr* pbase, size_t* psize,
                                 CUdeviceptr dptr) {
  if (pbase == nullptr && psize == nullptr) return CUDA_SUCCESS;
  DeviceMemory::Entry entry;
  PinnedHeap::Entry pinned;
  if (session.memory.find(dptr, &entry)) {
    if (session.graph_memory.hides(entry)) return CUDA_ERROR_NOT_FOUND;
    if (pbase != nullptr) *pbase = entry.base;
    if (psize != nullptr) *psize = entry.bytes;
    return CUDA_SUCCESS;
  }
  if (!session.pinned.find(dptr, &pinned)) return CUDA_ERROR_NOT_FOUND;
  if (pbase != nullptr) *pbase = pinned.base;
  if (psize != nullptr) *psize = pinned.bytes;
  return CUDA_SUCCESS;
}

// ---- Pinned host memory -------------------------------------------------------------------------

CUresult cuMemHostAlloc(void** pp, size_t bytesize, unsigned int Flags) {
  constexpr unsigned int kKnown =
      CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
  return allocate_host(pp, bytesize, Flags, kKnown);
}

CUresult cuMemFreeHost(Session& session, void* p) {
  if (p == nullptr) return CUDA_SUCCESS;
  PinnedHeap::Entry entry;
  const uint64_t address = reinterpret_cast<uint64_t>(p);
  const bool start = session.pinned.find(address, &entry) && entry.base == address;
  if (!start || (entry.value.flags & kManagedBlock) != 0) return CUDA_ERROR_INVALID_VALUE;
  return free_host(session, p);
}

CUresult cuMemHostGetDevicePointer_v2(Session& session, Context&, CUdeviceptr* pdptr, void* p,
                                      unsigned int Flags) {
  if (Flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t address = reinterpret_cast<uint64_t>(p);
  PinnedHeap::Entry entry;
  if (session.pinned.find(address, &entry)) {
    *pdptr = address;  // one address for program, worker and GPU
    return CUDA_SUCCESS;
  }
  HostRegistrations::Entry registered;
  if (!session.registered.find(address, &registered)) return CUDA_ERROR_INVALID_VALUE;
  *pdptr = session.registered.device_address(address);
  return CUDA_SUCCESS;
}

CUresult cuMemHostGetFlags(Session& session, Context&, unsigned int* pFlags, void* p) {
  PinnedHeap::Entry entry;
  if (session.pinned.find(reinterpret_cast<uint64_t>(p), &entry)) {
    // With unified addressing all pinned memory is mapped.
    *pFlags = (entry.value.flags & ~kManagedBlock) | CU_MEMHOSTALLOC_DEVICEMAP;
    return CUDA_SUCCESS;
  }
  HostRegistrations::Entry registered;
  if (!session.registered.find(reinterpret_cast<uint64_t>(p), &registered)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *pFlags = registered.value.flags | CU_MEMHOSTREGISTER_DEVICEMAP;
  return CUDA_SUCCESS;
}

CUresult cuMemHostRegister_v2(Session& session, Context& context, void* p, size_t bytesize,
                              unsigned int Flags) {
  constexpr unsigned int kKnown = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                                  CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;
  if (p == nullptr || bytesize == 0 || (Flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
  const auto address = reinterpret_cast<uint64_t>(p);
  if (is_of_cuda(session, address) || session.pinned.in_heap(address + bytesize - 1)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if ((Flags & CU_MEMHOSTREGISTER_IOMEMORY) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  return session.registered.add(context.owner(), address, bytesize, Flags);
}

CUresult cuMemHostUnregister(Session& session, void* p) {
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t address = reinterpret_cast<uint64_t>(p);
  HostRegistrations::Entry registered;
  if (is_of_cuda(session, address)) return CUDA_ERROR_INVALID_VALUE;
  if (!session.registered.find(address, &registered)) {
    return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  }
  OPENMPS_CUDA_CHECK(wait_for_device(session));
  return session.registered.remove(address);
}

// A page can't fault across processes, so managed memory does not migrate: it is pinned host memory
// that the GPU reaches over the bus. Always coherent, at the bus's speed.
CUresult cuMemAllocManaged(CUdeviceptr* dptr, size_t bytesize, unsigned int flags) {
  if (dptr == nullptr || bytesize == 0 ||
      (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  void* memory = nullptr;
  OPENMPS_CUDA_CHECK(allocate_host(&memory, bytesize, kManagedBlock, kManagedBlock));
  *dptr = reinterpret_cast<CUdeviceptr>(memory);
  return CUDA_SUCCESS;
}

}  // namespace impl
}  // namespace openmps::client
