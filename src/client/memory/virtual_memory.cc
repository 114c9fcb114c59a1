// SPDX-License-Identifier: Apache-2.0
// See virtual_memory.h.
#include "client/memory/virtual_memory.h"

#include <algorithm>
#include <iterator>

namespace openmps::client {

CUmemAccess_flags VirtualMapping::most_access() const {
  return *std::max_element(std::begin(access), std::end(access));
}

bool VirtualMemory::State::is_reserved(uint64_t address, uint64_t bytes) const {
  auto next = reserved.upper_bound(address);
  if (next == reserved.begin()) return false;
  const auto [base, length] = *std::prev(next);
  return address - base < length && bytes <= length - (address - base);
}

bool VirtualMemory::State::overlaps_mapping(uint64_t address, uint64_t bytes) const {
  const auto next = mappings.lower_bound(address);
  if (next != mappings.end() && next->first - address < bytes) return true;
  if (next == mappings.begin()) return false;
  const auto& [base, mapping] = *std::prev(next);
  return address - base < mapping.bytes;
}

bool VirtualMemory::State::is_whole(uint64_t address, uint64_t bytes) const {
  uint64_t left = bytes;
  for (auto it = mappings.find(address); left != 0; ++it) {
    const bool next = it != mappings.end() && it->first == address + (bytes - left);
    if (!next || it->second.bytes > left) return false;
    left -= it->second.bytes;
  }
  return bytes != 0;
}

VirtualMapping* VirtualMemory::State::mapping_of(uint64_t address, uint64_t* begin) {
  const auto next = mappings.upper_bound(address);
  if (next == mappings.begin()) return nullptr;
  auto& [base, mapping] = *std::prev(next);
  if (address - base >= mapping.bytes) return nullptr;
  if (begin != nullptr) *begin = base;
  return &mapping;
}

}  // namespace openmps::client
