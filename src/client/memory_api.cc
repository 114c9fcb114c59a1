// SPDX-License-Identifier: Apache-2.0
// cuMemAlloc*, cuMemFree*, pinned host memory and memory information: implementations behind the
// generated entry points, on the program's threads.
#include <algorithm>

#include "api/client_impl.h"
#include "client/stream.h"
#include "client/thread_state.h"

namespace openmps::client {
namespace {

// Every GPU so far asks rows of pitched memory to start on this.
constexpr size_t kPitchBytes = 512;

// Freeing waits for the GPU, as CUDA does: a program may free what its queued kernels still use.
CUresult wait_for_device(Session& session) { return synchronize(session, nullptr); }

CUresult allocate_host(void** pointer, size_t bytes, unsigned int flags) {
  constexpr unsigned int kKnown = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP |
                                  CU_MEMHOSTALLOC_WRITECOMBINED;
  Session* session = nullptr;
  Context* context = nullptr;
  OPENMPS_CUDA_CHECK(enter_unsafe(&session, &context));
  if (pointer == nullptr || bytes == 0 || (flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
  return session->pinned.allocate(context, bytes, flags, pointer);
}

}  // namespace

namespace impl {

CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  Session* session = nullptr;
  Context* context = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session, &context));
  if (free == nullptr || total == nullptr) return CUDA_ERROR_INVALID_VALUE;
  wire::MemoryInfoReply reply{};
  OPENMPS_CUDA_CHECK(session->channel.call(wire::Opcode::kMemoryInfo,
                                           wire::DeviceOnly{context->wire_device, 0}, {}, &reply,
                                           sizeof(reply)));
  *total = reply.total;
  *free = std::min(reply.free + session->memory.cached_bytes(context->wire_device), reply.total);
  return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr* dptr, size_t bytesize) {
  Session* session = nullptr;
  Context* context = nullptr;
  OPENMPS_CUDA_CHECK(enter_unsafe(&session, &context));
  if (dptr == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return session->memory.allocate(*context, bytesize, false, dptr);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr* dptr, size_t* pPitch, size_t WidthInBytes, size_t Height,
                            unsigned int ElementSizeBytes) {
  if (dptr == nullptr || pPitch == nullptr || WidthInBytes == 0 || Height == 0 ||
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
  OPENMPS_CUDA_CHECK(cuMemAlloc_v2(dptr, bytes));
  *pPitch = pitch;
  return CUDA_SUCCESS;
}

CUresult cuMemFree_v2(CUdeviceptr dptr) {
  Session* session = nullptr;
  Context* context = nullptr;
  OPENMPS_CUDA_CHECK(enter_unsafe(&session, &context));
  if (dptr == 0) return CUDA_SUCCESS;
  DeviceMemory::Entry entry;
  OPENMPS_CUDA_CHECK(session->memory.forget(dptr, &entry));
  OPENMPS_CUDA_CHECK(wait_for_device(*session));
  session->memory.release(entry);
  return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr* pbase, size_t* psize, CUdeviceptr dptr) {
  Session* session = nullptr;
  Context* context = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session, &context));
  DeviceMemory::Entry entry;
  PinnedHeap::Entry pinned;
  if (session->memory.find(dptr, &entry)) {
    if (pbase != nullptr) *pbase = entry.base;
    if (psize != nullptr) *psize = entry.bytes;
    return CUDA_SUCCESS;
  }
  if (!session->pinned.find(dptr, &pinned)) return CUDA_ERROR_NOT_FOUND;
  if (pbase != nullptr) *pbase = pinned.base;
  if (psize != nullptr) *psize = pinned.bytes;
  return CUDA_SUCCESS;
}

// ---- Pinned host memory -------------------------------------------------------------------------

CUresult cuMemAllocHost_v2(void** pp, size_t bytesize) { return allocate_host(pp, bytesize, 0); }

CUresult cuMemHostAlloc(void** pp, size_t bytesize, unsigned int Flags) {
  return allocate_host(pp, bytesize, Flags);
}

CUresult cuMemFreeHost(void* p) {
  Session* session = nullptr;
  Context* context = nullptr;
  OPENMPS_CUDA_CHECK(enter_unsafe(&session, &context));
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  PinnedHeap::Entry entry;
  const uint64_t address = reinterpret_cast<uint64_t>(p);
  if (!session->pinned.find(address, &entry) || entry.base != address) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  OPENMPS_CUDA_CHECK(wait_for_device(*session));
  return session->pinned.release(p);
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* pdptr, void* p, unsigned int Flags) {
  Session* session = nullptr;
  Context* context = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session, &context));
  if (pdptr == nullptr || Flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t address = reinterpret_cast<uint64_t>(p);
  PinnedHeap::Entry entry;
  if (session->pinned.find(address, &entry)) {
    *pdptr = address;  // one address for program, worker and GPU
    return CUDA_SUCCESS;
  }
  std::lock_guard guard(session->registered_lock);
  return session->registered.find(address) != nullptr ? CUDA_ERROR_NOT_SUPPORTED
                                                      : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemHostGetFlags(unsigned int* pFlags, void* p) {
  Session* session = nullptr;
  Context* context = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session, &context));
  if (pFlags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  PinnedHeap::Entry entry;
  if (session->pinned.find(reinterpret_cast<uint64_t>(p), &entry)) {
    // With unified addressing all pinned memory is mapped.
    *pFlags = entry.value.flags | CU_MEMHOSTALLOC_DEVICEMAP;
    return CUDA_SUCCESS;
  }
  std::lock_guard guard(session->registered_lock);
  const auto* registered = session->registered.find(reinterpret_cast<uint64_t>(p));
  if (registered == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pFlags = registered->value.flags;
  return CUDA_SUCCESS;
}

// Accepted, and remembered for the checks, but the pages stay the program's own: another process
// can't map them after the fact, so copies are staged as from pageable memory, and there is no
// device pointer (CUDA_ERROR_NOT_SUPPORTED above; docs/limits.md).
CUresult cuMemHostRegister_v2(void* p, size_t bytesize, unsigned int Flags) {
  constexpr unsigned int kKnown = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                                  CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;
  Session* session = nullptr;
  Context* context = nullptr;
  OPENMPS_CUDA_CHECK(enter_unsafe(&session, &context));
  if (p == nullptr || bytesize == 0 || (Flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
  if ((Flags & CU_MEMHOSTREGISTER_IOMEMORY) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  const uint64_t address = reinterpret_cast<uint64_t>(p);
  if (session->pinned.in_heap(address)) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  std::lock_guard guard(session->registered_lock);
  return session->registered.insert(address, bytesize, RegisteredHost{Flags, context})
             ? CUDA_SUCCESS
             : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
}

CUresult cuMemHostUnregister(void* p) {
  Session* session = nullptr;
  Context* context = nullptr;
  OPENMPS_CUDA_CHECK(enter_unsafe(&session, &context));
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard guard(session->registered_lock);
  return session->registered.erase(reinterpret_cast<uint64_t>(p))
             ? CUDA_SUCCESS
             : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

// A page can't fault across processes, so memory that migrates between host and device can't be
// had here; CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY says so.
CUresult cuMemAllocManaged(CUdeviceptr*, size_t, unsigned int) { return CUDA_ERROR_NOT_SUPPORTED; }

CUresult cuMemAdvise(CUdeviceptr, size_t, CUmem_advise, CUdevice) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult cuMemAdvise_v2(CUdeviceptr, size_t, CUmem_advise, CUmemLocation) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult cuMemPrefetchAsync(CUdeviceptr, size_t, CUdevice, CUstream) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult cuMemPrefetchAsync_v2(CUdeviceptr, size_t, CUmemLocation, unsigned int, CUstream) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult cuMemRangeGetAttribute(void*, size_t, CUmem_range_attribute, CUdeviceptr, size_t) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult cuMemRangeGetAttributes(void**, size_t*, CUmem_range_attribute*, size_t, CUdeviceptr,
                                 size_t) {
  return CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace impl
}  // namespace openmps::client
