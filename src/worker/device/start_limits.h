// SPDX-License-Identifier: Apache-2.0
// Limits that the shared contexts begin with: what the daemon's environment says
// (docs/decisions/0012). Called by main() before there are sessions.
#pragma once

#include "worker/device/devices.h"

namespace openmps::worker {

// OPENMPS_MALLOC_HEAP and OPENMPS_STACK, for every device. Errors: the driver does not grant them,
// or they are no sizes; the worker can't start then, for its clients rely on them.
Status set_start_limits(const DriverTable& driver, const Devices& devices);

}  // namespace openmps::worker
