// SPDX-License-Identifier: Apache-2.0
// Replacing the pages of registered memory and putting private ones back.
#include "client/memory/host_register.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "client/debug.h"
#include "wire/layout.h"

namespace openmps::client {
namespace {

constexpr uint64_t kPage = kPinnedUnit;
// Copied and replaced at once: the smaller, the shorter the time in which a write could be lost.
constexpr uint64_t kChunk = 64 * wire::kKiB;

// All of [first, end) is private, anonymous, readable and writable memory: malloc's, the stack's,
// mmap's. Files and shared memory would lose their meaning.
bool is_plain_memory(uint64_t first, uint64_t end) {
  FILE* maps = fopen("/proc/self/maps", "re");
  if (maps == nullptr) return false;
  char line[512];
  uint64_t covered = first;
  while (covered < end && fgets(line, sizeof(line), maps) != nullptr) {
    unsigned long from = 0;
    unsigned long to = 0;
    char access[8] = {};
    unsigned long inode = 0;
    if (sscanf(line, "%lx-%lx %7s %*s %*s %lu", &from, &to, access, &inode) != 4) continue;
    if (to <= covered) continue;
    if (from > covered || inode != 0 || strncmp(access, "rw", 2) != 0 || access[3] != 'p') break;
    covered = to;
  }
  fclose(maps);
  return covered >= end;
}

// Private pages with the same contents at the same addresses.
void make_private(uint64_t first, uint64_t bytes) {
  for (uint64_t done = 0; done < bytes; done += kChunk) {
    const uint64_t part = std::min(kChunk, bytes - done);
    auto* target = reinterpret_cast<void*>(first + done);
    void* fresh = mmap(nullptr, part, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (fresh == MAP_FAILED) return;  // the shared pages stay: still the program's contents
    memcpy(fresh, target, part);
    if (mremap(fresh, part, part, MREMAP_MAYMOVE | MREMAP_FIXED, target) == MAP_FAILED) {
      munmap(fresh, part);
    }
  }
}

}  // namespace

HostRegistrations::HostRegistrations(PinnedHeap& pinned, UniqueFd host_file,
                                     uint64_t host_file_base)
    : pinned_(pinned), host_file_(std::move(host_file)), host_file_base_(host_file_base) {}

bool HostRegistrations::overlaps_pages_locked(uint64_t first, uint64_t end) const {
  bool overlaps = false;
  ranges_.for_each([&](const Entry& entry) {
    const RegisteredHost& range = entry.value;
    overlaps = overlaps || (range.first_page < end && first < range.first_page + range.bytes);
  });
  return overlaps;
}

CUresult HostRegistrations::add(Context* context, uint64_t address, uint64_t bytes,
                                uint32_t flags) {
  const uint64_t first = address / kPage * kPage;
  const uint64_t end = (address + bytes + kPage - 1) / kPage * kPage;
  if (end <= first) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard guard(lock_);
  if (overlaps_pages_locked(first, end) || pinned_.in_heap(address)) {
    return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  }
  if (!is_plain_memory(first, end)) return CUDA_ERROR_NOT_SUPPORTED;
  void* block = nullptr;
  const CUresult result = pinned_.allocate(context, end - first, 0, &block);
  if (result != CUDA_SUCCESS) return result;
  const auto target = reinterpret_cast<uint64_t>(block);
  for (uint64_t done = 0; done < end - first; done += kChunk) {
    const uint64_t part = std::min(kChunk, end - first - done);
    memcpy(reinterpret_cast<void*>(target + done), reinterpret_cast<void*>(first + done), part);
    void* mapped = mmap(reinterpret_cast<void*>(first + done), part, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_FIXED, host_file_.get(),
                        static_cast<off_t>(target + done - host_file_base_));
    if (mapped == MAP_FAILED) {
      make_private(first, done);
      (void)pinned_.release(block);
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
  }
  ranges_.insert(address, bytes, RegisteredHost{flags, first, target, end - first, context});
  count_.fetch_add(1, std::memory_order_release);
  return CUDA_SUCCESS;
}

CUresult HostRegistrations::remove(uint64_t address) {
  const std::lock_guard guard(lock_);
  const Entry* entry = ranges_.find(address);
  if (entry == nullptr || entry->base != address) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  const RegisteredHost range = entry->value;
  ranges_.erase(address);
  count_.fetch_sub(1, std::memory_order_release);
  make_private(range.first_page, range.bytes);
  return pinned_.release(reinterpret_cast<void*>(range.block));
}

bool HostRegistrations::find(uint64_t address, Entry* entry) const {
  if (count_.load(std::memory_order_acquire) == 0) return false;
  const std::lock_guard guard(lock_);
  const Entry* found = ranges_.find(address);
  if (found == nullptr) return false;
  *entry = *found;
  return true;
}

bool HostRegistrations::set_sync_memops(uint64_t address, bool on) {
  const std::lock_guard guard(lock_);
  Entry* found = ranges_.find(address);
  if (found == nullptr) return false;
  found->value.sync_memops = on;
  return true;
}

uint64_t HostRegistrations::device_address(uint64_t address) const {
  Entry entry;
  if (!find(address, &entry)) return address;
  return entry.value.block + (address - entry.value.first_page);
}

void HostRegistrations::after_fork_in_child() {
  // Another thread may have held the lock when the process forked: it does not exist here.
  if (lock_.try_lock()) {
    ranges_.for_each(
        [](const Entry& entry) { make_private(entry.value.first_page, entry.value.bytes); });
    lock_.unlock();
  }
  host_file_.reset();
}

}  // namespace openmps::client
