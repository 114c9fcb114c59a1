// SPDX-License-Identifier: Apache-2.0
// The one mutex of all scheduling state of a process: the graph of operations, the queues of
// streams and contexts, and the executors of the devices. Critical sections are short: kernels,
// copies and host functions run without the mutex. A process has one driver, so the mutex is a
// global, which lets each member that it guards name it.
#pragma once

#include "base/mutex.h"

namespace openmps::softgpu {

inline constinit Mutex scheduler_mutex{LockRank::kSoftScheduler};

}  // namespace openmps::softgpu
