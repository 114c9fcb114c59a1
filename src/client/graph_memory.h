// SPDX-License-Identifier: Apache-2.0
// The memory of allocation nodes. CUDA fixes an allocation's address when the node is made; here
// its memory exists from then on until nobody can use it any more: the graphs and executable graphs
// with the node are gone, and the program has freed what the last launch allocated. Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "base/cuda_abi.h"
#include "client/fence.h"
#include "client/memory.h"

namespace openmps::client {

struct Context;

// One allocation node's memory; shared by the node, its clones and executable graphs.
struct GraphBlock {
  DeviceMemory& memory;
  DeviceMemory::Entry entry;
  std::atomic<uint64_t> last_use{0};  // bits of a FencePoint

  GraphBlock(DeviceMemory& owner, const DeviceMemory::Entry& mapped)
      : memory(owner), entry(mapped) {}
  ~GraphBlock();
  GraphBlock(const GraphBlock&) = delete;
  GraphBlock& operator=(const GraphBlock&) = delete;
};

class GraphMemory {
 public:
  explicit GraphMemory(DeviceMemory& memory) : memory_(memory) {}

  // Errors: those of DeviceMemory::allocate().
  [[nodiscard]] CUresult allocate(Context& context, uint64_t bytes,
                                  std::shared_ptr<GraphBlock>* block);
  // A launch allocates the block: it stays until it is freed. False: it was not freed since the
  // last launch.
  [[nodiscard]] bool open(const std::shared_ptr<GraphBlock>& block);
  // A free node, or a free of the program's. False: `address` is no such allocation, or is free.
  bool close(CUdeviceptr address);
  [[nodiscard]] bool is_open(CUdeviceptr address) const;

  // cuDeviceGetGraphMemAttribute in bytes, over all devices. Errors: CUDA_ERROR_INVALID_VALUE.
  [[nodiscard]] CUresult attribute(CUgraphMem_attribute attribute, uint64_t* value) const;
  // The high-water marks start again.
  void reset_high();

 private:
  DeviceMemory& memory_;
  mutable std::mutex lock_;
  std::map<CUdeviceptr, std::shared_ptr<GraphBlock>> open_;
  uint64_t used_ = 0;  // bytes of what is open
  uint64_t used_high_ = 0;
};

}  // namespace openmps::client
