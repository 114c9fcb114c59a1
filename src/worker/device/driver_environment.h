// SPDX-License-Identifier: Apache-2.0
// What the driver underneath finds in this process's environment: read by it when it initialises,
// so settled before it is loaded. And numbers that an operator sets there. Main thread, before any
// other.
#pragma once

#include <cstdint>
#include <optional>

namespace openmps::worker {

// Hardware queues of a context. The most that NVIDIA's driver takes, and not its default of 8:
// with as many streams that wait as there are queues every other stream of the context stops
// (measured on an H200), and here the streams are those of all clients.
inline constexpr unsigned kMaxConnections = 32;

// The value of a variable; nothing: it is not set, or not a number from `least` to `most`, which is
// logged.
std::optional<uint32_t> number_setting(const char* variable, uint32_t least, uint32_t most);

// Remove every CUDA_MPS_* variable: the driver must not take the worker for a client of NVIDIA's
// MPS. Remove what switches launches, compiling and loading for one program. Set
// CUDA_DEVICE_MAX_CONNECTIONS to kMaxConnections, or to OPENMPS_DEVICE_MAX_CONNECTIONS where that
// is a number from 1 to it. What the variable was before doesn't count: job scripts export it for
// their programs, not for the daemon that they start. Returns how many there are.
uint32_t prepare_driver_environment();

}  // namespace openmps::worker
