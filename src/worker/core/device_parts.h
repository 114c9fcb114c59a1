// SPDX-License-Identifier: Apache-2.0
// The parts of the devices that a session is limited to (docs/decisions/0026): sets of SMs on which
// its kernels run, whoever launches them and how. Session's thread only.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "cuda/status.h"
#include "wire/handshake.h"
#include "worker/device/context_gate.h"
#include "worker/device/devices.h"
#include "worker/device/placement.h"
#include "worker/shared/exchange.h"

namespace openmps::worker {

class DeviceParts {
 public:
  using Sms = std::array<uint32_t, wire::kMaxDevices>;

  // `sms`: that the session may use of each device, 0: all. All outlive it.
  DeviceParts(const DriverTable& driver, const Devices& devices, ContextGate& gate,
              const ContextGate::Feeder& feeder, Commons& commons, const Sms& sms)
      : driver_(driver),
        devices_(devices),
        gate_(gate),
        feeder_(feeder),
        commons_(commons),
        sms_(sms) {}

  [[nodiscard]] bool is_limited(uint32_t device) const {
    return sms_[device] != 0 && sms_[device] < devices_.at(device).sms;
  }
  // What the session has of the device; null: all of it. It is there from the first call on, which
  // may have to wait for a quiet moment: not between the gate's enter() and leave(). Errors: those
  // of SmPartitions::take().
  Status get(uint32_t device, GreenContext** part);
  // The same if it is there.
  [[nodiscard]] const GreenContext* find(uint32_t device) const {
    return parts_[device].green.handle == nullptr ? nullptr : &parts_[device].green;
  }
  // No stream of the session is left.
  void release_all();

 private:
  struct Part {
    std::shared_ptr<const SmPartition> held;
    GreenContext green;
  };

  const DriverTable& driver_;
  const Devices& devices_;
  ContextGate& gate_;
  const ContextGate::Feeder& feeder_;
  Commons& commons_;
  const Sms& sms_;
  std::array<Part, wire::kMaxDevices> parts_;
};

}  // namespace openmps::worker
