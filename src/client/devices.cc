// SPDX-License-Identifier: Apache-2.0
// See devices.h.
#include "client/devices.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/environment.h"
#include "cuda/sm_steps.h"

namespace openmps::client {
namespace {

int hex_digits_match(const char* text, const unsigned char (&uuid)[16]) {
  int nibble = 0;
  for (; *text != '\0' && *text != ','; ++text) {
    if (*text == '-') continue;
    if (nibble == 32) return 0;
    const int value = uuid[nibble / 2] >> (nibble % 2 == 0 ? 4 : 0) & 0xf;
    const char digit = "0123456789abcdef"[value];
    if ((*text | 0x20) != digit && *text != digit) return 0;
    ++nibble;
  }
  return nibble > 0;
}

// The worker's device that one entry of CUDA_VISIBLE_DEVICES names; device_count if none.
uint32_t named_device(const wire::Facts& facts, const char* entry) {
  if (strncmp(entry, "GPU-", 4) == 0) {
    for (uint32_t device = 0; device < facts.device_count; ++device) {
      if (hex_digits_match(entry + 4, facts.device[device].uuid)) return device;
    }
    return facts.device_count;
  }
  char* end = nullptr;
  const unsigned long number = strtoul(entry, &end, 10);
  const bool parsed = end != entry && (*end == '\0' || *end == ',');
  return parsed && number < facts.device_count ? static_cast<uint32_t>(number) : facts.device_count;
}

// CUDA_VISIBLE_DEVICES: the list counts up to its first entry that names no device or one twice.
std::vector<uint32_t> visible_devices(const wire::Facts& facts) {
  std::vector<uint32_t> devices;
  const char* entry = environment_variable("CUDA_VISIBLE_DEVICES");
  if (entry == nullptr) {
    for (uint32_t device = 0; device < facts.device_count; ++device) devices.push_back(device);
    return devices;
  }
  while (*entry == ' ') ++entry;
  while (*entry != '\0') {
    const uint32_t device = named_device(facts, entry);
    if (device == facts.device_count) break;
    for (const uint32_t earlier : devices) {
      if (earlier == device) return {};
    }
    devices.push_back(device);
    entry = strchr(entry, ',');
    if (entry == nullptr) break;
    ++entry;
  }
  return devices;
}

std::unique_ptr<wire::Facts> limited(std::unique_ptr<wire::Facts> facts, double percentage,
                                     const wire::GroupLimits& group,
                                     cuda::SmSteps (&steps)[wire::kMaxDevices]) {
  for (uint32_t i = 0; i < wire::kMaxDevices; ++i) {
    wire::DeviceFacts& device = facts->device[i];
    int32_t& sms = device.attribute[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT];
    steps[i] = {static_cast<uint32_t>(sms), device.sm_step, device.most_sms};
    const uint32_t own = cuda::sms_of_percentage(steps[i], percentage);
    const uint32_t together =
        cuda::sms_of_limits(steps[i], group.sms[i], group.active_thread_percentage);
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

std::vector<uint32_t> within(std::vector<uint32_t> devices,
                             const wire::StaticPartition& partition) {
  if (partition.sms != 0) {
    std::erase_if(devices, [&](uint32_t device) { return device != partition.device; });
  }
  return devices;
}

}  // namespace

Devices::Devices(std::unique_ptr<wire::Facts> facts, double active_thread_percentage,
                 const wire::GroupLimits& group, const wire::StaticPartition& partition)
    : facts_(
          limited(limited(std::move(facts), active_thread_percentage, group, steps_), partition)),
      visible_(within(visible_devices(*facts_), partition)) {}

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
