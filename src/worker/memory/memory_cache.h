// SPDX-License-Identifier: Apache-2.0
// Keeps device memory that sessions have freed mapped at its addresses, with its contents, for the
// session that freed it. Kept memory counts as free: a session that finds memory short has all of
// it released first. One per worker; thread-safe.
//
// Mapping 256 MiB anew costs about as much as all the rest of a program's cuMemAlloc and cuMemFree
// (docs/decisions/0013-nothing-waits-in-an-executor.md).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "api/driver_table.h"
#include "base/mutex.h"
#include "wire/handshake.h"

namespace openmps::worker {

struct Holding;
class SessionGroup;

// The most that is kept of one session. More would hide memory from programs outside OpenMPS.
inline constexpr uint64_t kMostKeptBytes = wire::kGiB;
// How long memory is kept: a program that allocates in a loop needs it again within that time.
inline constexpr uint64_t kKeptNs = 1'000'000'000;

class MemoryCache {
 public:
  struct Mapping {
    uint64_t bytes = 0;
    uint32_t device = 0;
    uint32_t peers = 0;  // other devices with access
    std::shared_ptr<Holding> holding;
    const SessionGroup* group = nullptr;  // against which it counts; null: none
  };

  // Keep a mapping that `session` has freed and that no work uses any more. Mappings beyond
  // kMostKeptBytes are unmapped, the oldest first.
  void keep(const DriverTable& driver, uint32_t session, uint64_t address, Mapping mapping,
            uint64_t now);
  // Take the session's mapping of exactly this range, with access for exactly these devices. False:
  // there is none.
  bool take(uint32_t session, uint64_t address, const Mapping& wanted,
            std::shared_ptr<Holding>* holding);
  // Unmap the session's kept memory in this range.
  void clear(const DriverTable& driver, uint32_t session, uint64_t begin, uint64_t end);
  // Unmap memory that the session has not taken within kKeptNs. When to call this again; 0: none is
  // left.
  uint64_t clear_old(const DriverTable& driver, uint32_t session, uint64_t now);
  // Memory is short: unmap all, or all that counts against `group`. False: there was none.
  bool clear_all(const DriverTable& driver, const SessionGroup* group = nullptr);

  // Bytes kept on a device, of all sessions, of one, or of a group.
  [[nodiscard]] uint64_t bytes(uint32_t device) const {
    return bytes_[device].load(std::memory_order_relaxed);
  }
  [[nodiscard]] uint64_t bytes(uint32_t device, uint32_t session);
  [[nodiscard]] uint64_t bytes(uint32_t device, const SessionGroup& group);

 private:
  struct Kept {
    uint64_t since = 0;
    Mapping mapping;
  };
  using All = std::map<std::pair<uint32_t, uint64_t>, Kept>;  // by session and address
  struct Entries {
    All::iterator first;
    All::iterator last;
    [[nodiscard]] All::iterator begin() const { return first; }
    [[nodiscard]] All::iterator end() const { return last; }
  };
  // Those of one session.
  Entries of(uint32_t session) REQUIRES(mutex_);
  All::iterator remove(All::iterator kept) REQUIRES(mutex_);
  // Unmap those for which `goes(entry)` is true. False: there was none.
  template <typename F>
  bool unmap_if(const DriverTable& driver, Entries entries, F&& goes) REQUIRES(mutex_);

  Mutex mutex_{LockRank::kMemoryCache};
  All kept_ GUARDED_BY(mutex_);
  std::array<std::atomic<uint64_t>, wire::kMaxDevices> bytes_{};
};

}  // namespace openmps::worker
