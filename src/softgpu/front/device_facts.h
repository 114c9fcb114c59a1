// SPDX-License-Identifier: Apache-2.0
// What the modelled device says about itself. Pure functions of the configuration.
#pragma once

#include "cuda/devices.h"
#include "softgpu/device/driver.h"

namespace openmps::softgpu {

using cuda::PciAddress;

PciAddress device_pci_address(const Device& device);

// False: no such attribute.
bool device_attribute(const Driver& driver, const Device& device, CUdevice_attribute attribute,
                      int* value);

}  // namespace openmps::softgpu
