// SPDX-License-Identifier: Apache-2.0
// Stream-ordered allocation: every device has one pool, which is the session's device memory. An
// allocation is usable at once; a free counts when its stream has come that far. Implementations
// behind the generated entry points, on the program's threads.
#include <string.h>

#include "api/client_impl.h"
#include "client/stream.h"
#include "client/thread_state.h"

namespace openmps::client {
namespace {

CUmemoryPool pool_of(uint32_t device) {
  return reinterpret_cast<CUmemoryPool>(make_handle(HandleKind::kMemoryPool, 1, device + 1));
}

CUresult find_pool(CUmemoryPool pool, Session** session, uint32_t* device) {
  OPENMPS_CUDA_CHECK(enter(session));
  for (uint32_t i = 0; i < (*session)->device_count(); ++i) {
    if (pool != pool_of(i)) continue;
    *device = i;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult allocate(CUdeviceptr* address, size_t bytes, CUstream handle) {
  Session* session = nullptr;
  Context* context = nullptr;
  Stream* stream = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session, &context, handle, &stream));
  if (address == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // A captured allocation would belong to the graph, and live from launch to launch.
  if (stream->capture.load(std::memory_order_relaxed) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  if (bytes == 0) {
    *address = 0;
    return CUDA_SUCCESS;
  }
  return session->memory.allocate(*context, bytes, true, address);
}

}  // namespace

namespace impl {

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool_out, CUdevice dev) {
  Session* session = nullptr;
  OPENMPS_CUDA_CHECK(enter_local(&session));
  if (!session->valid_device(dev)) return CUDA_ERROR_INVALID_DEVICE;
  if (pool_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pool_out = pool_of(static_cast<uint32_t>(dev));
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice dev) {
  return impl::cuDeviceGetDefaultMemPool(pool, dev);
}

CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool) {
  Session* session = nullptr;
  uint32_t device = 0;
  OPENMPS_CUDA_CHECK(find_pool(pool, &session, &device));
  if (!session->valid_device(dev)) return CUDA_ERROR_INVALID_DEVICE;
  return static_cast<uint32_t>(dev) == device ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemAllocAsync(CUdeviceptr* dptr, size_t bytesize, CUstream hStream) {
  return allocate(dptr, bytesize, hStream);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* dptr, size_t bytesize, CUmemoryPool pool,
                                 CUstream hStream) {
  Session* session = nullptr;
  uint32_t device = 0;
  OPENMPS_CUDA_CHECK(find_pool(pool, &session, &device));
  return allocate(dptr, bytesize, hStream);
}

CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream) {
  Session* session = nullptr;
  Context* context = nullptr;
  Stream* stream = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session, &context, hStream, &stream));
  if (dptr == 0) return CUDA_SUCCESS;
  if (stream->capture.load(std::memory_order_relaxed) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  DeviceMemory::Entry entry;
  OPENMPS_CUDA_CHECK(session->memory.forget(dptr, &entry));
  FencePoint point;
  {
    const Channel::Order order = session->channel.order();
    OPENMPS_CUDA_CHECK(session->fences.cover(order, *stream, &point));
  }
  session->memory.release_after(entry, point);
  return CUDA_SUCCESS;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t) {
  Session* session = nullptr;
  uint32_t device = 0;
  OPENMPS_CUDA_CHECK(find_pool(pool, &session, &device));
  session->memory.trim();
  return CUDA_SUCCESS;
}

// The reuse policies and the release threshold are hints: how much is kept is DeviceMemory's own
// decision. What is read back are CUDA's defaults.
CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void* value) {
  Session* session = nullptr;
  uint32_t device = 0;
  OPENMPS_CUDA_CHECK(find_pool(pool, &session, &device));
  if (value == nullptr || attr < CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES ||
      attr > CU_MEMPOOL_ATTR_USED_MEM_HIGH) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void* value) {
  Session* session = nullptr;
  uint32_t device = 0;
  OPENMPS_CUDA_CHECK(find_pool(pool, &session, &device));
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const int yes = 1;
  const cuuint64_t none = 0;
  switch (attr) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      memcpy(value, &yes, sizeof(yes));
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH: memcpy(value, &none, sizeof(none)); return CUDA_SUCCESS;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace impl
}  // namespace openmps::client
