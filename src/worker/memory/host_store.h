// SPDX-License-Identifier: Apache-2.0
// Host memory for the contents of device memory that sessions do not use now
// (docs/decisions/0052). It is registered with the driver, so that copies reach the speed of the
// bus, and lies in a file, so that the contents outlive this process: the server keeps a descriptor
// of the file. One per worker; thread-safe.
//
// To get pages from the system and to register them takes much longer than the copy. So memory that
// is not needed any more is kept for a while.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "api/driver_table.h"
#include "base/function_ref.h"
#include "base/mutex.h"
#include "base/shared_memory.h"
#include "base/unique_fd.h"
#include "cuda/status.h"
#include "worker/device/deferred_releases.h"
#include "worker/device/devices.h"

namespace openmps::worker {

class HostStore : public std::enable_shared_from_this<HostStore> {
 public:
  // Pages are registered by so many bytes: a copy lies in one such block.
  static constexpr uint64_t kBlockBytes = 32 * wire::kMiB;
  // How long a block is kept that no contents are in.
  static constexpr uint64_t kUnusedNs = 60'000'000'000;
  // What others need of the system's memory, at least: the worker must not be what the system ends
  // for want of memory.
  static constexpr uint64_t kLeftBytes = wire::kGiB;

  // A part of the store, which is given back with this.
  class Part {
   public:
    Part() = default;
    Part(std::shared_ptr<HostStore> store, uint64_t offset, uint64_t bytes)
        : store_(std::move(store)), offset_(offset), bytes_(bytes) {}
    Part(Part&& other) noexcept
        : store_(std::exchange(other.store_, nullptr)),
          offset_(other.offset_),
          bytes_(std::exchange(other.bytes_, 0)) {}
    Part& operator=(Part&& other) noexcept {
      std::swap(store_, other.store_);
      std::swap(offset_, other.offset_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Part() {
      if (store_ != nullptr) store_->give_back(offset_, bytes_);
    }

    [[nodiscard]] bool valid() const { return store_ != nullptr; }
    [[nodiscard]] uint64_t offset() const { return offset_; }  // in the file
    [[nodiscard]] uint64_t bytes() const { return bytes_; }
    [[nodiscard]] unsigned char* data() const { return store_->base() + offset_; }

   private:
    std::shared_ptr<HostStore> store_;
    uint64_t offset_ = 0;
    uint64_t bytes_ = 0;
  };

  // `available`: how much memory this process may still use, in bytes. `most`: of the file.
  HostStore(const DriverTable& driver, uint64_t (*available)(), uint64_t most)
      : driver_(driver), available_(available), most_(most) {}
  ~HostStore();
  HostStore(const HostStore&) = delete;
  HostStore& operator=(const HostStore&) = delete;

  // Memory for so many bytes, a multiple of wire::kMemoryGranularity. A context must be current.
  // CUDA_ERROR_OUT_OF_MEMORY: the system has too little; CUDA_ERROR_NOT_READY: gives_up(), which is
  // called every 10 ms or so while pages come from the system; CUDA_ERROR_OPERATING_SYSTEM.
  Result<Part> take(uint64_t bytes, FunctionRef<bool()> gives_up);
  [[nodiscard]] int file() const { return file_.get(); }
  // Give blocks that have not been used for kUnusedNs back to the system, by `releases`, a
  // session's, in `context`. When to call this again; 0: when something has been taken.
  uint64_t give_back_old(DeferredReleases& releases, CUcontext context, uint64_t now);
  // Bytes that the system has given.
  [[nodiscard]] uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  struct Block {
    bool is_registered = false;
    uint32_t parts = 0;      // that lie in it, also in part
    uint64_t unused_ns = 0;  // since when there is none
  };
  [[nodiscard]] unsigned char* base() const {
    return static_cast<unsigned char*>(mapping_.address());
  }
  Status open_locked() REQUIRES(mutex_);
  // Where so many free bytes are, also beyond the present end.
  [[nodiscard]] uint64_t find_locked(uint64_t bytes) const REQUIRES(mutex_);
  Status register_locked(size_t block) REQUIRES(mutex_);
  void add_free_locked(uint64_t begin, uint64_t end) REQUIRES(mutex_);
  void take_free_locked(uint64_t begin, uint64_t end) REQUIRES(mutex_);
  [[nodiscard]] bool is_free_locked(uint64_t begin, uint64_t end) const REQUIRES(mutex_);
  void give_back(uint64_t offset, uint64_t bytes);
  void note_unused_locked(Block& block) REQUIRES(mutex_);
  // The driver has unregistered the block.
  void note_given_back(size_t block);

  const DriverTable& driver_;
  uint64_t (*const available_)();
  const uint64_t most_;
  std::atomic<uint64_t> bytes_{0};
  std::atomic<uint64_t> due_ns_{0};  // of give_back_old(); 0: there is nothing to give back

  Mutex mutex_{LockRank::kHostStore};
  UniqueFd file_;    // set once, before the first part
  Mapping mapping_;  // of most_ bytes
  std::vector<Block> blocks_ GUARDED_BY(mutex_);
  std::map<uint64_t, uint64_t> free_ GUARDED_BY(mutex_);  // begin -> end, below the last block's
};

}  // namespace openmps::worker
