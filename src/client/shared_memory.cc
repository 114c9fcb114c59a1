// SPDX-License-Identifier: Apache-2.0
// See shared_memory.h.
#include "client/shared_memory.h"

#include <string.h>

#include "client/session.h"

namespace openmps::client {
namespace {

bool is_sound(const ShareHandle& handle) {
  return handle.physical_bytes != 0 && handle.physical_bytes <= wire::kMaxExtentBytes &&
         handle.physical_bytes % wire::kMemoryGranularity == 0 && handle.bytes != 0 &&
         handle.offset < handle.physical_bytes &&
         handle.bytes <= handle.physical_bytes - handle.offset;
}

// The context of a device of the worker; null: CUDA_VISIBLE_DEVICES hides it.
Context* context_of(Session& session, uint32_t wire_device) {
  for (uint32_t device = 0; device < session.device_count(); ++device) {
    if (session.devices[device] == wire_device) return session.primary[device];
  }
  return nullptr;
}

}  // namespace

CUresult OpenedMemory::open(Session& session, const ShareHandle& handle, CUdeviceptr* address) {
  if (!is_sound(handle)) return CUDA_ERROR_INVALID_HANDLE;
  if (handle.exporter == session.window_base) return CUDA_ERROR_INVALID_CONTEXT;
  std::lock_guard one_at_a_time(opening_);
  {
    std::lock_guard guard(lock_);
    for (auto& [known, opened] : opened_) {
      if (memcmp(&opened.key, &handle.key, sizeof(handle.key)) != 0) continue;
      ++opened.opens;
      *address = known;
      return CUDA_SUCCESS;
    }
  }
  Opened opened{.key = handle.key, .bytes = handle.physical_bytes};
  OPENMPS_CUDA_CHECK(session.memory.reserve(opened.bytes, wire::kMemoryGranularity, &opened.base));
  wire::MemoryOpen::Reply reply{};
  CUresult result = session.memory.with_room([&] {
    return session.channel.call(wire::MemoryOpen{handle.key, opened.base, opened.bytes}, &reply);
  });
  Context* context = context_of(session, reply.device);
  if (result == CUDA_SUCCESS && context == nullptr) {
    result = session.channel.push(
        wire::MemoryUnmap{opened.base, opened.bytes, reply.device, wire::kUnmapAtOnce});
    if (result == CUDA_SUCCESS) result = CUDA_ERROR_INVALID_DEVICE;
  }
  if (result != CUDA_SUCCESS) {
    session.memory.unreserve(opened.base, opened.bytes);
    return result;
  }
  opened.wire_device = reply.device;
  const uint64_t start = opened.base + handle.offset;
  session.memory.add_mapping(context, start, handle.bytes, AllocationKind::kImported, true);
  std::lock_guard guard(lock_);
  opened_[start] = opened;
  *address = start;
  return CUDA_SUCCESS;
}

CUresult OpenedMemory::close(Session& session, CUdeviceptr address) {
  Opened opened;
  {
    std::lock_guard guard(lock_);
    const auto found = opened_.find(address);
    if (found == opened_.end()) return CUDA_ERROR_INVALID_VALUE;
    if (--found->second.opens != 0) return CUDA_SUCCESS;
    opened = found->second;
    opened_.erase(found);
  }
  session.memory.remove_mapping(address);
  OPENMPS_CUDA_CHECK(synchronize(session, nullptr));
  OPENMPS_CUDA_CHECK(session.channel.push(
      wire::MemoryUnmap{opened.base, opened.bytes, opened.wire_device, wire::kUnmapAtOnce}));
  session.memory.unreserve(opened.base, opened.bytes);
  return CUDA_SUCCESS;
}

bool OpenedMemory::contains(CUdeviceptr address) {
  std::lock_guard guard(lock_);
  return opened_.contains(address);
}

}  // namespace openmps::client
