// SPDX-License-Identifier: Apache-2.0
// The sets of SMs on which a session's kernels run, by device (docs/decisions/0026); they may
// change at any time (0028). Session's thread, except where a comment says otherwise.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/mutex.h"
#include "cuda/status.h"
#include "wire/handshake.h"
#include "worker/device/context_gate.h"
#include "worker/device/devices.h"
#include "worker/partitions/sm_partitions.h"

namespace openmps::worker {

class DeviceParts {
 public:
  // All outlive it. `partitions`: null: the session has all SMs.
  DeviceParts(const Clock& clock, const DriverTable& driver, const Devices& devices,
              const GateClient& gate_client, SmPartitions* partitions)
      : clock_(clock),
        driver_(driver),
        devices_(devices),
        gate_client_(gate_client),
        partitions_(partitions) {}
  ~DeviceParts() { release_all(); }
  DeviceParts(const DeviceParts&) = delete;
  DeviceParts& operator=(const DeviceParts&) = delete;

  // The session's set of the device's SMs, or `at_most` of these (0: all), which lives as long as
  // it is held; null: the whole device. The first call for a device may wait for a quiescence, so
  // not between the gate's enter() and leave(). Errors: those of SmPartitions::join().
  Status get(uint32_t device, uint32_t at_most, SmPart* part);
  // The set as far as it is a limit, which is what the client is told: a session whose small work
  // has a few SMs to itself has the whole device when it needs that. Without what its partition
  // borrows.
  Status get_limit(uint32_t device, uint32_t at_most, SmPart* part);
  // Where work runs that the client has put into a green context of its own. `of`: the SMs of which
  // that was made; nothing: of the device's. Null: in the green context, since the session still
  // has these SMs; else in the set that the session has now. Does not wait after a get_limit().
  Status get_instead(uint32_t device, const std::optional<SmSet>& of, SmPart* part);
  // The lease of the set that get() gave, whose SMs others have while the session has no work;
  // null: the SMs are not lent.
  [[nodiscard]] std::shared_ptr<Lease> lease(uint32_t device, uint32_t at_most = 0);
  void use(Lease& lease, Rank rank);
  // The member whose demand note() takes; null: the demand does not matter. After get().
  using Member = SmPartitions::Member;
  [[nodiscard]] Member* member(uint32_t device, uint32_t at_most) const;
  // As SmPartitions::asks(), looks() and note().
  [[nodiscard]] bool asks(uint32_t device) const {
    return partitions_ != nullptr && partitions_->asks(device);
  }
  [[nodiscard]] bool looks(uint32_t device) const { return partitions_->looks(device); }
  [[nodiscard]] uint32_t few(uint32_t device) const { return partitions_->few(device); }
  void note(Member& member, const Demand& demand);
  // get() does not wait.
  [[nodiscard]] bool has(uint32_t device, uint32_t at_most = 0) const {
    return members_.contains(key_of(device, at_most));
  }
  // The session has less than the device, or one of its contexts that get() was called for has, or
  // some SMs of the device are reserved.
  [[nodiscard]] bool is_limited(uint32_t device);

  // By which FairShares knows the session's work, unless it is in a group.
  [[nodiscard]] const void* owner() const { return &changes_; }

  // Grows with each change of what get() or lease() returns, and with touch().
  [[nodiscard]] uint64_t changes() const { return changes_.load(std::memory_order_acquire); }
  // Something else that streams are made with has changed: their priority, or the
  // session's weight. Any thread.
  void touch() { changes_.fetch_add(1, std::memory_order_release); }

  // What the session may have from now on. Any thread.
  void set(uint32_t device, const SmTerms& terms);

  // No stream of the session is left.
  void release_all();

 private:
  using Key = std::pair<uint32_t, uint32_t>;  // device, SMs at most in whole steps
  [[nodiscard]] Key key_of(uint32_t device, uint32_t at_most) const;
  [[nodiscard]] SmTerms terms_of(const Key& key) const;

  const Clock& clock_;
  const DriverTable& driver_;
  const Devices& devices_;
  const GateClient& gate_client_;
  SmPartitions* const partitions_;
  std::atomic<uint64_t> changes_{1};
  // One change at a time, and none while members leave.
  Mutex changing_{LockRank::kDevicePartsChange};
  // Guards what follows, except that the session's thread, which alone changes members_, reads them
  // without.
  Mutex mutex_{LockRank::kDeviceParts};
  std::array<SmTerms, wire::kMaxDevices> terms_{};
  std::map<Key, std::unique_ptr<Member>> members_;
};

}  // namespace openmps::worker
