// SPDX-License-Identifier: Apache-2.0
// Host memory behind device and pinned allocations. Any thread.
#pragma once

#include <cstdint>

namespace openmps::softgpu {

struct Backing {
  uint64_t address = 0;  // 0: none
  uint64_t bytes = 0;
  bool mapped = false;  // by mmap, else by the C allocator
};

// At least `bytes`, aligned to kDeviceAlignment; address 0 if the machine has none left.
Backing allocate_backing(uint64_t bytes);
void free_backing(const Backing& backing);

// cuMemAlloc returns multiples of this and rounds sizes up to it, as a GPU does.
inline constexpr uint64_t kDeviceAlignment = 512;

}  // namespace openmps::softgpu
