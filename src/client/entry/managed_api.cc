// SPDX-License-Identifier: Apache-2.0
// Hints about managed memory. It is pinned host memory that every device reaches, so it never moves
// and there is nothing to take the hints for; their arguments are checked as CUDA does.
// Implementations behind the generated entry points, on the program's threads.
#include <cstring>

#include "api/client_handlers.h"
#include "client/entry/families.h"
#include "client/session/enter.h"

namespace openmps::client {
namespace {

// [address, address + bytes) lies in one managed allocation.
CUresult check_managed(const Session& session, CUdeviceptr address, size_t bytes) {
  PinnedHeap::Entry entry;
  const bool managed = bytes != 0 && session.pinned.find(address, &entry) &&
                       (entry.value.flags & kManagedBlock) != 0 &&
                       bytes <= entry.bytes - (address - entry.base);
  return managed ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult check_location(const Session& session, const CUmemLocation& location) {
  switch (location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      return session.valid_device(location.id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT: return CUDA_SUCCESS;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult check_batch(const Session& session, CUdeviceptr* dptrs, size_t* sizes, size_t count,
                     unsigned long long flags) {
  if (dptrs == nullptr || sizes == nullptr || count == 0 || flags != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (size_t i = 0; i < count; ++i) {
    OPENMPS_CUDA_CHECK(check_managed(session, dptrs[i], sizes[i]));
  }
  return CUDA_SUCCESS;
}

CUresult check_prefetches(const Session& session, const CUmemLocation* locations,
                          const size_t* indices, size_t count, size_t ranges) {
  if (locations == nullptr || indices == nullptr || count == 0 || count > ranges ||
      indices[0] != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (size_t i = 0; i < count; ++i) {
    if (indices[i] >= ranges || (i != 0 && indices[i] <= indices[i - 1])) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    OPENMPS_CUDA_CHECK(check_location(session, locations[i]));
  }
  return CUDA_SUCCESS;
}

// What memory says about which no hint was given.
CUresult range_attribute(void* data, size_t bytes, CUmem_range_attribute attribute) {
  if (data == nullptr || bytes < sizeof(int) || bytes % sizeof(int) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  int value = 0;
  switch (attribute) {
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID: break;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
      value = CU_MEM_LOCATION_TYPE_INVALID;
      break;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
    case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY:
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION: value = CU_DEVICE_INVALID; break;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  if (attribute != CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY && bytes != sizeof(int)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (size_t at = 0; at < bytes; at += sizeof(value)) {
    memcpy(static_cast<char*>(data) + at, &value, sizeof(value));
  }
  return CUDA_SUCCESS;
}

// CUDA_ERROR_INVALID_DEVICE: a place that is not there.
CUresult check_advice(const Session& session, CUdeviceptr address, size_t bytes,
                      CUmem_advise advice, const CUmemLocation& location) {
  OPENMPS_CUDA_CHECK(check_managed(session, address, bytes));
  if (advice < CU_MEM_ADVISE_SET_READ_MOSTLY || advice > CU_MEM_ADVISE_UNSET_ACCESSED_BY) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const bool placed = advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION ||
                      advice == CU_MEM_ADVISE_SET_ACCESSED_BY ||
                      advice == CU_MEM_ADVISE_UNSET_ACCESSED_BY;
  return placed ? check_location(session, location) : CUDA_SUCCESS;
}

}  // namespace

CUresult advise(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUdevice device) {
  Session* session = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session));
  return check_advice(*session, address, bytes, advice, cuda::location_of(device));
}

namespace impl {

// It has another error for that than cuMemAdvise (so has an H200).
CUresult cuMemAdvise_v2(Session& session, CUdeviceptr devPtr, size_t count, CUmem_advise advice,
                        CUmemLocation location) {
  const CUresult result = check_advice(session, devPtr, count, advice, location);
  return result == CUDA_ERROR_INVALID_DEVICE ? CUDA_ERROR_INVALID_VALUE : result;
}

CUresult cuMemPrefetchAsync_v2(Session& session, CUdeviceptr devPtr, size_t count,
                               CUmemLocation location, unsigned int flags, Stream&) {
  OPENMPS_CUDA_CHECK(check_managed(session, devPtr, count));
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return check_location(session, location);
}

CUresult cuMemPrefetchBatchAsync(Session& session, CUdeviceptr* dptrs, size_t* sizes, size_t count,
                                 CUmemLocation* prefetchLocs, size_t* prefetchLocIdxs,
                                 size_t numPrefetchLocs, unsigned long long flags, Stream&) {
  OPENMPS_CUDA_CHECK(check_batch(session, dptrs, sizes, count, flags));
  return check_prefetches(session, prefetchLocs, prefetchLocIdxs, numPrefetchLocs, count);
}

// What is discarded may read as anything, also as what it was.
CUresult cuMemDiscardBatchAsync(Session& session, CUdeviceptr* dptrs, size_t* sizes, size_t count,
                                unsigned long long flags, Stream&) {
  return check_batch(session, dptrs, sizes, count, flags);
}

CUresult cuMemRangeGetAttribute(Session& session, void* data, size_t dataSize,
                                CUmem_range_attribute attribute, CUdeviceptr devPtr, size_t count) {
  OPENMPS_CUDA_CHECK(check_managed(session, devPtr, count));
  return range_attribute(data, dataSize, attribute);
}

CUresult cuMemRangeGetAttributes(Session& session, void** data, size_t* dataSizes,
                                 CUmem_range_attribute* attributes, size_t numAttributes,
                                 CUdeviceptr devPtr, size_t count) {
  OPENMPS_CUDA_CHECK(check_managed(session, devPtr, count));
  if (data == nullptr || dataSizes == nullptr || attributes == nullptr || numAttributes == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (size_t i = 0; i < numAttributes; ++i) {
    OPENMPS_CUDA_CHECK(range_attribute(data[i], dataSizes[i], attributes[i]));
  }
  return CUDA_SUCCESS;
}

}  // namespace impl
}  // namespace openmps::client
