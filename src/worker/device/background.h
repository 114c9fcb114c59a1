// SPDX-License-Identifier: Apache-2.0
// Work that takes long and needs no part of its session, such as compiling: off the executor, so
// that the session's other threads go on. Jobs of one session run one after the other, on a thread
// that exists while there are some; the session may end meanwhile. Session's thread, but for the
// jobs.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include "wire/ring.h"

namespace openmps::worker {

// Wakes a session's executor from any thread.
class Bell {
 public:
  // The executor sleeps on this ring from now on; null: on none.
  void attach(wire::RingConsumer* ring);
  void ring();
  // Rung since the last answer.
  [[nodiscard]] const std::atomic<bool>& rung() const { return rung_; }
  void answer() { rung_.store(false, std::memory_order_seq_cst); }

 private:
  std::atomic<bool> rung_{false};
  std::mutex mutex_;
  wire::RingConsumer* ring_ = nullptr;  // guarded by mutex_
};

class Background {
 public:
  Background() : state_(std::make_shared<State>()) {}
  // Jobs that have not begun are dropped; one under way goes on alone.
  ~Background();
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  // `job` keeps what it uses alive. Without a thread to be had it runs at once.
  void run(std::function<void()> job);

  // Some session's job is under way in this process.
  [[nodiscard]] static bool busy() { return threads_.load() != 0; }

 private:
  struct State {
    std::mutex mutex;
    std::deque<std::function<void()>> jobs;  // guarded by mutex
    bool has_thread = false;                 // guarded by mutex
  };
  static void work(const std::shared_ptr<State>& state);

  static std::atomic<int> threads_;
  std::shared_ptr<State> state_;
};

}  // namespace openmps::worker
