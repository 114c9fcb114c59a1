// SPDX-License-Identifier: Apache-2.0
// See virtual_memory.h.
#include "client/virtual_memory.h"

#include <iterator>

namespace openmps::client {

PhysicalMemory* VirtualMemory::State::mapped_at(uint64_t address) {
  for (auto& [handle, memory] : physical) {
    if (memory.address == address && address != 0) return &memory;
  }
  return nullptr;
}

bool VirtualMemory::State::is_reserved(uint64_t address, uint64_t bytes) const {
  auto next = reserved.upper_bound(address);
  if (next == reserved.begin()) return false;
  const auto [base, length] = *std::prev(next);
  return address - base < length && bytes <= length - (address - base);
}

bool VirtualMemory::State::overlaps_mapping(uint64_t address, uint64_t bytes) const {
  for (const auto& [handle, memory] : physical) {
    if (memory.address == 0) continue;
    if (memory.address < address + bytes && address < memory.address + memory.bytes) return true;
  }
  return false;
}

void VirtualMemory::State::drop_unused() {
  std::erase_if(physical, [](const auto& entry) {
    return entry.second.references == 0 && entry.second.address == 0;
  });
}

}  // namespace openmps::client
