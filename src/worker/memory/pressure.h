// SPDX-License-Identifier: Apache-2.0
// Sessions of this worker that need device memory which is not there, and sessions that may move
// some of theirs to the host for them (docs/decisions/0052). Decides who is asked; those who are
// asked move their memory themselves, on their own threads. One per worker, any thread.
//
// A session is asked if it *borrows*, which is to have more than its guaranteed memory on the
// device, and is idle. While somebody waits for long, busy ones are asked in turn.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "wire/client_limits.h"
#include "worker/device/background.h"

namespace openmps::worker {

// A session without commands for so long is idle: longer than programs take between two calls of
// one piece of work.
inline constexpr uint64_t kIdleNs = 50'000'000;
// How long memory stays where it is for a busy session, and how long another one waits at least
// until that is asked: so long that the copies of 40 GB, twice 0.8 s on an H200, are a fifth of it.
inline constexpr uint64_t kMemoryTurnNs = 8'000'000'000;
// How long an asked busy session takes no commands until nothing of it is under way.
inline constexpr uint64_t kMemoryTurnEndNs = 2'000'000'000;
// A session that could not move anything is not asked for so long.
inline constexpr uint64_t kDeclinedNs = 100'000'000;
// How long an allocation waits at most (on_pressure = "wait"): two that wait for each other's
// memory must end.
inline constexpr uint64_t kLongestAllocationNs = 60'000'000'000;
// How long an allocation waits for those that borrow to be idle before it fails: a program that has
// just worked is not idle yet.
inline constexpr uint64_t kShortestAllocationNs = 1'000'000'000;
// Between two looks of one that waits.
inline constexpr uint64_t kPressureLookNs = 20'000'000;

class MemoryPressure {
 public:
  explicit MemoryPressure(const Clock& clock) : clock_(clock) {}

  // A session, as others see it.
  struct Member {
    Member(std::shared_ptr<Bell> its_bell, std::function<uint64_t(uint32_t device)> its_borrowed)
        : bell(std::move(its_bell)), borrowed(std::move(its_borrowed)) {}
    const std::shared_ptr<Bell> bell;
    // Bytes on the device beyond what is guaranteed. Any thread.
    const std::function<uint64_t(uint32_t device)> borrowed;
    std::atomic<uint64_t> idle_since_ns{0};      // 0: it is not idle
    std::atomic<uint64_t> resident_since_ns{0};  // since when its memory has been on the device
    std::atomic<uint64_t> declined_ns{0};        // when it could not move anything
    std::atomic<bool> waits{false};              // for memory, and moves what it is asked for
    // What it is asked for.
    std::atomic<uint32_t> asked{0};         // to move memory of these devices, a bit each
    std::atomic<bool> is_turn_over{false};  // although it is busy
    std::atomic<bool> is_ended{false};      // to end: the operator's choice
  };

  // The session may be asked until leave().
  void join(Member* member);
  void leave(Member* member);

  // What a session needs: some bytes of a device. The first one that began is served first.
  class Need {
   public:
    Need(MemoryPressure& pressure, Member* member, uint32_t device, uint64_t bytes);
    ~Need();
    Need(const Need&) = delete;
    Need& operator=(const Need&) = delete;

    void set_bytes(uint64_t bytes) { bytes_.store(bytes, std::memory_order_relaxed); }
    void found(uint64_t bytes) {
      const uint64_t needs = bytes_.load(std::memory_order_relaxed);
      set_bytes(needs - std::min(needs, bytes));
    }
    // No session that comes back has begun before it, of those that need the device.
    [[nodiscard]] bool is_first() const;

   private:
    friend class MemoryPressure;
    MemoryPressure& pressure_;
    Member* const member_;
    const uint32_t device_;
    std::atomic<uint64_t> bytes_;
    const uint64_t began_ns_;
  };

  enum class Busy {
    kLeft,   // busy sessions keep their memory
    kTurns,  // they are asked when their turn is over
    kEnded,  // the one that borrows most is ended
  };
  // Ask others for what is needed. False: nobody is asked now, and nobody moves anything.
  bool ask(const Need& need, Busy busy);
  // Others borrow so many bytes of the device; `is_idle`: those which are idle now.
  [[nodiscard]] uint64_t borrowed(const Member* but, uint32_t device, bool is_idle);
  // Another worker's session needs memory: idle ones here are asked.
  void ask_for_others(uint32_t device, uint64_t bytes);
  // Bytes of the device that all need who wait now.
  [[nodiscard]] uint64_t needed(uint32_t device);
  // Some memory has been released, or somebody has stopped moving. How often that was, and wait
  // until it has been more often, or it is time for another look.
  void note_change();
  [[nodiscard]] uint64_t changes();
  void wait(uint64_t seen);
  // Tells the server, at most each kDeclinedNs, that the device has too little memory: other
  // workers' sessions may have some.
  std::function<void(uint32_t device, uint64_t bytes)> tell = [](uint32_t, uint64_t) {};

 private:
  struct Remote {
    uint64_t bytes = 0;
    uint64_t until_ns = 0;
  };
  bool ask_here(const Need& need, Busy busy, bool* tells);
  // Whoever has been idle for longest, else, with kTurns, whose turn has been longest. Without
  // kTurns, nobody twice once kShortestAllocationNs have passed since `began_ns`.
  Member* choose_locked(const Member* but, uint32_t device, Busy busy, uint64_t began_ns)
      REQUIRES(mutex_);
  void ask_locked(Member* member, uint32_t device) REQUIRES(mutex_);
  [[nodiscard]] bool any_asked_locked(const Member* but, uint32_t device) const REQUIRES(mutex_);
  [[nodiscard]] uint64_t needed_locked(uint32_t device) const REQUIRES(mutex_);

  const Clock& clock_;
  Mutex mutex_{LockRank::kMemoryPressure};
  CondVar changed_;
  uint64_t changes_ GUARDED_BY(mutex_) = 0;
  std::vector<Member*> members_ GUARDED_BY(mutex_);
  std::list<Need*> needs_ GUARDED_BY(mutex_);  // by their beginning
  std::array<Remote, wire::kMaxDevices> remote_ GUARDED_BY(mutex_);
  uint64_t told_ns_ GUARDED_BY(mutex_) = 0;
};

}  // namespace openmps::worker
