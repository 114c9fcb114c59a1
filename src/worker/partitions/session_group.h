// SPDX-License-Identifier: Apache-2.0
// The limits that the sessions of a group have together, beside those of each session
// (docs/decisions/0029), how much of them is taken, and their common account of time on SMs
// (docs/decisions/0051). Lives as long as a session of the group or memory that counts against it.
// Any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "wire/handshake.h"
#include "worker/admission/share_account.h"

namespace openmps::worker {

class SessionGroup {
 public:
  // Device memory, in bytes; 0: no limit. Memory beyond a new limit is kept.
  void set_memory_limit(uint32_t device, uint64_t bytes) {
    of_[device].limit.store(bytes, std::memory_order_relaxed);
  }
  [[nodiscard]] uint64_t memory_limit(uint32_t device) const {
    return of_[device].limit.load(std::memory_order_relaxed);
  }
  [[nodiscard]] uint64_t memory(uint32_t device) const {
    return of_[device].memory.load(std::memory_order_relaxed);
  }
  // False: the limit leaves less, and nothing is taken. Calls at the same time never exceed the
  // limit.
  [[nodiscard]] bool take_memory(uint32_t device, uint64_t bytes) {
    std::atomic<uint64_t>& memory = of_[device].memory;
    uint64_t used = memory.load(std::memory_order_relaxed);
    do {
      const uint64_t most = memory_limit(device);
      if (most != 0 && (used > most || bytes > most - used)) return false;
    } while (!memory.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
    return true;
  }
  void give_back_memory(uint32_t device, uint64_t bytes) {
    of_[device].memory.fetch_sub(bytes, std::memory_order_relaxed);
  }
  // What of that is on the host, and what stays on the device while all sessions are idle; 0: all.
  void note_on_host(uint32_t device, uint64_t bytes, bool goes) {
    of_[device].on_host.fetch_add(goes ? bytes : -bytes, std::memory_order_relaxed);
  }
  [[nodiscard]] uint64_t on_host(uint32_t device) const {
    return of_[device].on_host.load(std::memory_order_relaxed);
  }
  void set_guaranteed(uint32_t device, uint64_t bytes) {
    of_[device].guaranteed.store(bytes, std::memory_order_relaxed);
  }
  [[nodiscard]] uint64_t guaranteed(uint32_t device) const {
    return of_[device].guaranteed.load(std::memory_order_relaxed);
  }
  void set_on_pressure(wire::OnPressure what) {
    on_pressure_.store(what, std::memory_order_relaxed);
  }
  [[nodiscard]] wire::OnPressure on_pressure() const {
    return on_pressure_.load(std::memory_order_relaxed);
  }

  // The most SMs of the one set that all sessions have; 0: no limit. In force after
  // SmPartitions::change().
  void set_sms(uint32_t device, uint32_t sms) {
    of_[device].sms.store(sms, std::memory_order_relaxed);
  }
  [[nodiscard]] uint32_t sms(uint32_t device) const {
    return of_[device].sms.load(std::memory_order_relaxed);
  }
  // Whether they have more SMs while others have no work. As set_sms().
  void set_borrows(bool borrows) { borrows_.store(borrows, std::memory_order_relaxed); }
  [[nodiscard]] bool borrows() const { return borrows_.load(std::memory_order_relaxed); }

  // Of all its sessions together, if it has a weight; else each session has one of its own.
  [[nodiscard]] ShareAccount& account(uint32_t device) { return of_[device].account; }

 private:
  struct OfDevice {
    std::atomic<uint64_t> limit{0};
    std::atomic<uint64_t> memory{0};
    std::atomic<uint64_t> on_host{0};
    std::atomic<uint64_t> guaranteed{0};
    std::atomic<uint32_t> sms{0};
    ShareAccount account;
  };
  std::atomic<bool> borrows_{false};
  std::atomic<wire::OnPressure> on_pressure_{wire::OnPressure::kUnset};
  std::array<OfDevice, wire::kMaxDevices> of_;
};

// Device memory that counts against a group until the last holder is destroyed.
class GroupCharge {
 public:
  GroupCharge(std::shared_ptr<SessionGroup> group, uint32_t device)
      : group_(std::move(group)), device_(device) {}
  ~GroupCharge() { group_->give_back_memory(device_, bytes_); }
  GroupCharge(const GroupCharge&) = delete;
  GroupCharge& operator=(const GroupCharge&) = delete;

  [[nodiscard]] bool is_of(const SessionGroup* group) const { return group_.get() == group; }
  // While only one session holds the charge.
  void add(uint64_t taken) { bytes_ += taken; }
  // What of the charge is on the host, more or less.
  void note_on_host(uint64_t bytes, bool goes) { group_->note_on_host(device_, bytes, goes); }
  void add(GroupCharge& more) { bytes_ += std::exchange(more.bytes_, 0); }

 private:
  const std::shared_ptr<SessionGroup> group_;
  const uint32_t device_;
  uint64_t bytes_ = 0;
};

}  // namespace openmps::worker
