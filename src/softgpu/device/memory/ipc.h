// SPDX-License-Identifier: Apache-2.0
// Memory and events of other processes that use softgpu directly: cuIpc*, and pointers into
// exported pools. There is no server between them: a handle says where the owner's file is
// (shared_file.h). API threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>

#include "base/mutex.h"
#include "cuda/status.h"
#include "softgpu/device/machine/shared_file.h"

namespace openmps::softgpu {

class Context;
class Driver;
struct MemoryPool;

enum class TicketKind : uint32_t { kMemory = 1, kEvent = 2, kPooled = 3 };

// What CUipcMemHandle, CUipcEventHandle and CUmemPoolPtrExportData hold.
struct Ticket {
  uint32_t magic = 0;
  TicketKind kind{};
  int32_t owner = 0;       // process
  int32_t descriptor = 0;  // in it
  ShareKey key{};
  uint64_t bytes = 0;   // of the allocation, as it was asked for
  uint32_t device = 0;  // of the machine
  uint32_t reserved = 0;
  ShareKey pool{};  // kPooled: whose memory it is
};
static_assert(sizeof(Ticket) == sizeof(CUipcMemHandle));
static_assert(sizeof(Ticket) == sizeof(CUipcEventHandle));
static_assert(sizeof(Ticket) == sizeof(CUmemPoolPtrExportData));

// An interprocess event: how often it was recorded, and how many of these records were reached. The
// event is reached when both are equal. One page, which every process maps.
struct SharedEvent {
  struct Counters {
    std::atomic<uint64_t> recorded;
    std::atomic<uint64_t> reached;
  };
  ~SharedEvent();

  Driver* driver = nullptr;
  std::shared_ptr<const SharedFile> file;  // null: it is another process's
  Counters* counters = nullptr;
};

class Ipc {
 public:
  explicit Ipc(Driver* driver) : driver_(driver) {}

  // `address` may be any in the allocation. An allocation has one ticket, for all of it.
  // CUDA_ERROR_INVALID_VALUE: not memory of cuMemAlloc; CUDA_ERROR_OUT_OF_MEMORY.
  Result<Ticket> export_memory(uint64_t address);
  // Memory that is opened again keeps its address, until it is closed as often.
  // CUDA_ERROR_INVALID_HANDLE: the ticket names nothing; CUDA_ERROR_INVALID_CONTEXT: it is this
  // process's own; CUDA_ERROR_OUT_OF_MEMORY.
  Result<uint64_t> open_memory(Context& context, const Ticket& ticket);
  // Waits for everything queued in the context that opened it. CUDA_ERROR_INVALID_VALUE: nothing
  // was opened there.
  Status close_memory(uint64_t address);

  // Pointers into a pool that has a file; the importer's pool has the same key.
  Result<Ticket> export_pooled(uint64_t address);
  Result<uint64_t> import_pooled(Context& context, const MemoryPool& pool, const Ticket& ticket);

  // For a new event of cuEventCreate. CUDA_ERROR_OUT_OF_MEMORY.
  Result<std::shared_ptr<SharedEvent>> make_event();
  // CUDA_ERROR_INVALID_VALUE: null, not made for other processes, or another process's.
  Result<Ticket> export_event(const SharedEvent* event);
  // Errors as of open_memory().
  Result<std::shared_ptr<SharedEvent>> open_event(const Ticket& ticket);

 private:
  struct Opened {
    uint64_t address = 0;
    uint64_t range = 0;  // MappedRange::id
    uint32_t opens = 0;
  };
  Result<UniqueFd> open_file(const Ticket& ticket, TicketKind kind, uint64_t bytes);
  Result<uint64_t> map_file(Context& context, const Ticket& ticket, const UniqueFd& file,
                            CUmemoryPool pool);
  Result<std::shared_ptr<SharedEvent>> map_event(int descriptor);

  Driver* driver_;
  Mutex mutex_{LockRank::kSoftIpc};
  std::map<ShareKey, Opened> opened_ GUARDED_BY(mutex_);
};

}  // namespace openmps::softgpu
