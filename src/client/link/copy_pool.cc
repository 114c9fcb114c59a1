// SPDX-License-Identifier: Apache-2.0
// See copy_pool.h. A new job number wakes the helpers; the job ends when no helper runs any more.
#include "client/link/copy_pool.h"

#include <pthread.h>

#include <algorithm>

#include "base/cores.h"
#include "base/mutex.h"
#include "base/thread_end.h"
#include "base/thread_signals.h"

namespace openmps::client {
namespace {

// The program and the worker need the other cores.
constexpr uint32_t kCoresPerHelper = 4;

}  // namespace

bool start_helper_thread(void* (*main)(void*), void* argument, const char* name) {
  pthread_t thread;
  {
    const HelperThreadSignals signals;
    if (pthread_create(&thread, nullptr, main, argument) != 0) return false;
  }
  pthread_setname_np(thread, name);
  pthread_detach(thread);
  return true;
}

void CopyPool::start_locked() {
  started_ = true;
  const uint32_t wanted = std::min(kMaxCopyHelpers, usable_cores() / kCoresPerHelper);
  while (helpers_ < wanted && start_helper_thread(thread_main, this, "openmps-copy")) ++helpers_;
}

void* CopyPool::thread_main(void* self) {
  static_cast<CopyPool*>(self)->serve();
  return nullptr;
}

void CopyPool::serve() {
  const MutexLock guard(lock_);
  // A helper that starts during a job leaves the job to the others.
  uint64_t seen = job_;
  for (;;) {
    while (job_ == seen) wake_.wait(lock_);
    seen = job_;
    if (work_ == nullptr) continue;  // the job ended before this helper woke
    const Work work = work_;
    void* argument = argument_;
    ++running_;
    {
      const MutexUnlock unlocked(lock_);
      work(argument);
    }
    if (--running_ == 0) finished_.notify_all();
  }
}

void CopyPool::run(Work work, void* argument) {
  if (!user_.try_lock()) {
    work(argument);
    return;
  }
  const MutexLock user(user_, std::adopt_lock);
  {
    const MutexLock guard(lock_);
    if (!started_) start_locked();
    work_ = work;
    argument_ = argument;
    ++job_;
  }
  wake_.notify_all();
  work(argument);
  // No piece is left to take. Helpers may still copy the piece that they took last.
  const CancellationHeld held;
  const MutexLock guard(lock_);
  work_ = nullptr;
  while (running_ != 0) finished_.wait(lock_);
}

}  // namespace openmps::client
