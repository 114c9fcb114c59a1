// SPDX-License-Identifier: Apache-2.0
// The interval map behind every kernel access and copy, and its grace periods. Threads: any.
#include "softgpu/device/machine/address_space.h"

#include <algorithm>

namespace openmps::softgpu {

Status AddressSpace::insert(const MappedRange& range) {
  const WriterLock lock(mutex_);
  if (range.end <= range.begin) return Status(CUDA_ERROR_INVALID_VALUE, "the range is empty");
  auto next = ranges_.lower_bound(range.begin);
  bool overlaps = next != ranges_.end() && next->first < range.end;
  if (next != ranges_.begin()) overlaps = overlaps || std::prev(next)->second.end > range.begin;
  if (overlaps) return Status(CUDA_ERROR_INVALID_VALUE, "the range overlaps a mapped one");
  ranges_.emplace_hint(next, range.begin, range);
  count_locked(range, true);
  return Status();
}

void AddressSpace::count_locked(const MappedRange& range, bool comes) {
  if (range.kind != RangeKind::kDevice) return;
  DeviceUse& use = use_[range.device];
  use.now += comes ? range.end - range.begin : range.begin - range.end;
  use.used_high = std::max(use.used_high, use.now);
  use.reserved_high = std::max(use.reserved_high, use.now);
}

AddressSpace::DeviceUse AddressSpace::use_of(int device) const {
  const ReaderLock lock(mutex_);
  const auto found = use_.find(device);
  return found == use_.end() ? DeviceUse{} : found->second;
}

void AddressSpace::set_back(int device, uint64_t DeviceUse::*mark) {
  const WriterLock lock(mutex_);
  DeviceUse& use = use_[device];
  use.*mark = use.now;
}

bool AddressSpace::remove(uint64_t begin, MappedRange* removed) {
  return remove_if(
      begin, [](const MappedRange&) { return true; }, removed);
}

std::map<uint64_t, MappedRange>::const_iterator AddressSpace::containing_locked(
    uint64_t address) const {
  auto after = ranges_.upper_bound(address);
  if (after == ranges_.begin()) return ranges_.end();
  auto candidate = std::prev(after);
  return address < candidate->second.end ? candidate : ranges_.end();
}

bool AddressSpace::find(uint64_t address, AddressRange* range) const {
  const ReaderLock lock(mutex_);
  auto found = containing_locked(address);
  if (found == ranges_.end()) return false;
  *range = {found->second.begin, found->second.end, found->second.writable};
  return true;
}

bool AddressSpace::find_mapped(uint64_t address, MappedRange* range) const {
  const ReaderLock lock(mutex_);
  auto found = containing_locked(address);
  if (found == ranges_.end()) return false;
  *range = found->second;
  return true;
}

bool AddressSpace::intersects(uint64_t begin, uint64_t bytes) const {
  const ReaderLock lock(mutex_);
  if (containing_locked(begin) != ranges_.end()) return true;
  auto next = ranges_.lower_bound(begin);
  return next != ranges_.end() && next->first - begin < bytes;
}

AddressSpace::Coverage AddressSpace::coverage(uint64_t begin, uint64_t bytes, bool write) const {
  const ReaderLock lock(mutex_);
  return coverage_locked(begin, bytes, write);
}

AddressSpace::Coverage AddressSpace::coverage_locked(uint64_t begin, uint64_t bytes,
                                                     bool write) const {
  auto range = containing_locked(begin);
  if (range == ranges_.end()) return Coverage::kNone;
  uint64_t end = 0;
  if (__builtin_add_overflow(begin, bytes, &end)) return Coverage::kOutside;
  for (;;) {
    if (write && !range->second.writable) return Coverage::kOutside;
    uint64_t range_end = range->second.begin + range->second.bytes;
    if (end <= range_end) return Coverage::kInside;
    auto next = std::next(range);
    if (next == ranges_.end() || next->first != range_end) return Coverage::kOutside;
    range = next;
  }
}

uint32_t AddressSpace::enter() {
  const MutexLock lock(phase_mutex_);
  while (closed_) reopened_.wait(phase_mutex_);
  ++readers_[phase_];
  return phase_;
}

void AddressSpace::exit(uint32_t phase) {
  const MutexLock lock(phase_mutex_);
  if (--readers_[phase] == 0 && (phase != phase_ || closed_)) drained_.notify_all();
}

void AddressSpace::wait_for_readers() {
  const MutexLock one_waiter(waiter_mutex_);
  const MutexLock lock(phase_mutex_);
  uint32_t old = phase_;
  phase_ ^= 1;
  while (readers_[old] != 0) drained_.wait(phase_mutex_);
}

}  // namespace openmps::softgpu
