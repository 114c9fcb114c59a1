// SPDX-License-Identifier: Apache-2.0
// The parts of the devices that a session has: sets of SMs on which its kernels run, whoever
// launches them and how, or all (docs/decisions/0026). They may change at any time (0028).
// Session's thread, but for what says otherwise.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "base/clock.h"
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

  // What the session has of the device, but at most so many SMs (0: any number), as long as it is
  // held; null: all of it. It is there from the first call on, which may have to wait for a quiet
  // moment: not between the gate's enter() and leave(). Errors: those of SmPartitions::join().
  Status get(uint32_t device, uint32_t at_most, SmPart* part);
  Status get(uint32_t device, SmPart* part) { return get(device, 0, part); }
  // The same as far as it is a limit, which is what the client is told: who has the few SMs that
  // are kept for ranks has the whole device if need be.
  Status get_limit(uint32_t device, uint32_t at_most, SmPart* part);
  // Where work runs that the client has put into a green context of its own, which was made of SMs
  // that it had then (`of`; nothing: of the device's): null, there, as long as these are among what
  // it has; else in what the session has by now. Does not wait behind a get_limit().
  Status get_instead(uint32_t device, const std::optional<SmSet>& of, SmPart* part);
  // What goes with what get() gave: the SMs are lent to others while the session has no work. Null:
  // they are not.
  [[nodiscard]] std::shared_ptr<Lease> lease(uint32_t device, uint32_t at_most = 0);
  void use(Lease& lease, Rank rank);
  // Whose demand note() is to be told; null: nobody asks for it. From get() on.
  using Member = SmPartitions::Member;
  [[nodiscard]] Member* member(uint32_t device, uint32_t at_most) const;
  // As SmPartitions::asks(), looks() and note().
  [[nodiscard]] bool asks(uint32_t device) const {
    return partitions_ != nullptr && partitions_->asks(device);
  }
  [[nodiscard]] bool looks(uint32_t device) const { return partitions_->looks(device); }
  [[nodiscard]] uint32_t few(uint32_t device) const { return partitions_->few(device); }
  void note(Member& member, const Demand& demand);
  // get() would not wait.
  [[nodiscard]] bool has(uint32_t device, uint32_t at_most = 0) const {
    return members_.contains(key_of(device, at_most));
  }
  // The session, or what it has asked for so far, has less than the device, from its start on or by
  // now, or SMs of it are reserved for anybody.
  [[nodiscard]] bool is_limited(uint32_t device);

  // Grows with each change of what some get() says, or of what goes with it (see touch()).
  [[nodiscard]] uint64_t changes() const { return changes_.load(std::memory_order_acquire); }
  // Something else that streams are made with has changed. Any thread.
  void touch() { changes_.fetch_add(1, std::memory_order_release); }

  // From now on. Any thread.
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
  std::mutex changing_;  // one change at a time, and none while members leave
  std::mutex mutex_;     // guards what follows; the session's thread reads members_ without
  std::array<SmTerms, wire::kMaxDevices> terms_{};
  std::map<Key, std::unique_ptr<Member>> members_;
};

}  // namespace openmps::worker
