// SPDX-License-Identifier: Apache-2.0
// How many blocks of a kernel an SM has room for. The worker's driver says it, once for each shape:
// libraries ask before each launch (cuBLASLt, PyTorch's LeNet five times a step), and an answer
// that is waited for may have to wake the session's thread. On the program's threads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "client/session/session.h"

namespace openmps::client {

// cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags of a block of `threads` (positive) with so
// many bytes of dynamic shared memory. Errors: the driver's, which are asked for anew each time.
[[nodiscard]] CUresult occupancy(Session& session, const Function& function, int threads,
                                 size_t dynamic_shared_bytes, unsigned int flags, uint64_t* blocks);

}  // namespace openmps::client
