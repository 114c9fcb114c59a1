// SPDX-License-Identifier: Apache-2.0
// One event of the driver, which is destroyed with its last holder: several sessions may hold it.
#pragma once

#include <cstdint>
#include <memory>

#include "api/driver_table.h"
#include "cuda/status.h"
#include "worker/device/driver_check.h"

namespace openmps::worker {

class DriverEvent {
 public:
  DriverEvent(const DriverTable& driver, CUevent handle, uint32_t device)
      : handle(handle), device(device), driver_(driver) {}
  ~DriverEvent() { driver_.cuEventDestroy_v2(handle); }
  DriverEvent(const DriverEvent&) = delete;
  DriverEvent& operator=(const DriverEvent&) = delete;
  // In the context that is current, which is one of the device's.
  static Status make(const DriverTable& driver, uint32_t device, std::unique_ptr<DriverEvent>* made,
                     uint32_t flags = CU_EVENT_DISABLE_TIMING) {
    CUevent handle = nullptr;
    OPENMPS_RETURN_IF_ERROR(check(driver.cuEventCreate(&handle, flags), "cuEventCreate"));
    *made = std::make_unique<DriverEvent>(driver, handle, device);
    return Status();
  }

  const CUevent handle;
  const uint32_t device;

 private:
  const DriverTable& driver_;
};

}  // namespace openmps::worker
