// SPDX-License-Identifier: Apache-2.0
// Executable graphs: snapshots of graphs, which graph_launch.h launches. API threads.
#pragma once

#include <memory>
#include <vector>

#include "base/mutex.h"
#include "cuda/status.h"
#include "softgpu/device/graphs/graph_steps.h"
#include "softgpu/device/schedule/operation.h"
#include "softgpu/device/user_object.h"

namespace openmps::softgpu {

class Driver;
struct Graph;

// A snapshot in topological order: launches do not look at the graph. The bodies of conditional
// nodes are lists of steps of their own, which never change: what changes a step in one replaces
// the list, so that launches under way keep theirs.
struct GraphExec : std::enable_shared_from_this<GraphExec> {
  using Step = GraphStep;

  // Kernels may launch it.
  [[nodiscard]] bool for_device() const {
    return (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0;
  }

  CUgraphExec handle = nullptr;
  uint64_t id = 0;  // for recordings
  uint64_t flags = 0;
  Mutex mutex{LockRank::kSoftGraphExec};
  std::vector<Step> steps GUARDED_BY(mutex);
  OperationPtr last_launch GUARDED_BY(mutex);  // launches of one exec never overlap
  // Conditions that get their defaults at a launch.
  std::vector<std::shared_ptr<Condition>> conditions GUARDED_BY(mutex);
  std::vector<std::shared_ptr<UserObjectHold>> user_objects GUARDED_BY(mutex);
  bool uploaded GUARDED_BY(mutex) = false;  // since it was made or changed
  std::shared_ptr<const void> lots;         // for its branches
  // For graphs that kernels launch: runs in progress, and whether one waits as a tail launch.
  uint32_t runs GUARDED_BY(scheduler_mutex) = 0;
  bool waits_as_tail GUARDED_BY(scheduler_mutex) = false;
};

Result<std::shared_ptr<GraphExec>> instantiate(Driver& driver, Graph& graph, uint64_t flags);
// Both are kernels of the same context, the green one included, or one of them is no kernel.
[[nodiscard]] bool same_context(const Work& one, const Work& other);
// cuGraphExecUpdate: same topology, new parameters. `info`: what differs. As measured on an H200,
// CUDA_ERROR_NOT_SUPPORTED leaves it as it was: the graph's memory is another executable graph's.
Status update_exec(GraphExec& exec, const Graph& graph, CUgraphExecUpdateResultInfo* info);

}  // namespace openmps::softgpu
