// SPDX-License-Identifier: Apache-2.0
// The memory of allocation nodes. An address is fixed when the node is made, for the life of the
// graph; the device is charged for the memory from the first launch until it is trimmed or freed.
// API threads.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>

#include "base/mutex.h"
#include "cuda/status.h"
#include "softgpu/device/machine/address_space.h"
#include "softgpu/device/schedule/operation.h"

namespace openmps::softgpu {

class Context;
class Driver;
class GraphMemory;

// One allocation node's memory. The node, the executable graph and, between a launch and the free,
// the program hold it. Operations that are queued when the last of them releases it can still use
// it.
struct GraphBlock {
  GraphBlock(GraphMemory& owner, std::shared_ptr<ExecutionContext> context,
             const MappedRange& range)
      : memory(owner),
        execution(std::move(context)),
        address(range.begin),
        bytes(range.end - range.begin),
        id(range.id) {}
  ~GraphBlock();
  GraphBlock(const GraphBlock&) = delete;
  GraphBlock& operator=(const GraphBlock&) = delete;

  GraphMemory& memory;
  const std::shared_ptr<ExecutionContext> execution;
  const uint64_t address;
  const uint64_t bytes;  // as charged
  const uint64_t id;     // of its range

  // Guarded by the GraphMemory's mutex.
  bool charged = false;
  OperationPtr last_use;
};
using GraphBlockPtr = std::shared_ptr<GraphBlock>;

class GraphMemory {
 public:
  explicit GraphMemory(Driver* driver) : driver_(driver) {}

  // Errors: CUDA_ERROR_INVALID_VALUE: no bytes. CUDA_ERROR_OUT_OF_MEMORY: of the host.
  Result<GraphBlockPtr> allocate(Context& context, uint64_t bytes);

  // A launch allocates them. CUDA_ERROR_INVALID_VALUE: one was not freed since the last launch,
  // which only a graph that `frees_itself` may do, or went with its context.
  // CUDA_ERROR_OUT_OF_MEMORY: of the device.
  Status open(std::span<const GraphBlockPtr> blocks, bool frees_itself);
  // The memory is in use until `operation` has ended.
  void use(std::span<const GraphBlockPtr> blocks, const OperationPtr& operation);
  // A free node, or a free by the program, which takes effect behind `operation`. False:
  // `address` is no allocation of a graph, or was freed already.
  bool close(uint64_t address, const OperationPtr& operation);
  [[nodiscard]] bool is_open(uint64_t address) const;
  // The context of the open allocation at `address`; null: there is none.
  [[nodiscard]] std::shared_ptr<ExecutionContext> owner_of_open(uint64_t address) const;

  // Memory that the program has freed and nothing uses is not charged any more.
  void trim(int device);
  // Bytes. CUDA_ERROR_INVALID_VALUE: no such attribute.
  Status attribute(int device, CUgraphMem_attribute attribute, uint64_t* value);
  // A high-water mark starts again. CUDA_ERROR_INVALID_VALUE: not one of those.
  Status reset(int device, CUgraphMem_attribute attribute);

 private:
  friend struct GraphBlock;
  // Reserved memory equals used memory: blocks of several nodes never overlap here.
  struct Footprint {
    uint64_t current = 0;
    uint64_t used_high = 0;
    uint64_t reserved_high = 0;
  };

  void forget(GraphBlock& block);
  Status charge_locked(GraphBlock& block) REQUIRES(mutex_);
  void discharge_locked(GraphBlock& block) REQUIRES(mutex_);
  void trim_locked(int device) REQUIRES(mutex_);

  Driver* driver_;
  mutable Mutex mutex_{LockRank::kSoftGraphMemory};
  std::set<GraphBlock*> blocks_ GUARDED_BY(mutex_);            // all that live
  std::map<uint64_t, GraphBlockPtr> open_ GUARDED_BY(mutex_);  // launched and not freed, by address
  std::map<int, Footprint> footprints_ GUARDED_BY(mutex_);     // by device
};

}  // namespace openmps::softgpu
