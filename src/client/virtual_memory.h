// SPDX-License-Identifier: Apache-2.0
// Reserved address ranges and physical memory of a program that maps its own memory (cuMemCreate,
// cuMemMap). The worker makes physical memory where it is mapped, so a handle can be mapped once,
// whole. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>

#include "base/cuda_abi.h"

namespace openmps::client {

struct PhysicalMemory {
  uint64_t bytes = 0;
  uint32_t device = 0;  // the program's ordinal
  CUmemAllocationProp properties{};
  uint64_t address = 0;  // where it is mapped; 0: nowhere
  bool was_mapped = false;
  uint32_t references = 1;  // handles that the program holds; a mapping keeps the memory, too
};

class VirtualMemory {
 public:
  struct State {
    std::map<uint64_t, uint64_t> reserved;        // base -> bytes
    std::map<uint64_t, PhysicalMemory> physical;  // by handle
    uint64_t next_handle = 1;

    // The physical memory that is mapped at exactly this address, or nullptr.
    PhysicalMemory* mapped_at(uint64_t address);
    [[nodiscard]] bool is_reserved(uint64_t address, uint64_t bytes) const;
    [[nodiscard]] bool overlaps_mapping(uint64_t address, uint64_t bytes) const;
    // Forget a handle that neither the program nor a mapping needs.
    void drop_unused();
  };

  // All of it under one lock: these calls are rare.
  class Locked {
   public:
    explicit Locked(VirtualMemory& owner) : guard_(owner.lock_), state_(owner.state_) {}
    State* operator->() { return &state_; }

   private:
    std::lock_guard<std::mutex> guard_;
    State& state_;
  };

 private:
  std::mutex lock_;
  State state_;
};

}  // namespace openmps::client
