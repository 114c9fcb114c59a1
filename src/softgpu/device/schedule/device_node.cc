// SPDX-License-Identifier: Apache-2.0
// See device_node.h.
#include "softgpu/device/schedule/device_node.h"

#include <algorithm>
#include <utility>

namespace openmps::softgpu {

void DeviceNode::set(Launch launch) {
  const MutexLock lock(mutex_);
  live_ = true;
  launch_ = std::move(launch);
}

CUresult DeviceNode::update(const NodeUpdate& update) {
  const MutexLock lock(mutex_);
  if (!live_) return CUDA_ERROR_INVALID_VALUE;
  switch (update.field) {
    case NodeUpdate::Field::kEnabled: launch_.enabled = update.enabled; return CUDA_SUCCESS;
    case NodeUpdate::Field::kGrid: {
      if (launch_.cooperative) return CUDA_ERROR_INVALID_VALUE;
      for (size_t i = 0; i < launch_.grid.size(); ++i) {
        if (update.grid[i] == 0 || update.grid[i] % launch_.cluster[i] != 0) {
          return CUDA_ERROR_INVALID_VALUE;
        }
      }
      launch_.grid = update.grid;
      return CUDA_SUCCESS;
    }
    case NodeUpdate::Field::kParameter:
      if (update.offset > launch_.parameters.size() ||
          update.value.size() > launch_.parameters.size() - update.offset) {
        return CUDA_ERROR_INVALID_VALUE;
      }
      std::copy(update.value.begin(), update.value.end(),
                launch_.parameters.begin() + static_cast<ptrdiff_t>(update.offset));
      return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

bool DeviceNode::begin(KernelOperation& kernel) const {
  const MutexLock lock(mutex_);
  std::copy(launch_.grid.begin(), launch_.grid.end(), kernel.launch.grid);
  kernel.launch.parameters = launch_.parameters;
  kernel.cluster_count =
      uint64_t{launch_.grid[0]} * launch_.grid[1] * launch_.grid[2] / kernel.cluster_blocks;
  return launch_.enabled;
}

}  // namespace openmps::softgpu
