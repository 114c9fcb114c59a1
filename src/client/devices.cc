// SPDX-License-Identifier: Apache-2.0
// See devices.h.
#include "client/devices.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/environment.h"
#include "base/text.h"
#include "cuda/sm_steps.h"
#include "cuda/visible_devices.h"

namespace openmps::client {
namespace {

std::unique_ptr<wire::Facts> limited(std::unique_ptr<wire::Facts> facts,
                                     const wire::ClientLimits& limits,
                                     const wire::ClientLimits& group,
                                     cuda::SmSteps (&steps)[wire::kMaxDevices]) {
  for (uint32_t i = 0; i < wire::kMaxDevices; ++i) {
    wire::DeviceFacts& device = facts->device[i];
    int32_t& sms = device.attribute[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT];
    steps[i] = {static_cast<uint32_t>(sms), device.sm_step, device.most_sms};
    const uint32_t own =
        cuda::sms_of_limits(steps[i], limits.sm_count[i], limits.active_thread_percentage);
    const uint32_t together =
        cuda::sms_of_limits(steps[i], group.sm_count[i], group.active_thread_percentage);
    sms = static_cast<int32_t>(std::min(own, together));
  }
  return facts;
}

std::unique_ptr<wire::Facts> limited(std::unique_ptr<wire::Facts> facts,
                                     const wire::StaticPartition& partition) {
  if (partition.sms == 0 || partition.device >= wire::kMaxDevices) return facts;
  facts->device[partition.device].attribute[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT] =
      static_cast<int32_t>(partition.sms);
  return facts;
}

}  // namespace

Result<std::vector<uint32_t>> visible_devices(const wire::Facts& facts,
                                              const wire::StaticPartition& partition) {
  std::vector<std::string> uuids;
  for (uint32_t device = 0; device < facts.device_count; ++device) {
    const wire::DeviceFacts& one = facts.device[device];
    uuids.push_back(cuda::uuid_text(one.uuid, field_text(one.name)));
  }
  Result<std::vector<uint32_t>> visible =
      cuda::visible_devices(environment_variable("CUDA_VISIBLE_DEVICES"), uuids);
  if (!visible.ok() || partition.sms == 0) return visible;
  std::erase_if(*visible, [&](uint32_t device) { return device != partition.device; });
  if (visible->empty()) {
    return Status(CUDA_ERROR_NO_DEVICE,
                  "CUDA_VISIBLE_DEVICES hides the device of the program's partition of SMs");
  }
  return visible;
}

Devices::Devices(std::unique_ptr<wire::Facts> facts, std::vector<uint32_t> visible,
                 const wire::ClientLimits& own, const wire::ClientLimits& group,
                 const wire::StaticPartition& partition)
    : facts_(limited(limited(std::move(facts), own, group, steps_), partition)),
      visible_(std::move(visible)) {}

std::optional<uint32_t> Devices::ordinal_of(uint32_t wire_device) const {
  const auto found = std::find(visible_.begin(), visible_.end(), wire_device);
  if (found == visible_.end()) return std::nullopt;
  return static_cast<uint32_t>(found - visible_.begin());
}

std::vector<uint32_t> Devices::capabilities() const {
  std::vector<uint32_t> all;
  for (const uint32_t device : visible_) {
    const auto& attribute = facts_->device[device].attribute;
    all.push_back(
        static_cast<uint32_t>(10 * attribute[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR] +
                              attribute[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR]));
  }
  return all;
}

}  // namespace openmps::client
