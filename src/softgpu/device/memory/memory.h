// SPDX-License-Identifier: Apache-2.0
// Allocations: device, managed, pinned host and registered host memory. Called by API threads; the
// scheduler calls end_allocation for stream-ordered frees.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>

#include "base/mutex.h"
#include "cuda/status.h"
#include "softgpu/device/machine/address_space.h"
#include "softgpu/device/machine/backing.h"

namespace openmps::softgpu {

class Driver;
class Context;
class ExecutionContext;
struct Device;

class Memory {
 public:
  explicit Memory(Driver* driver) : driver_(driver) {}

  // Device or managed memory, which the device is charged for; graph_memory.h charges for memory of
  // allocation nodes. CUDA_ERROR_INVALID_VALUE for no bytes, CUDA_ERROR_OUT_OF_MEMORY.
  Result<uint64_t> allocate_device(Context& context, uint64_t bytes, RangeKind kind,
                                   unsigned flags);
  // A managed variable of a library, which belongs to no context. Ends by free_global().
  Result<uint64_t> allocate_library_global(Device& device, uint64_t bytes);
  // cuMemFree: makes the owning context quiescent, as the driver does.
  // CUDA_ERROR_INVALID_VALUE unless `address` is the begin of a device or managed allocation.
  Status free_device(uint64_t address);
  // The allocation begins at `address`: cuMemFreeAsync checks before it queues the free.
  [[nodiscard]] bool is_device_allocation(uint64_t address) const;
  // Stream-ordered free, or the end of a graph's memory: the range ends now. Its memory, which the
  // scheduler, whose mutex is held, frees when no kernel can see it; address 0: there was none.
  [[nodiscard]] Backing end_allocation(uint64_t address);

  // The memory of an array, whose context is idle. CUDA_ERROR_INVALID_VALUE: it has gone.
  Status free_array(uint64_t address);

  // A module's variable, when the module goes: the context is idle or about to be torn down.
  void free_global(uint64_t address);

  // The file of a device allocation's pages, into which they move if need be. Null: it is not
  // there, or the machine has no memory left.
  std::shared_ptr<const SharedFile> share(uint64_t address);
  // Another process's memory, mapped at `address`; it is counted there. `pool`: where it came from,
  // null: cuIpcOpenMemHandle. Ends by free_device() if it came from a pool, else by
  // release_shared().
  Result<uint64_t> adopt_shared(Context& context, const Device& device, uint64_t address,
                                uint64_t bytes, CUmemoryPool pool);
  // Waits for everything queued in the context that opened it.
  Status release_shared(uint64_t address);

  // Pinned host memory that softgpu allocates. flags: CU_MEMHOSTALLOC_*.
  Result<uint64_t> allocate_host(Context& context, uint64_t bytes, unsigned flags);
  Status free_host(uint64_t address);

  // CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, CUDA_ERROR_INVALID_VALUE (not mapped in the
  // process).
  Status register_host(Context& context, uint64_t address, uint64_t bytes, unsigned flags);
  // Waits for everything queued in the owning context if loading waits, too (Config).
  Status unregister_host(uint64_t address);

  // Everything a context owns, when it is destroyed. Its operations are done.
  void release_context(const Context* context);

 private:
  // `owner`: null for what belongs to no context.
  Result<uint64_t> allocate(Device& device, Context* owner, uint64_t bytes, RangeKind kind,
                            unsigned flags);
  Status insert_range(const Device& device, Context* owner, const Backing& backing, uint64_t bytes,
                      RangeKind kind, unsigned flags);
  // Ends the life of a removed range: accounting, grace period, memory.
  void release_range(const MappedRange& range);
  Backing take_backing(uint64_t address);

  Driver* driver_;
  Mutex mutex_{LockRank::kSoftMemory};
  // Memory that is freed here, by address.
  std::unordered_map<uint64_t, Backing> backings_ GUARDED_BY(mutex_);
};

}  // namespace openmps::softgpu
