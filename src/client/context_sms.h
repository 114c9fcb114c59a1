// SPDX-License-Identifier: Apache-2.0
// How many SMs a new context may use: what MPS calls non-uniform partitioning, and CUDA execution
// affinity (docs/decisions/0026). Any thread.
#pragma once

#include <cstdint>

#include "client/devices.h"

namespace openmps::client {

// The program has percentages by context:
// CUDA_MPS_ENABLE_PER_CTX_DEVICE_MULTIPROCESSOR_PARTITIONING says so, which has to be set before it
// starts.
[[nodiscard]] bool has_percentages_by_context();

// CUDA_MPS_ACTIVE_THREAD_PERCENTAGE of the program: with percentages by context what it was started
// with, since it may have changed the variable for its first context by now. 0: it says nothing.
[[nodiscard]] float percentage_of_program();

// At most, 0: as many as the program. `wanted`: SMs by execution affinity, rounded up to what the
// device can make; 0: nothing said. With percentages by context the variable counts as it is now.
[[nodiscard]] uint32_t sms_of_new_context(const Devices& devices, uint32_t device, uint32_t wanted);

}  // namespace openmps::client
