// SPDX-License-Identifier: Apache-2.0
// Kernel nodes of graphs that kernels change (cudaGraphKernelNode*): what the next launch of such a
// node runs. The host says it when it instantiates or changes the executable graph, kernels
// afterwards, and their changes stay. Any thread.
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
  // Of an executable graph, by the host.
  void set(Launch launch);
  // By a kernel. CUDA_ERROR_INVALID_VALUE: nothing is instantiated from the node, or what is asked
  // for is not of its parameters, no grid for its clusters, or one for a cooperative kernel, whose
  // blocks would have to find room. Then nothing has changed.
  [[nodiscard]] CUresult update(const NodeUpdate& update);
  // A launch of the node begins: it gets what it is to run. False: it is switched off.
  [[nodiscard]] bool begin(KernelOperation& kernel) const;

 private:
  mutable Mutex mutex_{LockRank::kSoftDeviceNode};
  bool live_ GUARDED_BY(mutex_) = false;  // an executable graph has it
  Launch launch_ GUARDED_BY(mutex_);
};

}  // namespace openmps::softgpu
