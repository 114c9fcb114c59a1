// SPDX-License-Identifier: Apache-2.0
// See address_book.h.
#include "worker/memory/address_book.h"

#include <algorithm>
#include <iterator>

#include "base/mutex.h"

namespace openmps::worker {
namespace {

// The most ranges that are tried: the book knows the ranges of all sessions, so each failure is due
// to other memory of the driver or the system.
constexpr int kTries = 8;

}  // namespace

AddressBook::AddressBook() {
  if (wire::kAddressHole < wire::kAddressHoleEnd) {
    taken_[wire::kAddressHole] = {wire::kAddressHoleEnd};
  }
}

void AddressBook::begin_at(uint32_t place) { top_ = wire::place_end(place); }

bool AddressBook::claim(uint64_t begin, uint64_t bytes, uint32_t session) {
  const MutexLock lock(mutex_);
  auto first = taken_.lower_bound(begin);
  if (first != taken_.begin() && std::prev(first)->second.end > begin) --first;
  const auto last = taken_.lower_bound(begin + bytes);
  const bool is_free = std::all_of(first, last, [session](const auto& entry) {
    return session != 0 && entry.second.left_by == session;
  });
  if (!is_free) return false;
  taken_.erase(first, last);
  taken_[begin] = {begin + bytes};
  return true;
}

std::optional<uint64_t> AddressBook::claim_highest(uint64_t bytes, uint64_t alignment,
                                                   uint64_t below) {
  const MutexLock lock(mutex_);
  uint64_t end = std::min(below, wire::kAddressEnd);
  auto next = taken_.lower_bound(end);
  for (;;) {
    // The free range between the end of the taken range below and `end`.
    const uint64_t begin = next == taken_.begin()
                               ? wire::kFirstWindow
                               : std::max(wire::kFirstWindow, std::prev(next)->second.end);
    if (begin < end && bytes <= end - begin) {
      const uint64_t address = (end - bytes) / alignment * alignment;
      if (address >= begin) {
        taken_[address] = {address + bytes};
        return address;
      }
    }
    if (next == taken_.begin()) return std::nullopt;
    --next;
    end = std::min(end, next->first);
  }
}

Result<uint64_t> AddressBook::claim_reserved(uint64_t bytes, uint64_t alignment,
                                             FunctionRef<Status(uint64_t)> reserve) {
  Status status(CUDA_ERROR_OUT_OF_MEMORY, "all addresses are taken");
  uint64_t below = top_;
  for (int tries = 0; tries < kTries; ++tries) {
    std::optional<uint64_t> begin = claim_highest(bytes, alignment, below);
    if (!begin.has_value() && below <= top_) begin = claim_highest(bytes, alignment);
    if (!begin.has_value()) break;
    status = reserve(*begin);
    if (status.ok()) return *begin;
    release(*begin);
    below = *begin;
  }
  return status;
}

void AddressBook::release(uint64_t begin) {
  const MutexLock lock(mutex_);
  taken_.erase(begin);
}

void AddressBook::leave(uint64_t begin, uint32_t session) {
  const MutexLock lock(mutex_);
  taken_.at(begin).left_by = session;
}

void AddressBook::forget(uint32_t session) {
  const MutexLock lock(mutex_);
  std::erase_if(taken_, [session](const auto& entry) { return entry.second.left_by == session; });
}

}  // namespace openmps::worker
