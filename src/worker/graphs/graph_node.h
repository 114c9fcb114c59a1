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

// The place of a node that is to be made, or that gets new parameters.
struct NodePlace {
  CUgraph graph = nullptr;  // for a new node, behind `before`
  std::span<const CUgraphNode> before{};
  CUgraphExec exec = nullptr;  // for a node of that executable graph; null: of the graph
  CUgraphNode* first = nullptr;
  CUgraphNode* last = nullptr;  // equal to *first, but for a host call
  CUcontext context = nullptr;  // of kernels in the main context,
  CUcontext copies = nullptr;   // and of copies and fills
  int32_t priority = 0;         // of kernels that have none set
};

// Work that does nothing becomes an empty node. CUDA_ERROR_INVALID_VALUE: the parameters can't be
// changed in an executable graph. Other errors are the driver's.
Status put_node(SessionCore& core, Fences& fences, uint32_t device, const NodePlace& place,
                const Work& work);

}  // namespace openmps::worker
