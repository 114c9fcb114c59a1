// SPDX-License-Identifier: Apache-2.0
// Buffers by size, cut from chunks. See parameter_buffers.h.
#include "softgpu/device/schedule/parameter_buffers.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>

#include "softgpu/device/machine/address_space.h"
#include "softgpu/device/machine/backing.h"

namespace openmps::softgpu {
namespace {

constexpr uint64_t kSmallest = 64;           // most kernels have few parameters
constexpr uint64_t kChunkBytes = 64 * 1024;  // more than the largest parameters of a kernel

uint64_t size_of(uint64_t bytes) { return std::bit_ceil(std::max(bytes, kSmallest)); }

}  // namespace

ParameterBuffers::~ParameterBuffers() {
  for (const uint64_t chunk : chunks_) {
    MappedRange range;
    memory_->remove(chunk, &range);
    free(reinterpret_cast<void*>(chunk));
  }
}

uint64_t ParameterBuffers::take(uint64_t bytes) {
  const MutexLock lock(mutex_);
  return take_locked(bytes);
}

uint64_t ParameterBuffers::take_locked(uint64_t bytes) {
  const uint64_t size = size_of(bytes);
  if (size > kChunkBytes) return 0;
  std::vector<uint64_t>& free_places = free_[size];
  if (free_places.empty()) {
    const auto chunk = reinterpret_cast<uint64_t>(aligned_alloc(kDeviceAlignment, kChunkBytes));
    if (chunk == 0) return 0;
    MappedRange range;
    range.begin = chunk;
    range.bytes = kChunkBytes;
    range.end = chunk + kChunkBytes;
    range.kind = RangeKind::kInternal;
    range.device = device_;
    // Fresh heap memory can't overlap what is mapped.
    [[maybe_unused]] const Status inserted = memory_->insert(range);
    chunks_.push_back(chunk);
    for (uint64_t at = 0; at < kChunkBytes; at += size) free_places.push_back(chunk + at);
  }
  const uint64_t address = free_places.back();
  free_places.pop_back();
  return address;
}

void ParameterBuffers::give_back(uint64_t address, uint64_t bytes) {
  const MutexLock lock(mutex_);
  free_[size_of(bytes)].push_back(address);
}

uint64_t ParameterBuffers::text(const char* text) {
  const MutexLock lock(mutex_);
  const auto known = texts_.find(text);
  if (known != texts_.end()) return known->second;
  const size_t bytes = strlen(text) + 1;
  const uint64_t address = take_locked(bytes);
  if (address == 0) return 0;
  memcpy(reinterpret_cast<char*>(address), text, bytes);
  return texts_.emplace(text, address).first->second;
}

}  // namespace openmps::softgpu
