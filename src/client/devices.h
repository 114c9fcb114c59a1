// SPDX-License-Identifier: Apache-2.0
// The devices that the program sees: those that CUDA_VISIBLE_DEVICES leaves of the worker's, by
// ordinal, with their facts. Constant once connected. Any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "cuda/abi.h"
#include "cuda/sm_steps.h"
#include "cuda/status.h"
#include "wire/device_facts.h"

namespace openmps::client {

// The worker's devices that the program sees, in its order: those that CUDA_VISIBLE_DEVICES leaves;
// in a static partition no other device than that of it.
// Errors: CUDA_ERROR_INVALID_DEVICE, CUDA_ERROR_NO_DEVICE (cuda/visible_devices.h).
[[nodiscard]] Result<std::vector<uint32_t>> visible_devices(const wire::Facts& facts,
                                                            const wire::StaticPartition& partition);

class Devices {
 public:
  // The program sees as many SMs of each device as its own limits and its group's leave; in a
  // static partition those of the partition. `visible`: from visible_devices().
  Devices(std::unique_ptr<wire::Facts> facts, std::vector<uint32_t> visible,
          const wire::ClientLimits& own, const wire::ClientLimits& group,
          const wire::StaticPartition& partition);

  [[nodiscard]] uint32_t size() const { return static_cast<uint32_t>(visible_.size()); }
  [[nodiscard]] bool valid(CUdevice device) const {
    return device >= 0 && static_cast<uint32_t>(device) < size();
  }
  // The worker's number of an ordinal.
  [[nodiscard]] uint32_t operator[](size_t ordinal) const { return visible_[ordinal]; }
  // The ordinal of a device of the worker's; nothing: CUDA_VISIBLE_DEVICES hides it.
  [[nodiscard]] std::optional<uint32_t> ordinal_of(uint32_t wire_device) const;
  [[nodiscard]] const wire::DeviceFacts& facts(uint32_t ordinal) const {
    return facts_->device[visible_[ordinal]];
  }
  // How many SMs the program sees,
  [[nodiscard]] uint32_t sms(uint32_t ordinal) const {
    return static_cast<uint32_t>(
        facts(ordinal).attribute[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT]);
  }
  // and how the device hands out all that it has.
  [[nodiscard]] const cuda::SmSteps& steps(uint32_t ordinal) const {
    return steps_[visible_[ordinal]];
  }
  // 10 * major + minor of each.
  [[nodiscard]] std::vector<uint32_t> capabilities() const;

 private:
  cuda::SmSteps steps_[wire::kMaxDevices];
  const std::unique_ptr<wire::Facts> facts_;
  const std::vector<uint32_t> visible_;  // ordinal -> the worker's device
};

}  // namespace openmps::client
