// SPDX-License-Identifier: Apache-2.0
// cuMemHostRegister of memory that the program already has (docs/decisions/0037). The worker maps
// the same pages, at the same addresses where they are free there, and registers them.
//
// - Shared mappings are shared as they are: the worker gets a descriptor of the file.
// - Private pages can't be shared: before the GPU first uses them, a file's pages take their place
//   (page_exchange.h). Until then, and from cuMemHostUnregister on, they are what they were.
//
// Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/kept_fd.h"
#include "base/mutex.h"
#include "base/shared_memory.h"
#include "base/unique_fd.h"
#include "client/link/channel.h"
#include "client/link/passage.h"
#include "client/memory/interval_map.h"
#include "client/memory/maps.h"
#include "cuda/abi.h"

namespace openmps::client {

struct Context;

// Pages of the program's, and where the worker has them, or is to have them.
struct WorkerPages {
  uint64_t begin = 0;
  uint64_t end = 0;
  uint64_t worker = 0;
  bool mapped = false;
};

struct RegisteredHost {
  uint32_t flags = 0;  // CU_MEMHOSTREGISTER_*
  Context* context = nullptr;
  uint64_t device = 0;       // the address by which the GPU knows it
  uint64_t buffer_id = 0;    // CU_POINTER_ATTRIBUTE_BUFFER_ID
  bool sync_memops = false;  // CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
  // Not before the GPU needs the pages; or not at all: the program has unmapped them since.
  enum class State { kWaiting, kReady, kGone };
  State state = State::kWaiting;
  // All pages of the range. Only the first and the last one may belong to other registrations as
  // well.
  std::vector<std::shared_ptr<WorkerPages>> pages = {};
};

class HostRegistrations {
 public:
  using Entry = IntervalMap<RegisteredHost>::Entry;

  HostRegistrations(Channel& channel, Passage& passage) : channel_(channel), passage_(passage) {}

  // Errors: CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED; CUDA_ERROR_INVALID_VALUE: not all of it is
  // memory, or it can't be written and is not registered as read-only; CUDA_ERROR_NOT_SUPPORTED:
  // there is no safe way to these pages, and the log says why; CUDA_ERROR_OUT_OF_MEMORY; the
  // driver's.
  [[nodiscard]] CUresult add(Context* context, uint64_t address, uint64_t bytes, uint32_t flags);
  // The caller has waited for the GPU. Errors: CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED.
  [[nodiscard]] CUresult remove(uint64_t address);
  void remove_all(const Context* context);

  // Work that may use any registered memory is about to be given to the GPU. Errors: those of
  // add(); the work would fault.
  [[nodiscard]] CUresult make_all_ready() {
    return waiting_.load(std::memory_order_acquire) == 0 ? CUDA_SUCCESS : make_waiting_ready();
  }
  // The GPU's address of memory that is registered, ready to be copied from and to; also if it is
  // named by the GPU's address. False: it is not registered, or the GPU can't have it.
  [[nodiscard]] bool find_ready(uint64_t address, uint64_t* device);
  // All of it is registered at once, by the GPU's addresses, and can be written if it is to be.
  [[nodiscard]] bool contains(uint64_t device, uint64_t bytes, bool written);

  // Without its pages.
  [[nodiscard]] bool find(uint64_t address, Entry* entry) const;
  // For reading back, as PinnedHeap's.
  bool set_sync_memops(uint64_t address, bool on);
  // The GPU's address of memory that is registered; any other as it is.
  [[nodiscard]] uint64_t device_address(uint64_t address) const;

  // Around fork(): nothing changes meanwhile, and in the child the pages that the parent's GPU
  // writes become private.
  void before_fork() ACQUIRE(lock_) { lock_.lock(); }
  void after_fork_in_parent() RELEASE(lock_) { lock_.unlock(); }
  void after_fork_in_child() RELEASE(lock_);

 private:
  using Ranges = IntervalMap<RegisteredHost>;
  // Pages whose place a file's pages have taken: those, but for the protection, which is the
  // program's to change.
  struct FilePages : MappedRange {
    std::shared_ptr<const KeptFd> file;
  };
  // A piece of what is registered, and the file with its pages.
  struct Part : MappedRange {
    uint64_t worker = 0;
    std::shared_ptr<const KeptFd> file = nullptr;
    uint64_t file_offset = 0;

    // The file is new: its pages have to take their place.
    [[nodiscard]] bool is_private() const { return !kind.shared; }
    // `next` begins where this ends, and is backed in one way with it.
    [[nodiscard]] bool goes_on_in(const Part& next) const;
  };
  // Pages that the GPU knows by other addresses than the program: there, also in this process.
  struct Elsewhere {
    uint64_t program = 0;
    Mapping alias;  // none before they are ready
  };
  struct Span {
    uint64_t begin;
    uint64_t end;
  };

  CUresult make_waiting_ready();
  CUresult reserve_locked(uint64_t address, uint64_t bytes, RegisteredHost* memory) REQUIRES(lock_);
  [[nodiscard]] CUresult find_parts_locked(const RegisteredHost& memory,
                                           std::vector<Part>* parts) const REQUIRES(lock_);
  [[nodiscard]] CUresult find_file_locked(const Region& region, bool write, Part* part) const
      REQUIRES(lock_);
  // Private pages in a row have one file.
  static CUresult make_files(std::vector<Part>& parts);
  CUresult make_ready_locked(Entry& entry) REQUIRES(lock_);
  CUresult try_ready_locked(const Entry& entry) REQUIRES(lock_);
  CUresult share_locked(const Entry& entry, const std::vector<Part>& parts) REQUIRES(lock_);
  CUresult exchange_locked(const std::vector<Part>& parts) REQUIRES(lock_);
  CUresult make_alias_locked(const Entry& entry, const std::vector<Part>& parts) REQUIRES(lock_);
  void free_locked(RegisteredHost& memory) REQUIRES(lock_);
  void remove_locked(const Entry& entry) REQUIRES(lock_);
  // The pages of a range without those at the edges that also belong to other registrations.
  [[nodiscard]] Span own_pages_locked(uint64_t address, uint64_t bytes) const REQUIRES(lock_);
  // [begin, end) is private again where files' pages have taken the place, and still have it.
  void make_private_locked(uint64_t begin, uint64_t end) REQUIRES(lock_);
  // What the address is of, the program's or the GPU's, ready; null: there is nothing.
  Entry* find_ready_locked(uint64_t address) REQUIRES(lock_);

  Channel& channel_;
  Passage& passage_;
  mutable Mutex lock_{LockRank::kClientRegisteredHost};
  std::atomic<uint32_t> count_{0};
  std::atomic<uint32_t> waiting_{0};                    // not ready
  Ranges ranges_ GUARDED_BY(lock_);                     // by what the program registered
  IntervalMap<Elsewhere> elsewhere_ GUARDED_BY(lock_);  // by the GPU's addresses
  uint64_t next_buffer_id_ GUARDED_BY(lock_) =
      1ull << 41;  // apart from those of device and pinned memory
  std::map<uint64_t, FilePages> exchanged_ GUARDED_BY(lock_);
};

}  // namespace openmps::client
