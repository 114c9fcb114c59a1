// SPDX-License-Identifier: Apache-2.0
// Memory pools: attributes around the plain allocator. Allocation happens at once, the free when
// the stream arrives, so nothing is ever kept and trimming has nothing to do. API threads.
#pragma once

#include <atomic>
#include <cstdint>

#include "cuda/abi.h"
#include "softgpu/device/machine/shared_file.h"

namespace openmps::softgpu {

struct MemoryPool {
  CUmemoryPool handle = nullptr;
  int device = 0;
  bool is_default = false;
  // Of a pool that can be exported or was imported: what its descriptor and its pointers carry.
  std::shared_ptr<const SharedFile> file;  // null: it can't be exported
  ShareKey key{};
  bool imported = false;                // allocates nothing
  std::atomic<bool> is_current{false};  // of its device; none: the default one is
  std::atomic<int> reuse_follow_event{1};
  std::atomic<int> reuse_opportunistic{1};
  std::atomic<int> reuse_internal{1};
  std::atomic<uint64_t> release_threshold{0};
};

}  // namespace openmps::softgpu
