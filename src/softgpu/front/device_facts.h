// SPDX-License-Identifier: Apache-2.0
// What the modelled device says about itself. Pure functions of the configuration.
#pragma once

#include "cuda/abi.h"
#include "softgpu/device/driver.h"

namespace openmps::softgpu {

struct PciAddress {
  uint32_t domain;
  uint32_t bus;
  uint32_t device;
};

CUuuid device_uuid(const Driver& driver, const Device& device);
PciAddress device_pci_address(const Device& device);

// False: no such attribute.
bool device_attribute(const Driver& driver, const Device& device, CUdevice_attribute attribute,
                      int* value);

}  // namespace openmps::softgpu
