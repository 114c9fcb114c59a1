// SPDX-License-Identifier: Apache-2.0
// What is mapped: the ordered map of every range that kernels and copies may touch, for the whole
// process (unified addressing: device addresses are host addresses). API threads insert and remove;
// workers, copy engines and API threads read. Removal has a grace period, so that memory is
// given back only after every reader that might still use the range has left.
#pragma once

#include <cstdint>
#include <map>

#include "base/mutex.h"
#include "cuda/status.h"
#include "softgpu/engine.h"

namespace openmps::softgpu {

class Context;

enum class RangeKind {
  kDevice,          // cuMemAlloc and its family
  kImported,        // another process's: cuIpcOpenMemHandle, cuMemPoolImportPointer
  kManaged,         // cuMemAllocManaged
  kHostAllocated,   // cuMemHostAlloc
  kHostRegistered,  // cuMemHostRegister
  kMapped,          // cuMemMap, accessible by cuMemSetAccess
  kModuleGlobal,    // __device__ and __constant__ variables
  kGraph,           // allocation nodes of graphs (graph_memory.h)
  kArray,           // CUDA arrays: named by handle, not by address
  kInternal,        // workspaces and the heap of malloc() in a kernel
};

struct MappedRange {
  uint64_t begin = 0;
  uint64_t bytes = 0;  // as asked for: what copies are checked against
  uint64_t end = 0;    // rounded up to the allocation granularity: what kernels may touch
  RangeKind kind = RangeKind::kDevice;
  bool writable = true;
  bool charged =
      true;  // the device counts it, if it counts that kind: memory of graphs comes later
  // Flags of cuMemHostAlloc, cuMemHostRegister or cuMemAllocManaged; a managed variable has those
  // that cuMemAllocManaged would get.
  unsigned flags = 0;
  uint64_t id = 0;           // CU_POINTER_ATTRIBUTE_BUFFER_ID
  int device = 0;            // ordinal
  Context* owner = nullptr;  // compared, never followed; null for kMapped
  CUmemoryPool pool = nullptr;
  bool sync_memops = false;  // CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
};

class AddressSpace final : public MemoryMap {
 public:
  // Errors: CUDA_ERROR_INVALID_VALUE if it overlaps another range or is empty.
  Status insert(const MappedRange& range);
  // The range that begins at `begin`; false if none does.
  bool remove(uint64_t begin, MappedRange* removed);
  // Removes the range that begins at `begin` if `expected(range)` holds.
  template <typename Predicate>
  bool remove_if(uint64_t begin, Predicate&& expected, MappedRange* removed) {
    const WriterLock lock(mutex_);
    auto found = ranges_.find(begin);
    if (found == ranges_.end() || !expected(found->second)) return false;
    *removed = found->second;
    ranges_.erase(found);
    count_locked(*removed, false);
    return true;
  }
  // `change(range)`, of the range that the address lies in; false if there is none.
  template <typename Change>
  bool change(uint64_t address, Change&& change) {
    const WriterLock lock(mutex_);
    const auto found = containing_locked(address);
    if (found == ranges_.end()) return false;
    change(ranges_.find(found->first)->second);
    return true;
  }

  // Bytes of a device's kDevice ranges, and the most that there were since the mark was set back.
  struct DeviceUse {
    uint64_t now = 0;
    uint64_t used_high = 0;
    uint64_t reserved_high = 0;
  };
  [[nodiscard]] DeviceUse use_of(int device) const;
  void set_back(int device, uint64_t DeviceUse::*mark);

  bool find(uint64_t address, AddressRange* range) const override;
  bool find_mapped(uint64_t address, MappedRange* range) const;
  // Any range that intersects [begin, begin + bytes).
  bool intersects(uint64_t begin, uint64_t bytes) const;

  enum class Coverage { kNone, kInside, kOutside };
  // Whether [begin, begin + bytes) lies in mapped ranges without a gap (kInside), begins in one
  // but leaves it, or is read-only where it must be written (kOutside), or begins in none (kNone:
  // ordinary memory of the program, or nothing).
  Coverage coverage(uint64_t begin, uint64_t bytes, bool write) const;

  // Runs `access()` while no range can be removed; false, without running it, if the range is not
  // covered. For short accesses.
  template <typename Access>
  bool with_range(uint64_t begin, uint64_t bytes, bool write, Access&& access) const {
    const ReaderLock lock(mutex_);
    if (coverage_locked(begin, bytes, write) != Coverage::kInside) return false;
    access();
    return true;
  }

  template <typename Visitor>
  void for_each(Visitor&& visitor) const {
    const ReaderLock lock(mutex_);
    for (const auto& [begin, range] : ranges_) visitor(range);
  }

  // Readers that keep what find() told them bracket their work with these.
  [[nodiscard]] uint32_t enter();
  void exit(uint32_t phase);
  // Returns when every reader that entered before this call has left.
  void wait_for_readers();
  // Run `change()` while no reader is inside and none enters.
  template <typename Change>
  void without_readers(Change&& change) {
    const MutexLock one_waiter(waiter_mutex_);
    {
      const MutexLock lock(phase_mutex_);
      closed_ = true;
      while (readers_[0] != 0 || readers_[1] != 0) drained_.wait(phase_mutex_);
    }
    {
      const WriterLock lock(mutex_);
      change();
    }
    const MutexLock lock(phase_mutex_);
    closed_ = false;
    reopened_.notify_all();
  }

 private:
  void count_locked(const MappedRange& range, bool comes) REQUIRES(mutex_);
  Coverage coverage_locked(uint64_t begin, uint64_t bytes, bool write) const
      REQUIRES_SHARED(mutex_);
  // The range that contains `address`, or end().
  std::map<uint64_t, MappedRange>::const_iterator containing_locked(uint64_t address) const
      REQUIRES_SHARED(mutex_);

  mutable SharedMutex mutex_{LockRank::kSoftAddressSpace};
  std::map<uint64_t, MappedRange> ranges_ GUARDED_BY(mutex_);
  std::map<int, DeviceUse> use_ GUARDED_BY(mutex_);  // by device

  // Two generations of readers: a waiter starts a new one and waits until the old one is empty.
  Mutex waiter_mutex_{LockRank::kSoftAddressSpaceWaiter};
  Mutex phase_mutex_{LockRank::kSoftAddressSpacePhase};
  CondVar drained_;
  CondVar reopened_;
  bool closed_ GUARDED_BY(phase_mutex_) = false;  // readers may not enter
  uint32_t phase_ GUARDED_BY(phase_mutex_) = 0;
  uint64_t readers_[2] GUARDED_BY(phase_mutex_) = {0, 0};
};

}  // namespace openmps::softgpu
