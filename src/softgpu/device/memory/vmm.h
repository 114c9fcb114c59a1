// SPDX-License-Identifier: Apache-2.0
// Virtual memory management: address reservations, physical memory as file descriptors that other
// processes can map, and mappings of one into the other. Device address = host address. API
// threads.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "base/kept_fd.h"
#include "base/mutex.h"
#include "cuda/status.h"
#include "softgpu/device/handles.h"

namespace openmps::softgpu {

class Driver;

// Of physical memory, mappings and reservations; as on current GPUs.
inline constexpr uint64_t kVmmGranularity = 2ull << 20;

// One physical object. Lives while a handle or a mapping refers to it.
struct PhysicalMemory {
  ~PhysicalMemory();

  Driver* driver = nullptr;
  KeptFd file;
  uint64_t bytes = 0;
  CUmemAllocationProp properties{};
  bool counted = false;  // against the device: made here, not imported
  int device = 0;        // ordinal
  uint32_t handles = 1;  // outstanding references of the one handle (VirtualMemory's mutex)
  CUmemGenericAllocationHandle handle = 0;
};

class VirtualMemory {
 public:
  explicit VirtualMemory(Driver* driver) : driver_(driver) {}

  // cuMemAddressReserve: at `wanted` if that is free, else anywhere (the address is a hint).
  Result<uint64_t> reserve(uint64_t bytes, uint64_t alignment, uint64_t wanted);
  // Exactly one reservation, with nothing mapped in it.
  Status free_reservation(uint64_t address, uint64_t bytes);

  Result<CUmemGenericAllocationHandle> create(uint64_t bytes,
                                              const CUmemAllocationProp& properties);
  Status release(CUmemGenericAllocationHandle handle);
  // A new descriptor of the object's file, close-on-exec, owned by the caller.
  Result<int> export_descriptor(CUmemGenericAllocationHandle handle);
  // The caller keeps the descriptor.
  Result<CUmemGenericAllocationHandle> import_descriptor(int descriptor);
  // The handle of what is mapped at `address`, with one more reference.
  Result<CUmemGenericAllocationHandle> retain_mapped(uint64_t address);
  Result<CUmemAllocationProp> properties(CUmemGenericAllocationHandle handle);

  // Inside one reservation, over nothing mapped. Without access until set_access.
  Status map(uint64_t address, uint64_t bytes, uint64_t offset,
             CUmemGenericAllocationHandle handle);
  // Exactly one or more whole mappings. Waits for running kernels to leave them.
  Status unmap(uint64_t address, uint64_t bytes);
  Status set_access(uint64_t address, uint64_t bytes, CUmemAccess_flags access);
  Result<CUmemAccess_flags> access(uint64_t address);
  // The reservation around an address; false if there is none.
  bool reservation_of(uint64_t address, uint64_t* begin, uint64_t* bytes);

 private:
  struct MappedObject {
    uint64_t bytes = 0;
    std::shared_ptr<PhysicalMemory> memory;
    CUmemAccess_flags access = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  };

  using Mappings = std::map<uint64_t, MappedObject>;

  // The mapping around an address; null if there is none.
  MappedObject* find_mapped_locked(uint64_t address) REQUIRES(mutex_);
  // The mappings that make up [address, address + bytes) exactly; false if they do not.
  bool whole_mappings_locked(uint64_t address, uint64_t bytes, Mappings::iterator* first,
                             Mappings::iterator* last) REQUIRES(mutex_);
  // The mappings, or none, within a part of a reservation; false if it cuts one.
  bool whole_or_none_locked(uint64_t address, uint64_t bytes, Mappings::iterator* first,
                            Mappings::iterator* last) REQUIRES(mutex_);
  CUmemGenericAllocationHandle publish_locked(const std::shared_ptr<PhysicalMemory>& memory)
      REQUIRES(mutex_);

  Driver* driver_;
  Mutex mutex_{LockRank::kSoftVmm};
  std::map<uint64_t, uint64_t> reservations_ GUARDED_BY(mutex_);  // begin -> bytes
  Mappings mappings_ GUARDED_BY(mutex_);
  HandleTable<CUmemGenericAllocationHandle, PhysicalMemory, HandleKind::kPhysicalMemory> objects_;
};

}  // namespace openmps::softgpu
