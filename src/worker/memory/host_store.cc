// SPDX-License-Identifier: Apache-2.0
// See host_store.h.
#include "worker/memory/host_store.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <string>
#include <system_error>
#include <thread>

#include "base/clock.h"
#include "wire/handshake.h"
#include "worker/core/channel_pages.h"
#include "worker/device/driver_check.h"

namespace openmps::worker {
namespace {

// The system zeroes pages at some 3 GB/s in a thread: as many threads as a copy of pageable memory
// uses (client/session: copies by several threads).
constexpr uint64_t kPopulateThreads = 4;

// Get the pages from the system, so that registering them does not have to. An older Linux than
// 5.14 does that when they are registered.
void populate(unsigned char* begin, uint64_t bytes) {
#ifdef MADV_POPULATE_WRITE
  madvise(begin, bytes, MADV_HUGEPAGE);
  const uint64_t part = bytes / kPopulateThreads;
  std::vector<std::thread> threads;
  for (uint64_t i = 1; i < kPopulateThreads; ++i) {
    try {
      threads.emplace_back(
          [at = begin + i * part, part] { madvise(at, part, MADV_POPULATE_WRITE); });
    } catch (const std::system_error&) {
      break;  // registering gets the rest
    }
  }
  madvise(begin, part, MADV_POPULATE_WRITE);
  for (std::thread& thread : threads) thread.join();
#else
  static_cast<void>(begin);
  static_cast<void>(bytes);
#endif
}

}  // namespace

// The process is about to end.
HostStore::~HostStore() = default;

Status HostStore::open_locked() {
  if (file_.valid()) return Status();
  UniqueFd file(memfd_create("openmps-contents", MFD_CLOEXEC));
  if (!file.valid() || ftruncate(file.get(), static_cast<off_t>(most_)) != 0) {
    return Status(CUDA_ERROR_OPERATING_SYSTEM, std::string("memfd_create: ") + strerror(errno));
  }
  Result<Mapping> mapping = map_shared(file.get(), 0, most_, MapAccess::kReadWrite);
  if (!mapping.ok()) return mapping.status();
  OPENMPS_RETURN_IF_ERROR(keep_from_children_and_dumps(mapping->address(), most_));
  mapping_ = std::move(*mapping);
  file_ = std::move(file);
  return Status();
}

// The first that is large enough. What is free at the end may be extended.
uint64_t HostStore::find_locked(uint64_t bytes) const {
  const uint64_t end = blocks_.size() * kBlockBytes;
  for (const auto& [begin, until] : free_) {
    if (until - begin >= bytes || until == end) return begin;
  }
  return end;
}

Result<HostStore::Part> HostStore::take(uint64_t bytes, FunctionRef<bool()> gives_up) {
  const MutexLock lock(mutex_);
  OPENMPS_RETURN_IF_ERROR(open_locked());
  const uint64_t begin = find_locked(bytes);
  if (bytes > most_ || begin > most_ - bytes) {
    return Status(CUDA_ERROR_OUT_OF_MEMORY, "the host's memory is full");
  }
  const size_t first = begin / kBlockBytes;
  const size_t last = (begin + bytes - 1) / kBlockBytes;
  if (last >= blocks_.size()) {
    const uint64_t had = blocks_.size() * kBlockBytes;
    blocks_.resize(last + 1);
    add_free_locked(had, blocks_.size() * kBlockBytes);
  }
  uint64_t wanted = 0;
  for (size_t i = first; i <= last; ++i) wanted += blocks_[i].is_registered ? 0 : kBlockBytes;
  if (wanted != 0) {
    const uint64_t available = available_();
    if (available < kLeftBytes || wanted > available - kLeftBytes) {
      return Status(CUDA_ERROR_OUT_OF_MEMORY,
                    std::to_string(wanted) + " bytes of host memory, of " +
                        std::to_string(available) + " that are available");
    }
  }
  for (size_t i = first; i <= last; ++i) {
    if (gives_up()) return Status(CUDA_ERROR_NOT_READY, "the memory is not wanted any more");
    OPENMPS_RETURN_IF_ERROR(register_locked(i));
  }
  for (size_t i = first; i <= last; ++i) ++blocks_[i].parts;
  take_free_locked(begin, begin + bytes);
  return Part(shared_from_this(), begin, bytes);
}

Status HostStore::register_locked(size_t block) {
  if (blocks_[block].is_registered) return Status();
  unsigned char* const begin = base() + block * kBlockBytes;
  populate(begin, kBlockBytes);
  OPENMPS_RETURN_IF_ERROR(
      check(driver_.cuMemHostRegister_v2(begin, kBlockBytes, kHostRegisterFlags),
            "cuMemHostRegister of memory for contents"));
  blocks_[block].is_registered = true;
  note_unused_locked(blocks_[block]);
  bytes_.fetch_add(kBlockBytes, std::memory_order_relaxed);
  return Status();
}

void HostStore::add_free_locked(uint64_t begin, uint64_t end) {
  auto next = free_.lower_bound(begin);
  if (next != free_.end() && next->first == end) {
    end = next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin() && std::prev(next)->second == begin) {
    std::prev(next)->second = end;
  } else {
    free_[begin] = end;
  }
}

void HostStore::take_free_locked(uint64_t begin, uint64_t end) {
  const auto found = std::prev(free_.upper_bound(begin));
  const uint64_t whole = std::exchange(found->second, begin);
  if (found->first == begin) free_.erase(found);
  if (whole > end) free_[end] = whole;
}

bool HostStore::is_free_locked(uint64_t begin, uint64_t end) const {
  const auto above = free_.upper_bound(begin);
  return above != free_.begin() && std::prev(above)->second >= end;
}

void HostStore::give_back(uint64_t offset, uint64_t bytes) {
  const MutexLock lock(mutex_);
  add_free_locked(offset, offset + bytes);
  for (size_t i = offset / kBlockBytes; i <= (offset + bytes - 1) / kBlockBytes; ++i) {
    if (--blocks_[i].parts == 0) note_unused_locked(blocks_[i]);
  }
}

void HostStore::note_unused_locked(Block& block) {
  block.unused_ns = now_ns();
  if (due_ns_.load(std::memory_order_relaxed) == 0) due_ns_.store(block.unused_ns + kUnusedNs);
}

uint64_t HostStore::give_back_old(DeferredReleases& releases, CUcontext context, uint64_t now) {
  const uint64_t due = due_ns_.load(std::memory_order_relaxed);
  if (due == 0 || now < due) return due;
  std::vector<size_t> old;
  uint64_t next = 0;
  {
    const MutexLock lock(mutex_);
    for (size_t i = 0; i < blocks_.size(); ++i) {
      Block& block = blocks_[i];
      const uint64_t begin = i * kBlockBytes;
      if (!block.is_registered || block.parts != 0 || !is_free_locked(begin, begin + kBlockBytes)) {
        continue;
      }
      if (now >= block.unused_ns + kUnusedNs) {
        take_free_locked(begin, begin + kBlockBytes);
        old.push_back(i);
      } else {
        next =
            next == 0 ? block.unused_ns + kUnusedNs : std::min(next, block.unused_ns + kUnusedNs);
      }
    }
    due_ns_.store(next);
  }
  for (const size_t i : old) {
    unsigned char* const begin = base() + i * kBlockBytes;
    releases.add_quiescent(
        {wire::ReturnKind::kHostMemory, reinterpret_cast<uint64_t>(begin), kBlockBytes},
        {GatedCall::kHostUnregister, ContextGate::kAllDevices, context,
         [self = shared_from_this(), begin, i] {
           const CUresult result = self->driver_.cuMemHostUnregister(begin);
           self->note_given_back(i);
           return result;
         }},
        [] {});
  }
  return next;
}

void HostStore::note_given_back(size_t block) {
  const uint64_t begin = block * kBlockBytes;
  fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(begin),
            static_cast<off_t>(kBlockBytes));
  bytes_.fetch_sub(kBlockBytes, std::memory_order_relaxed);
  const MutexLock lock(mutex_);
  blocks_[block].is_registered = false;
  add_free_locked(begin, begin + kBlockBytes);
}

}  // namespace openmps::worker
