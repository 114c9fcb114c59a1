// SPDX-License-Identifier: Apache-2.0
// See shared_memory.h.
#include "client/context/shared_memory.h"

#include <cstring>
#include <optional>

#include "base/mutex.h"
#include "client/check.h"

namespace openmps::client {
namespace {

bool is_sound(const ShareHandle& handle) {
  return handle.physical_bytes != 0 && handle.physical_bytes <= wire::kMaxExtentBytes &&
         handle.physical_bytes % wire::kMemoryGranularity == 0 && handle.bytes != 0 &&
         handle.offset < handle.physical_bytes &&
         handle.bytes <= handle.physical_bytes - handle.offset;
}

}  // namespace

CUresult OpenedMemory::open(const ShareHandle& handle, CUdeviceptr* address) {
  if (!is_sound(handle)) return CUDA_ERROR_INVALID_HANDLE;
  if (handle.exporter == window_base_) return CUDA_ERROR_INVALID_CONTEXT;
  const MutexLock one_at_a_time(opening_);
  {
    const MutexLock guard(lock_);
    for (auto& [known, opened] : opened_) {
      if (memcmp(&opened.key, &handle.key, sizeof(handle.key)) != 0) continue;
      ++opened.opens;
      *address = known;
      return CUDA_SUCCESS;
    }
  }
  Opened opened{.key = handle.key, .bytes = handle.physical_bytes};
  OPENMPS_CUDA_CHECK(memory_.reserve(opened.bytes, wire::kMemoryGranularity, &opened.base));
  wire::MemoryOpen::Reply reply{};
  CUresult result = memory_.retry_after_reclaim([&] {
    return channel_.call(wire::MemoryOpen{handle.key, opened.base, opened.bytes}, &reply);
  });
  const std::optional<uint32_t> device = devices_.ordinal_of(reply.device);
  if (result == CUDA_SUCCESS && !device.has_value()) {
    result = channel_.push(
        wire::MemoryUnmap{opened.base, opened.bytes, reply.device, wire::kUnmapAtOnce});
    if (result == CUDA_SUCCESS) result = CUDA_ERROR_INVALID_DEVICE;
  }
  if (result != CUDA_SUCCESS) {
    memory_.unreserve(opened.base, opened.bytes);
    return result;
  }
  opened.wire_device = reply.device;
  const uint64_t start = opened.base + handle.offset;
  memory_.add_mapping(contexts_.primary[*device], start, handle.bytes, AllocationKind::kImported,
                      true);
  const MutexLock guard(lock_);
  opened_[start] = opened;
  *address = start;
  return CUDA_SUCCESS;
}

CUresult OpenedMemory::close(CUdeviceptr address) {
  Opened opened;
  {
    const MutexLock guard(lock_);
    const auto found = opened_.find(address);
    if (found == opened_.end()) return CUDA_ERROR_INVALID_VALUE;
    if (--found->second.opens != 0) return CUDA_SUCCESS;
    opened = found->second;
    opened_.erase(found);
  }
  memory_.remove_mapping(address);
  OPENMPS_CUDA_CHECK(streams_.synchronize(nullptr));
  OPENMPS_CUDA_CHECK(channel_.push(
      wire::MemoryUnmap{opened.base, opened.bytes, opened.wire_device, wire::kUnmapAtOnce}));
  memory_.unreserve(opened.base, opened.bytes);
  return CUDA_SUCCESS;
}

bool OpenedMemory::contains(CUdeviceptr address) {
  const MutexLock guard(lock_);
  return opened_.contains(address);
}

}  // namespace openmps::client
