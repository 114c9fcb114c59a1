// SPDX-License-Identifier: Apache-2.0
// The memory of allocation nodes. See graph_memory.h.
#include "client/graphs/graph_memory.h"

#include <algorithm>

#include "base/mutex.h"
#include "client/objects.h"

namespace openmps::client {

GraphBlock::~GraphBlock() { owner.forget(*this); }

CUresult GraphMemory::allocate(Context& context, uint64_t bytes,
                               std::shared_ptr<GraphBlock>* block) {
  CUdeviceptr address = 0;
  const CUresult result = memory_.allocate(context, bytes, true, &address);
  if (result != CUDA_SUCCESS) return result;
  DeviceMemory::Entry entry;
  if (!memory_.find(address, &entry)) return CUDA_ERROR_OUT_OF_MEMORY;
  *block = std::make_shared<GraphBlock>(*this, context.device, entry);
  const MutexLock guard(lock_);
  blocks_.emplace(address, block->get());
  return CUDA_SUCCESS;
}

// Hidden until it is not there: others look for the address meanwhile.
void GraphMemory::forget(const GraphBlock& block) {
  DeviceMemory::Entry forgotten;
  const bool was_there = memory_.forget(block.entry.base, &forgotten) == CUDA_SUCCESS;
  {
    const MutexLock guard(lock_);
    blocks_.erase(block.entry.base);
    if (block.launched) footprints_[block.device].current -= block.entry.bytes;
  }
  if (!was_there) return;
  memory_.release_after(forgotten,
                        FencePoint::from_bits(block.last_use.load(std::memory_order_acquire)));
}

bool GraphMemory::owns(CUdeviceptr address) const {
  const MutexLock guard(lock_);
  return blocks_.contains(address);
}

void GraphMemory::open(const std::shared_ptr<GraphBlock>& block) {
  const MutexLock guard(lock_);
  open_.emplace(block->entry.base, block);
  if (block->launched) return;
  block->launched = true;
  Footprint& footprint = footprints_[block->device];
  footprint.current += block->entry.bytes;
  footprint.used_high = std::max(footprint.used_high, footprint.current);
  footprint.reserved_high = std::max(footprint.reserved_high, footprint.current);
}

bool GraphMemory::close(CUdeviceptr address, FencePoint point) {
  std::shared_ptr<GraphBlock> last;  // goes after the lock
  const MutexLock guard(lock_);
  const auto found = open_.find(address);
  if (found == open_.end()) return false;
  last = std::move(found->second);
  last->last_use.store(point.bits(), std::memory_order_release);
  open_.erase(found);
  return true;
}

bool GraphMemory::is_open(CUdeviceptr address) const {
  const MutexLock guard(lock_);
  return open_.contains(address);
}

bool GraphMemory::hides(const DeviceMemory::Entry& entry) const {
  const bool other = !entry.value.async || entry.value.pool != 0;  // saves the lock
  if (other) return false;
  const MutexLock guard(lock_);
  return blocks_.contains(entry.base) && !open_.contains(entry.base);
}

void GraphMemory::trim(uint32_t device) {
  const MutexLock guard(lock_);
  for (const auto& [address, block] : blocks_) {
    if (block->device != device || !block->launched || open_.contains(address)) continue;
    if (!fences_.reached(FencePoint::from_bits(block->last_use.load()))) continue;
    block->launched = false;
    footprints_[device].current -= block->entry.bytes;
  }
}

CUresult GraphMemory::attribute(uint32_t device, CUgraphMem_attribute attribute, uint64_t* value) {
  const MutexLock guard(lock_);
  const Footprint& footprint = footprints_[device];
  switch (attribute) {
    case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT: *value = footprint.current; return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH: *value = footprint.used_high; return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH: *value = footprint.reserved_high; return CUDA_SUCCESS;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult GraphMemory::reset(uint32_t device, CUgraphMem_attribute attribute) {
  const MutexLock guard(lock_);
  Footprint& footprint = footprints_[device];
  switch (attribute) {
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH: footprint.used_high = footprint.current; break;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH: footprint.reserved_high = footprint.current; break;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

}  // namespace openmps::client
