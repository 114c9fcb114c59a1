// SPDX-License-Identifier: Apache-2.0
// One event of the driver, which is destroyed with its last holder: several sessions may hold it.
#pragma once

#include <cstdint>

#include "api/driver_table.h"

namespace openmps::worker {

class DriverEvent {
 public:
  DriverEvent(const DriverTable& driver, CUevent handle, uint32_t device)
      : handle(handle), device(device), driver_(driver) {}
  ~DriverEvent() { driver_.cuEventDestroy_v2(handle); }
  DriverEvent(const DriverEvent&) = delete;
  DriverEvent& operator=(const DriverEvent&) = delete;

  const CUevent handle;
  const uint32_t device;

 private:
  const DriverTable& driver_;
};

}  // namespace openmps::worker
