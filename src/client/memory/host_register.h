// SPDX-License-Identifier: Apache-2.0
// cuMemHostRegister of memory that the program already has: its pages are replaced, at the same
// addresses, by pages of the session's host file, which the worker and the GPU see as well. So the
// program, copies and kernels share one memory, and the device pointer is that of the pinned heap.
// Any thread.
//
// While a chunk is copied and its mapping replaced (about 1 us per page of the edges), a write by
// another thread to that chunk can be lost: a program does not write into memory that it is just
// registering, but what shares the first and the last page with it is moved, too.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "base/unique_fd.h"
#include "client/memory/interval_map.h"
#include "client/memory/pinned.h"
#include "cuda/abi.h"

namespace openmps::client {

struct RegisteredHost {
  uint32_t flags = 0;       // CU_MEMHOSTREGISTER_*
  uint64_t first_page = 0;  // of the program, replaced by ...
  uint64_t block = 0;       // ... this block of the pinned heap
  uint64_t bytes = 0;       // of whole pages
  Context* context = nullptr;
  bool sync_memops = false;  // CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
};

class HostRegistrations {
 public:
  using Entry = IntervalMap<RegisteredHost>::Entry;

  // `host_file_base`: where the host file begins in the address window.
  HostRegistrations(PinnedHeap& pinned, UniqueFd host_file, uint64_t host_file_base);

  // Errors: CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED; CUDA_ERROR_NOT_SUPPORTED: not (only) private
  // anonymous memory, whose pages may not be replaced; CUDA_ERROR_OUT_OF_MEMORY.
  [[nodiscard]] CUresult add(Context* context, uint64_t address, uint64_t bytes, uint32_t flags);
  // The caller has waited for the GPU. Errors: CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED.
  [[nodiscard]] CUresult remove(uint64_t address);

  [[nodiscard]] bool find(uint64_t address, Entry* entry) const;
  // For reading back, as PinnedHeap's.
  bool set_sync_memops(uint64_t address, bool on);
  // The address in the pinned heap of memory that is registered; any other as it is.
  [[nodiscard]] uint64_t device_address(uint64_t address) const;

  // In a forked child: make the registered pages private again and let go of the file.
  void after_fork_in_child();

 private:
  [[nodiscard]] bool overlaps_pages_locked(uint64_t first, uint64_t end) const;

  PinnedHeap& pinned_;
  UniqueFd host_file_;
  const uint64_t host_file_base_;
  mutable std::mutex lock_;
  std::atomic<uint32_t> count_{0};
  IntervalMap<RegisteredHost> ranges_;  // by what the program registered
};

}  // namespace openmps::client
