// SPDX-License-Identifier: Apache-2.0
// The server's reading of the worker's device facts.
#include "server/devices.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "base/text.h"
#include "cuda/visible_devices.h"
#include "wire/device_facts.h"

namespace openmps::server {

Result<std::vector<Device>> read_devices(int facts_file) {
  // Fails if there is a writable mapping, or the worker has sealed the file already.
  (void)fcntl(facts_file, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW);
  const auto facts = std::make_unique<wire::Facts>();
  const ssize_t got = pread(facts_file, facts.get(), sizeof(*facts), 0);
  if (got != static_cast<ssize_t>(sizeof(*facts)) || facts->magic != wire::kMagic ||
      facts->version != wire::kProtocolVersion || facts->bytes != sizeof(*facts)) {
    return Status(CUDA_ERROR_INVALID_VALUE, "the worker's device facts are not of this version");
  }
  if (facts->device_count > wire::kMaxDevices) {
    return Status(CUDA_ERROR_INVALID_VALUE,
                  format_text("the worker claims %u devices", facts->device_count));
  }
  std::vector<Device> devices;
  for (uint32_t i = 0; i < facts->device_count; ++i) {
    const wire::DeviceFacts& device = facts->device[i];
    const auto attribute = [&device](CUdevice_attribute which) {
      return static_cast<uint32_t>(std::max(device.attribute[which], 0));
    };
    devices.push_back(Device{printable(field_text(device.name)),
                             printable(field_text(device.pci_bus_id)),
                             cuda::uuid_text(device.uuid, field_text(device.name)),
                             attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
                             device.total_memory, device.sm_step, device.most_sms,
                             10 * attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
                                 attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
                             static_cast<uint32_t>(std::max(facts->driver_version, 0))});
  }
  return devices;
}

namespace {

// By CUDA_VISIBLE_DEVICES, if it is set; empty: it is not, or leaves none.
std::vector<uint32_t> chosen_devices(const std::vector<Device>& devices,
                                     std::string_view visible_devices) {
  if (visible_devices.empty() || visible_devices.front() != '\x01') return {};
  visible_devices.remove_prefix(1);
  std::vector<std::string> uuids;
  for (const Device& device : devices) uuids.push_back(device.uuid);
  auto visible = cuda::visible_devices(std::string(visible_devices).c_str(), uuids);
  return visible.ok() ? std::move(*visible) : std::vector<uint32_t>();
}

}  // namespace

uint32_t first_visible_device(const std::vector<Device>& devices,
                              std::string_view visible_devices) {
  const std::vector<uint32_t> chosen = chosen_devices(devices, visible_devices);
  return chosen.empty() ? 0 : chosen.front();
}

std::optional<uint32_t> sole_visible_device(const std::vector<Device>& devices,
                                            std::string_view visible_devices) {
  if (devices.size() <= 1) return std::nullopt;
  const std::vector<uint32_t> chosen = chosen_devices(devices, visible_devices);
  return chosen.size() == 1 ? std::optional(chosen.front()) : std::nullopt;
}

}  // namespace openmps::server
