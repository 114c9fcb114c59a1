// SPDX-License-Identifier: Apache-2.0
// What the server itself needs of the worker's device facts: names for logs and for the daemon's
// tables. Read once per worker, on the loop's thread.
#pragma once

#include <cstdint>
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
  uint32_t sm_step = 0;   // SMs of one group, the step of limits; 0: it makes no parts
  uint32_t most_sms = 0;  // of all groups
};

// Read (not map: the writer could cut the file) the facts of a worker, and seal the file so that no
// client that it is passed to can change it under another. Errors: CUDA_ERROR_INVALID_VALUE.
Result<std::vector<Device>> read_devices(int facts_file);

// The device that a program uses first, by its CUDA_VISIBLE_DEVICES as Hello carries it ("\x01" in
// front if set). 0 if it leaves none of ours.
uint32_t first_visible_device(const std::vector<Device>& devices, std::string_view visible_devices);

}  // namespace openmps::server
