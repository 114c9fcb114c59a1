// SPDX-License-Identifier: Apache-2.0
// The answer that libcudart expects of the integrity table: a keyed hash over facts of the process,
// the tables and the devices. An interface of the runtime that an interoperable driver must answer;
// docs/interop.md says where the facts come from. Pure function; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "cuda/abi.h"

namespace openmps {

// What identifies a device in the hash; must agree with cuDeviceGetUuid and the PCI attributes.
struct InteropDevice {
  CUuuid uuid = {};
  int pci_domain = 0;
  int pci_bus = 0;
  int pci_device = 0;
};

struct IntegrityFacts {
  uint32_t driver_version = 0;  // as cuDriverGetVersion reports
  uint32_t version = 0;         // as the runtime asked
  uint32_t process = 0;         // process id
  uint32_t thread = 0;          // low half of pthread_self()
  const void* cudart_table = nullptr;
  const void* integrity_table = nullptr;
  const void* function = nullptr;  // of the integrity table
  uint64_t unix_seconds = 0;       // as the runtime asked
};

using IntegrityAnswer = std::array<uint64_t, 2>;

// `devices`: all devices in the order of their ordinals.
IntegrityAnswer integrity_answer(const IntegrityFacts& facts, const InteropDevice* devices,
                                 size_t device_count);

}  // namespace openmps
