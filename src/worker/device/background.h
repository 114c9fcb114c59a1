// SPDX-License-Identifier: Apache-2.0
// Jobs that take long and use no part of a session, such as compiling, on a thread of their own, so
// that the session's executor serves other commands meanwhile. Jobs of one session run one after
// the other; their thread exists while there are jobs, and the session may end before. Session's
// thread, but for the jobs.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>

#include "base/mutex.h"
#include "wire/ring.h"

namespace openmps::worker {

// Wakes a session's executor from any thread.
class Bell {
 public:
  // From now on the executor sleeps on this ring; null: it does not sleep.
  void attach(wire::RingConsumer* ring);
  void ring();
  // The bell has been rung since the last answer().
  [[nodiscard]] const std::atomic<bool>& rung() const { return rung_; }
  void answer() { rung_.store(false, std::memory_order_seq_cst); }

 private:
  std::atomic<bool> rung_{false};
  Mutex mutex_{LockRank::kBell};
  wire::RingConsumer* ring_ GUARDED_BY(mutex_) = nullptr;
};

class Background {
 public:
  Background() : state_(std::make_shared<State>()) {}
  // Jobs that have not begun are dropped; one that runs goes on without this object.
  ~Background();
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  // `job` keeps alive what it uses. If no thread can be started, the job runs at once.
  void run(std::function<void()> job);

  // A job of some session runs in this process.
  [[nodiscard]] static bool busy() { return threads_.load() != 0; }

 private:
  struct State {
    Mutex mutex{LockRank::kBackground};
    std::deque<std::function<void()>> jobs GUARDED_BY(mutex);
    bool has_thread GUARDED_BY(mutex) = false;
  };
  static void work(const std::shared_ptr<State>& state);

  static std::atomic<int> threads_;
  std::shared_ptr<State> state_;
};

}  // namespace openmps::worker
