// SPDX-License-Identifier: Apache-2.0
// See pressure.h.
#include "worker/memory/pressure.h"

#include <algorithm>

#include "base/clock.h"

namespace openmps::worker {

void MemoryPressure::join(Member* member) {
  const MutexLock lock(mutex_);
  members_.push_back(member);
}

void MemoryPressure::leave(Member* member) {
  const MutexLock lock(mutex_);
  std::erase(members_, member);
  ++changes_;
  changed_.notify_all();
}

MemoryPressure::Need::Need(MemoryPressure& pressure, Member* member, uint32_t device,
                           uint64_t bytes)
    : pressure_(pressure),
      member_(member),
      device_(device),
      bytes_(bytes),
      began_ns_(pressure.clock_.now_ns()) {
  const MutexLock lock(pressure_.mutex_);
  pressure_.needs_.push_back(this);
}

MemoryPressure::Need::~Need() {
  const MutexLock lock(pressure_.mutex_);
  pressure_.needs_.remove(this);
  ++pressure_.changes_;
  pressure_.changed_.notify_all();
}

bool MemoryPressure::Need::is_first() const {
  const MutexLock lock(pressure_.mutex_);
  for (const Need* need : pressure_.needs_) {
    if (need == this) return true;
    if (need->device_ == device_ && need->member_->waits.load()) return false;
  }
  return true;
}

uint64_t MemoryPressure::needed_locked(uint32_t device) const {
  uint64_t bytes = 0;
  for (const Need* need : needs_) {
    if (need->device_ == device) bytes += need->bytes_.load(std::memory_order_relaxed);
  }
  const Remote& remote = remote_[device];
  return clock_.now_ns() < remote.until_ns ? bytes + remote.bytes : bytes;
}

uint64_t MemoryPressure::needed(uint32_t device) {
  const MutexLock lock(mutex_);
  return needed_locked(device);
}

bool MemoryPressure::any_asked_locked(const Member* but, uint32_t device) const {
  return std::ranges::any_of(members_, [&](const Member* member) {
    return member != but && (member->asked.load() >> device & 1) != 0;
  });
}

MemoryPressure::Member* MemoryPressure::choose_locked(const Member* but, uint32_t device, Busy busy,
                                                      uint64_t began_ns) {
  const uint64_t now = clock_.now_ns();
  // Whoever has declined has work under way although it has no commands: not worth waiting for.
  const bool is_last_look = busy != Busy::kTurns && now - began_ns >= kShortestAllocationNs;
  Member* idle = nullptr;
  Member* longest = nullptr;
  for (Member* member : members_) {
    if (member == but || member->borrowed(device) == 0) continue;
    const uint64_t declined = member->declined_ns.load();
    if (now - std::min(now, declined) < kDeclinedNs) continue;
    if (is_last_look && declined >= began_ns) continue;
    if (member->waits.load()) return member;
    const uint64_t since = member->idle_since_ns.load();
    if (since != 0 && since <= now && now - since >= kIdleNs) {
      if (idle == nullptr || since < idle->idle_since_ns.load()) idle = member;
    }
    const uint64_t resident = member->resident_since_ns.load();
    const bool is_over = now - std::min(now, resident) >= kMemoryTurnNs;
    if (is_over && (longest == nullptr || resident < longest->resident_since_ns.load())) {
      longest = member;
    }
  }
  if (idle != nullptr || busy != Busy::kTurns || now - began_ns < kMemoryTurnNs) return idle;
  if (longest != nullptr) longest->is_turn_over.store(true);
  return longest;
}

void MemoryPressure::ask_locked(Member* member, uint32_t device) {
  member->asked.fetch_or(1u << device);
  member->bell->ring();
}

bool MemoryPressure::ask(const Need& need, Busy busy) {
  bool tells = false;
  const bool is_asked = ask_here(need, busy, &tells);
  if (tells) tell(need.device_, need.bytes_.load(std::memory_order_relaxed));
  return is_asked;
}

bool MemoryPressure::ask_here(const Need& need, Busy busy, bool* tells) {
  const MutexLock lock(mutex_);
  if (any_asked_locked(need.member_, need.device_)) return true;
  if (Member* member = choose_locked(need.member_, need.device_, busy, need.began_ns_)) {
    ask_locked(member, need.device_);
    return true;
  }
  const uint64_t now = clock_.now_ns();
  if (now - told_ns_ >= kDeclinedNs) {
    told_ns_ = now;
    *tells = true;
  }
  if (busy != Busy::kEnded || now - need.began_ns_ < kMemoryTurnEndNs) return false;
  Member* most = nullptr;
  for (Member* member : members_) {
    if (member == need.member_ || member->is_ended.load()) continue;
    if (most == nullptr || member->borrowed(need.device_) > most->borrowed(need.device_)) {
      most = member;
    }
  }
  if (most == nullptr || most->borrowed(need.device_) == 0) return false;
  most->is_ended.store(true);
  most->bell->ring();
  return true;
}

void MemoryPressure::ask_for_others(uint32_t device, uint64_t bytes) {
  const MutexLock lock(mutex_);
  remote_[device] = {bytes, clock_.now_ns() + 2 * kDeclinedNs};
  if (any_asked_locked(nullptr, device)) return;
  Member* const member = choose_locked(nullptr, device, Busy::kLeft, clock_.now_ns());
  if (member != nullptr) ask_locked(member, device);
}

uint64_t MemoryPressure::borrowed(const Member* but, uint32_t device, bool is_idle) {
  const uint64_t now = clock_.now_ns();
  const MutexLock lock(mutex_);
  uint64_t bytes = 0;
  for (const Member* member : members_) {
    const uint64_t since = member->idle_since_ns.load();
    const bool counts = !is_idle || (since != 0 && since <= now && now - since >= kIdleNs);
    if (member != but && counts) bytes += member->borrowed(device);
  }
  return bytes;
}

void MemoryPressure::note_change() {
  const MutexLock lock(mutex_);
  ++changes_;
  changed_.notify_all();
}

uint64_t MemoryPressure::changes() {
  const MutexLock lock(mutex_);
  return changes_;
}

void MemoryPressure::wait(uint64_t seen) {
  const uint64_t until = now_ns() + kPressureLookNs;
  const MutexLock lock(mutex_);
  while (changes_ == seen && changed_.wait_until(mutex_, until)) {
  }
}

}  // namespace openmps::worker
