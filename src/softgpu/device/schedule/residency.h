// SPDX-License-Identifier: Apache-2.0
// What one context has on its device: kernels that wait for multiprocessors, and blocks on them.
// Contexts do not share a multiprocessor but take turns, so each has all of them to itself here.
// Part of ExecutionContext, used by its device's DeviceExecutor; guarded by scheduler_mutex.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <vector>

#include "softgpu/device/machine/sm.h"
#include "softgpu/device/schedule/operation.h"
#include "softgpu/engine.h"

namespace openmps::softgpu {

// Priority levels: stream priorities 0 (least) to -5 (greatest), as on current GPUs.
inline constexpr int kGreatestPriority = -5;
inline constexpr uint32_t kPriorityLevels = 6;

// A block, or the blocks of a cluster, which one worker runs in turn.
struct ResidentBlock {
  std::shared_ptr<KernelOperation> kernel;
  uint64_t index = 0;              // of the cluster
  uint32_t sm = 0;                 // of the first block; its worker runs all
  std::vector<uint32_t> more_sms;  // of the others, by rank
  std::unique_ptr<BlockRun> run;   // made by the worker that runs it first
};

// A multiprocessor during the context's turns.
struct SmState {
  SmDemand used;
  uint32_t blocks = 0;
  bool owned = false;  // a worker runs one of its blocks
  std::deque<ResidentBlock> runnable;
};

struct Residency {
  std::vector<SmState> sms;  // sized when the first kernel comes
  std::array<std::list<std::shared_ptr<KernelOperation>>, kPriorityLevels> candidates;
  uint64_t blocks = 0;  // on multiprocessors: runnable or running

  [[nodiscard]] bool has_candidates() const {
    for (const auto& level : candidates) {
      if (!level.empty()) return true;
    }
    return false;
  }
};

}  // namespace openmps::softgpu
