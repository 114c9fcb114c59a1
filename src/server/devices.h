// SPDX-License-Identifier: Apache-2.0
// The part of the worker's device facts that the server uses: names for logs and for the daemon's
// tables. Read once per worker, on the loop's thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/status.h"

namespace openmps::server {

struct Device {
  std::string name;
  std::string pci_bus_id;  // "0000:00:06.0"
  std::string uuid;        // "GPU-008cbaa3-6cdc-9444-312b-2ca50d63b155"
  uint32_t sms = 0;
  uint64_t memory_bytes = 0;
  uint32_t sm_step = 0;             // SMs of one group, the step of limits; 0: no partitions
  uint32_t most_sms = 0;            // of all groups
  uint32_t compute_capability = 0;  // 10 * major + minor
  uint32_t cuda_version = 0;        // of the driver, e.g. 13000
};

// Read the facts of a worker (read(), since the writer could truncate a mapped file), and seal the
// file, so that no client can change it for others. Errors: CUDA_ERROR_INVALID_VALUE.
Result<std::vector<Device>> read_devices(int facts_file);

// The device that a program uses first, by its CUDA_VISIBLE_DEVICES as Hello carries it ("\x01" in
// front if set). 0 if the variable hides all.
uint32_t first_visible_device(const std::vector<Device>& devices, std::string_view visible_devices);
// The same of a program that sees one of several devices; nothing: it sees others, or none.
std::optional<uint32_t> sole_visible_device(const std::vector<Device>& devices,
                                            std::string_view visible_devices);

}  // namespace openmps::server
