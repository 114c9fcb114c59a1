// SPDX-License-Identifier: Apache-2.0
// Generated from api/*.toml by api/generate.py; do not edit.
// The addresses of softgpu's own entry points, for its cuGetProcAddress.
#pragma once

#include "api/driver_table.h"

namespace openmps {

extern const DriverTable kSoftgpuTable;

// Entry point of the symbol that find_proc gave.
inline void* softgpu_entry(uint16_t symbol) {
  return reinterpret_cast<void* const*>(&kSoftgpuTable)[symbol];
}

}  // namespace openmps
