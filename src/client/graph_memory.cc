// SPDX-License-Identifier: Apache-2.0
// The memory of allocation nodes. See graph_memory.h.
#include "client/graph_memory.h"

#include <algorithm>

namespace openmps::client {

GraphBlock::~GraphBlock() {
  DeviceMemory::Entry forgotten;
  if (memory.forget(entry.base, &forgotten) != CUDA_SUCCESS) return;
  memory.release_after(forgotten, FencePoint::from_bits(last_use.load(std::memory_order_acquire)));
}

CUresult GraphMemory::allocate(Context& context, uint64_t bytes,
                               std::shared_ptr<GraphBlock>* block) {
  CUdeviceptr address = 0;
  const CUresult result = memory_.allocate(context, bytes, true, &address);
  if (result != CUDA_SUCCESS) return result;
  DeviceMemory::Entry entry;
  if (!memory_.find(address, &entry)) return CUDA_ERROR_OUT_OF_MEMORY;
  *block = std::make_shared<GraphBlock>(memory_, entry);
  return CUDA_SUCCESS;
}

bool GraphMemory::open(const std::shared_ptr<GraphBlock>& block) {
  const std::lock_guard guard(lock_);
  if (!open_.emplace(block->entry.base, block).second) return false;
  used_ += block->entry.bytes;
  used_high_ = std::max(used_high_, used_);
  return true;
}

bool GraphMemory::close(CUdeviceptr address) {
  std::shared_ptr<GraphBlock> last;  // goes after the lock
  const std::lock_guard guard(lock_);
  const auto found = open_.find(address);
  if (found == open_.end()) return false;
  used_ -= found->second->entry.bytes;
  last = std::move(found->second);
  open_.erase(found);
  return true;
}

bool GraphMemory::is_open(CUdeviceptr address) const {
  const std::lock_guard guard(lock_);
  return open_.contains(address);
}

CUresult GraphMemory::attribute(CUgraphMem_attribute attribute, uint64_t* value) const {
  const std::lock_guard guard(lock_);
  switch (attribute) {
    // What is reserved for graphs is what they use: freed blocks go back to the session's memory.
    case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT: *value = used_; return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH: *value = used_high_; return CUDA_SUCCESS;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

void GraphMemory::reset_high() {
  const std::lock_guard guard(lock_);
  used_high_ = used_;
}

}  // namespace openmps::client
