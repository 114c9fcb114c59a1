// SPDX-License-Identifier: Apache-2.0
// Collects what programs may ask of the devices (wire/device_facts.h) into a sealed file that every
// client maps. Called once by main().
#pragma once

#include "base/unique_fd.h"
#include "cuda/status.h"
#include "worker/device/devices.h"

namespace openmps::worker {

// A memfd of wire::Facts that nobody can change any more. `software`: the driver is softgpu.
Result<UniqueFd> collect_facts(const DriverTable& driver, const Devices& devices, bool software);

}  // namespace openmps::worker
