// SPDX-License-Identifier: Apache-2.0
// The memory of allocation nodes. See graph_memory.h.
#include "softgpu/device/memory/graph_memory.h"

#include <algorithm>

#include "softgpu/device/contexts/context.h"
#include "softgpu/device/driver.h"
#include "softgpu/device/memory/memory.h"
#include "softgpu/device/schedule/scheduler.h"

namespace openmps::softgpu {

namespace {

// Ending the range returns the charge. False: the range was freed with its context.
bool mark(AddressSpace& address_space, const GraphBlock& block, bool charged) {
  bool found = false;
  address_space.change(block.address, [&](MappedRange& range) {
    found = range.id == block.id;
    if (found) range.charged = charged;
  });
  return found;
}

}  // namespace

GraphBlock::~GraphBlock() { memory.forget(*this); }

Result<GraphBlockPtr> GraphMemory::allocate(Context& context, uint64_t bytes) {
  Result<uint64_t> address = driver_->memory.allocate_device(context, bytes, RangeKind::kGraph, 0);
  if (!address.ok()) return address.status();
  MappedRange range;
  driver_->address_space.find_mapped(*address, &range);
  auto block = std::make_shared<GraphBlock>(*this, context.execution(), range);
  const MutexLock lock(mutex_);
  blocks_.insert(block.get());
  return block;
}

void GraphMemory::forget(GraphBlock& block) {
  {
    const MutexLock lock(mutex_);
    blocks_.erase(&block);
    if (block.charged) footprints_[block.execution->device].current -= block.bytes;
  }
  auto end = std::make_shared<MarkerOperation>(block.execution);
  end->freed_address = block.address;
  driver_->scheduler.together([&](Submission& submission) REQUIRES(scheduler_mutex) {
    if (block.execution->closing) return;  // the context frees what is left in it
    submission.submit_unordered(end, {&block.last_use, 1});
  });
}

Status GraphMemory::open(std::span<const GraphBlockPtr> blocks, bool frees_itself) {
  const MutexLock lock(mutex_);
  const auto is_open = [this](const GraphBlockPtr& b)
                           REQUIRES(mutex_) { return open_.contains(b->address); };
  if (!frees_itself && std::any_of(blocks.begin(), blocks.end(), is_open)) {
    return Status(CUDA_ERROR_INVALID_VALUE, "what the last launch allocated was not freed");
  }
  for (const GraphBlockPtr& block : blocks) OPENMPS_RETURN_IF_ERROR(charge_locked(*block));
  for (const GraphBlockPtr& block : blocks) open_.emplace(block->address, block);
  return Status();
}

void GraphMemory::use(std::span<const GraphBlockPtr> blocks, const OperationPtr& operation) {
  const MutexLock lock(mutex_);
  for (const GraphBlockPtr& block : blocks) block->last_use = operation;
}

bool GraphMemory::close(uint64_t address, const OperationPtr& operation) {
  GraphBlockPtr last;  // destroyed after the lock is released
  const MutexLock lock(mutex_);
  const auto found = open_.find(address);
  if (found == open_.end()) return false;
  last = std::move(found->second);
  last->last_use = operation;
  open_.erase(found);
  return true;
}

bool GraphMemory::is_open(uint64_t address) const {
  const MutexLock lock(mutex_);
  return open_.contains(address);
}

std::shared_ptr<ExecutionContext> GraphMemory::owner_of_open(uint64_t address) const {
  const MutexLock lock(mutex_);
  const auto found = open_.find(address);
  return found == open_.end() ? nullptr : found->second->execution;
}

Status GraphMemory::charge_locked(GraphBlock& block) {
  if (block.charged) return Status();
  const int device = block.execution->device;
  DeviceSegment& segment = *driver_->devices[device].segment;
  if (!segment.reserve_memory(block.bytes).ok()) {
    trim_locked(device);
    OPENMPS_RETURN_IF_ERROR(segment.reserve_memory(block.bytes));
  }
  if (!mark(driver_->address_space, block, true)) {
    segment.return_memory(block.bytes);
    return Status(CUDA_ERROR_INVALID_VALUE, "the context of the graph's memory was destroyed");
  }
  block.charged = true;
  Footprint& footprint = footprints_[device];
  footprint.current += block.bytes;
  footprint.used_high = std::max(footprint.used_high, footprint.current);
  footprint.reserved_high = std::max(footprint.reserved_high, footprint.current);
  return Status();
}

void GraphMemory::discharge_locked(GraphBlock& block) {
  block.charged = false;
  const int device = block.execution->device;
  if (mark(driver_->address_space, block, false)) {
    driver_->devices[device].segment->return_memory(block.bytes);
  }
  footprints_[device].current -= block.bytes;
}

void GraphMemory::trim(int device) {
  const MutexLock lock(mutex_);
  trim_locked(device);
}

void GraphMemory::trim_locked(int device) {
  for (GraphBlock* block : blocks_) {
    const bool kept =
        block->execution->device == device && block->charged && !open_.contains(block->address);
    if (kept && driver_->scheduler.is_done(block->last_use)) discharge_locked(*block);
  }
}

Status GraphMemory::attribute(int device, CUgraphMem_attribute attribute, uint64_t* value) {
  const MutexLock lock(mutex_);
  const Footprint& footprint = footprints_[device];
  switch (attribute) {
    case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT: *value = footprint.current; return Status();
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH: *value = footprint.used_high; return Status();
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH: *value = footprint.reserved_high; return Status();
    default: return Status(CUDA_ERROR_INVALID_VALUE, "no such attribute");
  }
}

Status GraphMemory::reset(int device, CUgraphMem_attribute attribute) {
  const MutexLock lock(mutex_);
  Footprint& footprint = footprints_[device];
  if (attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH) {
    footprint.used_high = footprint.current;
  } else if (attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) {
    footprint.reserved_high = footprint.current;
  } else {
    return Status(CUDA_ERROR_INVALID_VALUE, "the attribute can't be set");
  }
  return Status();
}

}  // namespace openmps::softgpu
