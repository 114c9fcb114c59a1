// SPDX-License-Identifier: Apache-2.0
// What NVML's calls are told of a share, from what the daemon answers. By a namespace's socket the
// daemon names the namespace's clients and limits alone; by its own socket, the share is the whole
// device. Pure functions and values, for machine.cc.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "nvml/machine.h"
#include "observe/snapshot.h"

namespace openmps::share_nvml {

// In the daemon's order, which is that of the numbers that CUDA_VISIBLE_DEVICES states.
std::vector<nvml::Device> devices_of(const observe::Snapshot& snapshot);
// 0: the daemon does not know it.
uint32_t cuda_version_of(const observe::Snapshot& snapshot);

// The next three: CUDA_ERROR_INVALID_DEVICE: the daemon does not have the device any more.

// Of the share, as far as it may go, and what its clients hold.
Result<nvml::Memory> memory_of(const observe::Snapshot& snapshot, std::string_view uuid);
// The clients of the share that use the device, of the PID namespace with that inode: others have
// no PID there that the daemon knows.
Result<std::vector<nvml::Process>> processes_of(const observe::Snapshot& snapshot,
                                                std::string_view uuid, uint32_t pid_namespace);
// The SM-time that the clients of the share had between two readings, of that of the share's SMs:
// 100 at most, also where they had more by borrowing. CUDA_ERROR_NOT_SUPPORTED: times are not
// measured.
Result<nvml::Utilization> utilization_between(const observe::Snapshot& before,
                                              const observe::Snapshot& now, std::string_view uuid,
                                              uint32_t pid_namespace);

// What the daemon has answered lately. NVML's own utilisation is that of up to a second.
inline constexpr uint64_t kSampleNs = 1'000'000'000;
inline constexpr uint64_t kOldestNs = 10 * kSampleNs;

class Readings {
 public:
  // `reading` is newer than all that are there.
  void add(std::shared_ptr<const observe::Snapshot> reading);
  // Null: there is none.
  [[nodiscard]] std::shared_ptr<const observe::Snapshot> latest() const;
  // The one to compare the latest one with: at least kSampleNs older if there is one, at most
  // kOldestNs older. Null: there is none.
  [[nodiscard]] std::shared_ptr<const observe::Snapshot> before() const;

 private:
  std::deque<std::shared_ptr<const observe::Snapshot>> readings_;  // oldest first
};

}  // namespace openmps::share_nvml
