// SPDX-License-Identifier: Apache-2.0
// The memory of allocation nodes. CUDA fixes an allocation's address when the node is made; here
// its memory exists from then on until it can't be used any more: the graph and its executable
// graph are gone, and the program has freed what the last launch allocated. What CUDA tells of such
// memory begins with the first launch. Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>

#include "base/mutex.h"
#include "client/link/fence.h"
#include "client/memory/memory.h"
#include "cuda/abi.h"

namespace openmps::client {

struct Context;
class GraphMemory;

// One allocation node's memory; shared by the node and the executable graph.
struct GraphBlock {
  GraphMemory& owner;
  const uint32_t device;
  const DeviceMemory::Entry entry;
  std::atomic<uint64_t> last_use{0};  // bits of a FencePoint
  bool launched = false;              // and not trimmed since; guarded by the owner's lock

  GraphBlock(GraphMemory& memory, uint32_t on, const DeviceMemory::Entry& mapped)
      : owner(memory), device(on), entry(mapped) {}
  ~GraphBlock();
  GraphBlock(const GraphBlock&) = delete;
  GraphBlock& operator=(const GraphBlock&) = delete;
};

class GraphMemory {
 public:
  GraphMemory(DeviceMemory& memory, Fences& fences) : memory_(memory), fences_(fences) {}

  // Errors: those of DeviceMemory::allocate().
  [[nodiscard]] CUresult allocate(Context& context, uint64_t bytes,
                                  std::shared_ptr<GraphBlock>* block);
  // `address` is that of an allocation node that lives.
  [[nodiscard]] bool owns(CUdeviceptr address) const;
  // A launch allocates the block, which lives until it is freed.
  void open(const std::shared_ptr<GraphBlock>& block);
  // A free node, or a free of the program's; all uses of the block have ended at `point`. False:
  // `address` is no such allocation, or is free.
  bool close(CUdeviceptr address, FencePoint point);
  [[nodiscard]] bool is_open(CUdeviceptr address) const;
  // To the program its memory is there from a launch to the free, no sooner and no longer (measured
  // on an H200: cuPointerGetAttribute, cuMemGetAddressRange).
  [[nodiscard]] bool hides(const DeviceMemory::Entry& entry) const;

  // What is free and not in use does not count any more.
  void trim(uint32_t device);
  // cuDeviceGetGraphMemAttribute in bytes. Errors: CUDA_ERROR_INVALID_VALUE.
  [[nodiscard]] CUresult attribute(uint32_t device, CUgraphMem_attribute attribute,
                                   uint64_t* value);
  // A high-water mark starts again. Errors: CUDA_ERROR_INVALID_VALUE: not one of those.
  [[nodiscard]] CUresult reset(uint32_t device, CUgraphMem_attribute attribute);

 private:
  friend struct GraphBlock;
  // Bytes of the blocks that were launched and not trimmed. What is reserved for graphs is what
  // they use: blocks share nothing.
  struct Footprint {
    uint64_t current = 0;
    uint64_t used_high = 0;
    uint64_t reserved_high = 0;
  };
  void forget(const GraphBlock& block);

  DeviceMemory& memory_;
  Fences& fences_;
  mutable Mutex lock_{LockRank::kClientGraphMemory};
  std::map<CUdeviceptr, GraphBlock*> blocks_ GUARDED_BY(lock_);  // all that live
  std::map<CUdeviceptr, std::shared_ptr<GraphBlock>> open_ GUARDED_BY(lock_);
  std::map<uint32_t, Footprint> footprints_ GUARDED_BY(lock_);  // by device
};

}  // namespace openmps::client
