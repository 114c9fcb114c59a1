// SPDX-License-Identifier: Apache-2.0
// Which work each call has given, by the numbers of calls, for the sources: what has ended names
// its call alone. Without locks: threads that launch write, those that deliver what has ended read.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "worker/recording/source.h"

namespace openmps::worker {

class RecordedCalls {
 public:
  // How many of the last calls are known: work may run long after its call. 0.5 s of two million
  // launches per second, 40 MiB.
  static constexpr size_t kMost = 1u << 20;

  // Throws std::bad_alloc.
  RecordedCalls() : slots_(std::make_unique<Slot[]>(kMost)) {}

  // The call of that number gives what current_work says.
  void note(uint32_t number) {
    Slot& slot = slots_[number % kMost];
    slot.number.store(kNone, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    slot.sessions.store(static_cast<uint64_t>(current_work.session) << 32 | current_work.stream,
                        std::memory_order_relaxed);
    slot.command.store(current_work.command, std::memory_order_relaxed);
    slot.given_ns.store(current_work.given_ns, std::memory_order_relaxed);
    slot.number.store(number, std::memory_order_release);
  }
  // False: it is not known.
  bool find(uint32_t number, GivenWork* work) const {
    const Slot& slot = slots_[number % kMost];
    if (slot.number.load(std::memory_order_acquire) != number) return false;
    const uint64_t sessions = slot.sessions.load(std::memory_order_relaxed);
    *work = {.session = static_cast<uint32_t>(sessions >> 32),
             .stream = static_cast<uint32_t>(sessions),
             .command = slot.command.load(std::memory_order_relaxed),
             .given_ns = slot.given_ns.load(std::memory_order_relaxed)};
    std::atomic_thread_fence(std::memory_order_acquire);
    return slot.number.load(std::memory_order_relaxed) == number;
  }

 private:
  static constexpr uint64_t kNone = ~0ull;
  struct Slot {
    std::atomic<uint64_t> number{kNone};
    std::atomic<uint64_t> sessions{0};  // the session, and the stream
    std::atomic<uint64_t> command{0};
    std::atomic<uint64_t> given_ns{0};
  };
  const std::unique_ptr<Slot[]> slots_;
};

}  // namespace openmps::worker
