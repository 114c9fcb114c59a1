// SPDX-License-Identifier: Apache-2.0
// Kernel nodes of graphs that kernels change (cudaGraphKernelNode*): what the next launch of such a
// node runs. The host sets it when it instantiates or changes the executable graph; kernels
// change it afterwards, also for later launches. Any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/mutex.h"
#include "softgpu/device/schedule/operation.h"
#include "softgpu/engine.h"

namespace openmps::softgpu {

class DeviceNode {
 public:
  struct Launch {
    bool enabled = true;
    bool cooperative = false;
    std::array<uint32_t, 3> grid{};
    std::array<uint32_t, 3> cluster{};  // blocks
    std::vector<std::byte> parameters;
  };
  // The host instantiates or changes an executable graph.
  void set(Launch launch);
  // A kernel changes the node. CUDA_ERROR_INVALID_VALUE, and no change: nothing is instantiated
  // from the node; the change lies outside of its parameters; the grid does not consist of whole
  // clusters; or the kernel is cooperative, whose grid must be resident at once.
  [[nodiscard]] CUresult update(const NodeUpdate& update);
  // A launch of the node begins and gets grid and parameters. False: the node is disabled.
  [[nodiscard]] bool begin(KernelOperation& kernel) const;

 private:
  mutable Mutex mutex_{LockRank::kSoftDeviceNode};
  bool live_ GUARDED_BY(mutex_) = false;  // an executable graph has it
  Launch launch_ GUARDED_BY(mutex_);
};

}  // namespace openmps::softgpu
