// SPDX-License-Identifier: Apache-2.0
// See background.h.
#include "worker/device/background.h"

#include <pthread.h>

#include <exception>
#include <thread>
#include <utility>

#include "base/mutex.h"

namespace openmps::worker {

void Bell::attach(wire::RingConsumer* ring) {
  const MutexLock lock(mutex_);
  ring_ = ring;
}

void Bell::ring() {
  // Stored before the wake, so that the executor sees the bell or is woken (wire/ring.h).
  rung_.store(true, std::memory_order_seq_cst);
  const MutexLock lock(mutex_);
  if (ring_ != nullptr) ring_->wake();
}

std::atomic<int> Background::threads_{0};

Background::~Background() {
  const MutexLock lock(state_->mutex);
  state_->jobs.clear();
}

void Background::work(const std::shared_ptr<State>& state) {
  const MutexLock lock(state->mutex);
  while (!state->jobs.empty()) {
    std::function<void()> job = std::move(state->jobs.front());
    state->jobs.pop_front();
    const MutexUnlock unlocked(state->mutex);
    job();
    job = nullptr;  // what the job kept alive is released without the lock
  }
  state->has_thread = false;
}

void Background::run(std::function<void()> job) {
  {
    const MutexLock lock(state_->mutex);
    state_->jobs.push_back(std::move(job));
    if (std::exchange(state_->has_thread, true)) return;
  }
  threads_.fetch_add(1);
  try {
    std::thread([state = state_]() mutable {
      pthread_setname_np(pthread_self(), "background");
      work(state);
      state.reset();
      threads_.fetch_sub(1);
    }).detach();
  } catch (const std::exception&) {  // no thread, or no memory for one
    work(state_);
    threads_.fetch_sub(1);
  }
}

}  // namespace openmps::worker
