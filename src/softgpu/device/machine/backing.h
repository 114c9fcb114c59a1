// SPDX-License-Identifier: Apache-2.0
// Host memory behind device and pinned allocations. Any thread.
#pragma once

#include <cstdint>
#include <memory>

#include "softgpu/device/machine/shared_file.h"

namespace openmps::softgpu {

struct Backing {
  uint64_t address = 0;  // 0: none
  uint64_t bytes = 0;
  bool mapped = false;  // by mmap, else by the C allocator
  std::shared_ptr<const SharedFile>
      file;  // of its pages, once share_backing() has moved them there
};

// At least `bytes`, aligned to kDeviceAlignment; address 0 if the machine has none left.
// `own_pages`: nothing else is in its pages, so that they can be shared.
Backing allocate_backing(uint64_t bytes, bool own_pages = false);
// Move the pages into a file that other processes can map; address and contents do not change.
// No thread may touch the memory meanwhile. False: the machine has no memory or no descriptors
// left.
bool share_backing(Backing* backing);
void free_backing(const Backing& backing);

// cuMemAlloc returns multiples of this and rounds sizes up to it, as a GPU does.
inline constexpr uint64_t kDeviceAlignment = 512;

}  // namespace openmps::softgpu
