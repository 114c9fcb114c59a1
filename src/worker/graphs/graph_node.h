// SPDX-License-Identifier: Apache-2.0
// Work as a node of a driver's graph. Session's thread only.
#pragma once

#include <cstdint>
#include <span>

#include "worker/core/session_core.h"
#include "worker/graphs/driver_graph.h"
#include "worker/streams/fence.h"
#include "worker/work/work.h"

namespace openmps::worker {

// A node that is to be made, or is there and gets new parameters.
struct NodePlace {
  CUgraph graph = nullptr;  // a new one, behind these
  std::span<const CUgraphNode> before{};
  CUgraphExec exec = nullptr;  // in that executable graph; null: in its graph
  CUgraphNode* first = nullptr;
  CUgraphNode* last = nullptr;  // the same but for a host call
  CUcontext context = nullptr;  // in which kernels of the main lane run,
  CUcontext copies = nullptr;   // and what copies and fills belong to
  int32_t priority = 0;         // of kernels that say none
};

// Nothing to do is an empty node. CUDA_ERROR_INVALID_VALUE: what can't be changed in an executable
// graph; what the driver says.
Status put_node(SessionCore& core, Fences& fences, uint32_t device, const NodePlace& place,
                const Work& work);

}  // namespace openmps::worker
