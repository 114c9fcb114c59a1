// SPDX-License-Identifier: Apache-2.0
// The parts of the devices that limited sessions have: sets of SMs, each a green context of the
// shared context (docs/decisions/0026). Sessions may have the same set; it is chosen so that those
// overlap least that have different ones. Any thread.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "wire/handshake.h"
#include "worker/device/context_gate.h"
#include "worker/device/devices.h"

namespace openmps::worker {

class ResourceDescriptors;

// The driver hands out SMs in groups of equal size: more than any GPU has.
inline constexpr size_t kMostSmGroups = 128;
using SmGroups = std::bitset<kMostSmGroups>;

// The `count` groups that fewest have, of as many as there are `users`; among equals those of
// lowest number, so that equal wishes get equal sets where that costs nobody anything.
[[nodiscard]] SmGroups least_used(std::span<const uint32_t> users, size_t count);

struct SmPartition {
  uint32_t device = 0;
  uint32_t sms = 0;
  SmGroups groups;
  CUgreenCtx handle = nullptr;
  CUcontext context = nullptr;  // as which it is current
};

class SmPartitions {
 public:
  // Both outlive it.
  SmPartitions(const DriverTable& driver, const Devices& devices)
      : driver_(driver), devices_(devices) {}
  ~SmPartitions();
  SmPartitions(const SmPartitions&) = delete;
  SmPartitions& operator=(const SmPartitions&) = delete;

  // A part of so many SMs, whole steps of the device (Device::sm_steps), for as long as somebody
  // holds it. The device's context is current. A new one is made in a quiet moment: not between
  // the gate's enter() and leave(). Errors: those of cuDevSmResourceSplitByCount,
  // cuDevResourceGenerateDesc and cuGreenCtxCreate.
  Result<std::shared_ptr<const SmPartition>> take(uint32_t device, uint32_t sms,
                                                  ResourceDescriptors& descriptors,
                                                  ContextGate& gate,
                                                  const ContextGate::Feeder* feeder);

 private:
  struct Made {
    SmPartition partition;
    uint32_t users = 0;
  };
  struct OfDevice {
    std::vector<CUdevResource> groups;  // from one split, as the driver wants them
    std::vector<uint32_t> users;        // of each
    std::vector<std::unique_ptr<Made>> made;
  };

  Status split_locked(uint32_t device);
  Result<std::unique_ptr<Made>> make(uint32_t device, const SmGroups& groups,
                                     ResourceDescriptors& descriptors, ContextGate& gate,
                                     const ContextGate::Feeder* feeder);
  Made* find_locked(uint32_t device, const SmGroups& groups);
  void give_back(Made& made);
  void destroy(const SmPartition& partition);

  const DriverTable& driver_;
  const Devices& devices_;
  std::mutex mutex_;
  std::array<OfDevice, wire::kMaxDevices> of_;
};

}  // namespace openmps::worker
