// SPDX-License-Identifier: Apache-2.0
// Host memory behind allocations: large ones by mmap, so that they go back to the system, small
// ones by the C allocator, which costs no system call.
#include "softgpu/device/machine/backing.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/shared_memory.h"

namespace openmps::softgpu {
namespace {

// Above this an mmap and its page faults cost less than keeping the memory.
constexpr uint64_t kMapThreshold = 1ull << 20;

}  // namespace

Backing allocate_backing(uint64_t bytes, bool own_pages) {
  Backing backing;
  backing.bytes = (bytes + kDeviceAlignment - 1) / kDeviceAlignment * kDeviceAlignment;
  if (bytes == 0 || backing.bytes < bytes) return {};
  backing.mapped = backing.bytes >= kMapThreshold;
  if (backing.mapped) {
    void* address = mmap(nullptr, backing.bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    backing.address = address == MAP_FAILED ? 0 : reinterpret_cast<uint64_t>(address);
  } else {
    const uint64_t alignment = own_pages ? round_to_pages(1) : kDeviceAlignment;
    const uint64_t whole = (backing.bytes + alignment - 1) / alignment * alignment;
    backing.address = reinterpret_cast<uint64_t>(aligned_alloc(alignment, whole));
  }
  return backing.address == 0 ? Backing{} : backing;
}

bool share_backing(Backing* backing) {
  std::shared_ptr<const SharedFile> file = make_shared_file(backing->bytes);
  if (file == nullptr) return false;
  void* at = reinterpret_cast<void*>(backing->address);
  const uint64_t pages = round_to_pages(backing->bytes);
  void* copy = mmap(nullptr, pages, PROT_READ | PROT_WRITE, MAP_SHARED, file->file.get(), 0);
  if (copy == MAP_FAILED) return false;
  keep_from_dumps(reinterpret_cast<uint64_t>(copy), pages);
  memcpy(copy, at, backing->bytes);
  void* moved = mremap(copy, pages, pages, MREMAP_MAYMOVE | MREMAP_FIXED, at);
  if (moved == MAP_FAILED) {
    munmap(copy, pages);
    return false;
  }
  backing->file = std::move(file);
  return true;
}

void free_backing(const Backing& backing) {
  if (backing.address == 0) return;
  void* at = reinterpret_cast<void*>(backing.address);
  if (backing.mapped) {
    munmap(at, backing.bytes);
    return;
  }
  // The C allocator gets back private pages, as it gave them.
  if (backing.file != nullptr &&
      mmap(at, round_to_pages(backing.bytes), PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED) {
    return;
  }
  free(at);
}

}  // namespace openmps::softgpu
