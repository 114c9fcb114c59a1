// SPDX-License-Identifier: Apache-2.0
// Host memory behind allocations: large ones by mmap, so that they go back to the system, small
// ones by the C allocator, which costs no system call.
#include "softgpu/device/backing.h"

#include <sys/mman.h>

#include <cstdlib>

namespace openmps::softgpu {
namespace {

// Above this an mmap and its page faults cost less than keeping the memory.
constexpr uint64_t kMapThreshold = 1ull << 20;

}  // namespace

Backing allocate_backing(uint64_t bytes) {
  Backing backing;
  backing.bytes = (bytes + kDeviceAlignment - 1) / kDeviceAlignment * kDeviceAlignment;
  if (bytes == 0 || backing.bytes < bytes) return {};
  backing.mapped = backing.bytes >= kMapThreshold;
  if (backing.mapped) {
    void* address = mmap(nullptr, backing.bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    backing.address = address == MAP_FAILED ? 0 : reinterpret_cast<uint64_t>(address);
  } else {
    backing.address = reinterpret_cast<uint64_t>(aligned_alloc(kDeviceAlignment, backing.bytes));
  }
  return backing.address == 0 ? Backing{} : backing;
}

void free_backing(const Backing& backing) {
  if (backing.address == 0) return;
  if (backing.mapped)
    munmap(reinterpret_cast<void*>(backing.address), backing.bytes);
  else
    free(reinterpret_cast<void*>(backing.address));
}

}  // namespace openmps::softgpu
