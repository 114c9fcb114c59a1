// SPDX-License-Identifier: Apache-2.0
// The one mutex of all graphs of a process. It guards their structure: nodes, edges, child graphs
// and conditional bodies, which are built rarely and briefly. A process has one driver, so the
// mutex is a global, which lets each function that needs it name it.
#pragma once

#include "base/mutex.h"

namespace openmps::softgpu {

inline constinit Mutex graph_mutex{LockRank::kSoftGraphs};

}  // namespace openmps::softgpu
