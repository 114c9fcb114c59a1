// SPDX-License-Identifier: Apache-2.0
// Reserved address ranges, physical memory and mappings of a program that maps its own memory
// (cuMemCreate, cuMemMap): what CUDA's rules about them need to know. The worker has the memory
// itself. Any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <variant>

#include "base/mutex.h"
#include "client/handle_table.h"
#include "client/memory/interval_map.h"
#include "cuda/abi.h"
#include "wire/handshake.h"

namespace openmps::client {

// The object behind a CUmemGenericAllocationHandle.
struct PhysicalMemory : Object {
  uint64_t bytes = 0;   // 0: imported, of unknown size
  uint32_t device = 0;  // the program's ordinal
  CUmemAllocationProp properties{};
  // Guarded by VirtualMemory.
  uint32_t references = 1;  // that the program holds
  uint32_t mappings = 0;
};

struct VirtualMapping {
  PhysicalMemory* memory = nullptr;
  CUmemAccess_flags access[wire::kMaxDevices] = {};  // by the program's ordinal

  // Of those of all devices.
  [[nodiscard]] CUmemAccess_flags most_access() const {
    return *std::max_element(std::begin(access), std::end(access));
  }
};

class VirtualMemory {
 public:
  struct State {
    IntervalMap<std::monostate> reserved;
    IntervalMap<VirtualMapping> mappings;

    [[nodiscard]] bool is_reserved(uint64_t address, uint64_t bytes) const {
      const auto* range = reserved.find(address);
      return range != nullptr && bytes <= range->bytes - (address - range->base);
    }
    // [address, address + bytes) consists of whole mappings.
    [[nodiscard]] bool is_whole(uint64_t address, uint64_t bytes) const {
      for (uint64_t done = 0; done < bytes;) {
        const auto* mapping = mappings.find(address + done);
        if (mapping == nullptr || mapping->base != address + done) return false;
        if (mapping->bytes > bytes - done) return false;
        done += mapping->bytes;
      }
      return bytes != 0;
    }
  };

  // All of it under one lock: these calls are rare.
  class Locked {
   public:
    explicit Locked(VirtualMemory& owner) : guard_(owner.lock_), state_(owner.state_) {}
    State* operator->() { return &state_; }

   private:
    const MutexLock guard_;
    State& state_;
  };

 private:
  Mutex lock_{LockRank::kClientVirtualMemory};
  State state_;
};

}  // namespace openmps::client
