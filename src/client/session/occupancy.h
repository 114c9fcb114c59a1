// SPDX-License-Identifier: Apache-2.0
// How many blocks of a kernel fit an SM. The worker's driver is asked once for each shape, and the
// answer is kept: libraries ask before each launch (cuBLASLt five times a step of PyTorch's LeNet),
// and a question may have to wake the session's thread. On the program's threads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "client/session/session.h"

namespace openmps::client {

// cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags of a block of `threads` (positive) with so
// many bytes of dynamic shared memory. Errors: the driver's, which are not kept.
[[nodiscard]] CUresult occupancy(Session& session, const Function& function, int threads,
                                 size_t dynamic_shared_bytes, unsigned int flags, uint64_t* blocks);

}  // namespace openmps::client
