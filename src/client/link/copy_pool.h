// SPDX-License-Identifier: Apache-2.0
// Helper threads for large pageable copies: one memcpy thread moves 12 GB/s, the GPU takes 55. They
// are made at first use, sleep between copies, and are never joined: they end with the process.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/mutex.h"

namespace openmps::client {

// More helpers gained little where this was measured (8 threads moved 42 GB/s), and the program's
// own threads need cores as well.
inline constexpr uint32_t kMaxCopyHelpers = 4;

class CopyPool {
 public:
  using Work = void (*)(void* argument);

  // Runs work(argument) on the calling thread and on all helpers at once, and returns when all are
  // done. If there are no helpers (few cores) or another copy has them, the calling thread works
  // alone.
  void run(Work work, void* argument);

 private:
  static void* thread_main(void* self);
  void start_locked() REQUIRES(lock_);
  void serve();

  Mutex user_{LockRank::kClientCopyJob};  // one job at a time
  Mutex lock_{LockRank::kClientCopyPool};
  CondVar wake_;
  CondVar finished_;
  bool started_ GUARDED_BY(lock_) = false;
  uint32_t helpers_ GUARDED_BY(lock_) = 0;
  uint64_t job_ GUARDED_BY(lock_) = 0;  // number of the current job
  uint32_t running_ GUARDED_BY(lock_) = 0;
  Work work_ GUARDED_BY(lock_) = nullptr;
  void* argument_ GUARDED_BY(lock_) = nullptr;
};

// Starts a detached thread, which gets signals only for faults of its own (base/thread_signals.h).
// False: the system has no thread left.
[[nodiscard]] bool start_helper_thread(void* (*main)(void*), void* argument, const char* name);

}  // namespace openmps::client
