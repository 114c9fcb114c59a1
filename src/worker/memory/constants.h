// SPDX-License-Identifier: Apache-2.0
// Constants of a session's modules whose addresses the program has asked for. They lie in a
// context, where its loader has put them, and end with it. So the program gets the address of a
// copy in the session's memory, which goes with the session to another worker, and what work writes
// to the copy is written to the constant behind it (docs/decisions/0046). Session's thread only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>

#include "api/driver_table.h"

namespace openmps::worker {

struct Constant {
  uint64_t address = 0;  // of the copy: the program's
  uint64_t bytes = 0;
  uint64_t number = 0;      // wire::Keep::number of the copy's memory
  CUdeviceptr in_code = 0;  // where kernels read it
  uint32_t device = 0;
};

class Constants {
 public:
  [[nodiscard]] bool empty() const { return constants_.empty(); }
  void add(const Constant& constant) { constants_[constant.address] = constant; }
  void remove(uint64_t address) { constants_.erase(address); }
  [[nodiscard]] const auto& all() const { return constants_; }
  // That of this address in the code; null: the program has not asked for its address, or its
  // module is unloaded.
  [[nodiscard]] const Constant* in_code(CUdeviceptr address) const {
    const auto found = std::ranges::find_if(
        constants_, [address](const auto& entry) { return entry.second.in_code == address; });
    return found == constants_.end() ? nullptr : &found->second;
  }
  // That in whose copy the address lies; null: none.
  [[nodiscard]] const Constant* at(uint64_t address) const {
    const auto behind = constants_.upper_bound(address);
    if (behind == constants_.begin()) return nullptr;
    const Constant& constant = std::prev(behind)->second;
    return address - constant.address < constant.bytes ? &constant : nullptr;
  }
  // Call f(from, to, bytes) for each constant, or part of one, in whose copy a part of the range
  // lies: from there to the constant.
  template <typename F>
  void for_each_in(uint64_t begin, uint64_t bytes, F&& f) const {
    auto next = constants_.upper_bound(begin);
    if (next != constants_.begin()) --next;
    for (; next != constants_.end() && next->first < begin + bytes; ++next) {
      const Constant& constant = next->second;
      const uint64_t from = std::max(begin, constant.address);
      const uint64_t end = std::min(begin + bytes, constant.address + constant.bytes);
      if (from < end) f(from, constant.in_code + (from - constant.address), end - from);
    }
  }

 private:
  std::map<uint64_t, Constant> constants_;  // by the copy's address, disjoint
};

}  // namespace openmps::worker
