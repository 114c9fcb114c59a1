// SPDX-License-Identifier: Apache-2.0
// Device memory that sessions have freed and may ask for again: it stays mapped where it was, with
// its contents, for its own session and nobody else. It counts as free everywhere: whoever finds
// memory short gives it back first, whichever session it is of. One per worker; thread-safe.
//
// Mapping 256 MiB anew costs about as much as all the rest of a program's cuMemAlloc and cuMemFree
// (docs/decisions/0013-nothing-waits-in-an-executor.md).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "api/driver_table.h"
#include "wire/handshake.h"

namespace openmps::worker {

struct Holding;
class SessionGroup;

// Kept of one session at most. More would hide memory from programs that are not ours.
inline constexpr uint64_t kMostKeptBytes = wire::kGiB;
// For so long: a program that allocates in a loop comes back within it, one that is done with its
// memory has it on its conscience no longer.
inline constexpr uint64_t kKeptNs = 1'000'000'000;

class MemoryCache {
 public:
  struct Mapping {
    uint64_t bytes = 0;
    uint32_t device = 0;
    uint32_t peers = 0;  // devices beside its own that have access
    std::shared_ptr<Holding> holding;
    const SessionGroup* group = nullptr;  // against which it counts; null: none
  };

  // Keep a mapping that `session` has freed and that nothing uses any more. What is too much is
  // unmapped, the oldest first.
  void keep(const DriverTable& driver, uint32_t session, uint64_t address, Mapping mapping,
            uint64_t now);
  // The session's mapping at exactly this range, with access for exactly these devices. False:
  // there is none.
  bool take(uint32_t session, uint64_t address, const Mapping& wanted,
            std::shared_ptr<Holding>* holding);
  // Unmap what the session has in this range.
  void clear(const DriverTable& driver, uint32_t session, uint64_t begin, uint64_t end);
  // Unmap what the session has not asked for within kKeptNs. When to look again; 0: nothing is
  // left.
  uint64_t clear_old(const DriverTable& driver, uint32_t session, uint64_t now);
  // Memory is short: unmap all, or all that counts against `group`. False: there was nothing.
  bool clear_all(const DriverTable& driver, const SessionGroup* group = nullptr);

  // Bytes on a device, of all sessions, of one, or of those of a group.
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
  using ByAddress = std::map<uint64_t, Kept>;
  struct Part {  // of one session
    ByAddress kept;
    uint64_t bytes = 0;
  };
  [[nodiscard]] static uint64_t bytes_of(const Part& part, uint32_t device);
  [[nodiscard]] static bool is_of(const Part& part, const SessionGroup* group);
  ByAddress::iterator remove(Part& part, ByAddress::iterator kept);
  ByAddress::iterator unmap(const DriverTable& driver, Part& part, ByAddress::iterator kept);

  std::mutex mutex_;
  std::map<uint32_t, Part> parts_;  // by session
  std::array<std::atomic<uint64_t>, wire::kMaxDevices> bytes_{};
};

}  // namespace openmps::worker
