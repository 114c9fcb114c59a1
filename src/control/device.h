// SPDX-License-Identifier: Apache-2.0
// A device as the daemon knows it: from a server's answer, never from CUDA.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace openmps::control {

struct Device {
  std::string pci_bus_id;  // "0000:00:06.0"
  std::string uuid;        // "GPU-008cbaa3-6cdc-9444-312b-2ca50d63b155"
  std::string name;
  uint32_t sms = 0;
  uint64_t memory_bytes = 0;
  uint32_t chunk_sms = 0;  // SMs of a chunk, the unit of partitions; 0: no partitions
  uint32_t chunks = 0;
  uint32_t compute_capability = 0;  // 10 * major + minor; 0: not known
  uint32_t cuda_version = 0;        // of the driver, e.g. 13000; 0: not known
};

// Parses the text of an Answer to kDevices: at most wire::kMaxDevices lines of nine fields, of
// which a server of an older build does not send the last two; malformed lines are skipped.
std::vector<Device> parse_devices(std::string_view text);

}  // namespace openmps::control
