// SPDX-License-Identifier: Apache-2.0
// Host functions and stream callbacks: the GPU posts a slot in shared memory, the callback thread
// of the client runs the function and answers, and the stream continues. The functions run on that
// one thread, in the order in which their slots are posted. Nothing wakes the thread when a slot is
// posted: it spins, then naps. It sleeps while no function is pending.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "base/adaptive_wait.h"
#include "base/mutex.h"
#include "client/link/fence.h"
#include "cuda/abi.h"

namespace openmps::client {

struct HostCall {
  CUhostFn function = nullptr;          // or
  CUstreamCallback callback = nullptr;  // with the stream that the program named
  CUstream stream = nullptr;
  void* user_data = nullptr;
};

class Callbacks {
 public:
  Callbacks(Channel& channel, Fences& fences)
      : channel_(channel), fences_(fences), idle_spins_(channel.spin_ns()) {}

  // Enqueues a host function in the stream.
  // Errors: CUDA_ERROR_OUT_OF_MEMORY (no thread), the session's end.
  [[nodiscard]] CUresult enqueue(Stream& stream, const HostCall& call);

  // ---- Calls that executable graphs make at every launch, each through a slot of its own ----
  // Errors: CUDA_ERROR_OUT_OF_MEMORY (no thread, or kGraphSlots are in use).
  [[nodiscard]] CUresult open_slot(const HostCall& call, uint32_t* slot);
  // No launch that uses the slot is pending.
  void set_call(uint32_t slot, const HostCall& call);
  void close_slot(uint32_t slot);
  // Before a launch that makes calls: what this thread has stored happens before the calls. In fact
  // the ring, the worker and the GPU order both; within this process the lock does, which
  // run_posted() takes as well.
  void before_launch() { const MutexLock guard(lock_); }
  // Answers the slots of a launch until `point`, whose fence is pushed, is reached; then drops
  // `kept` on the callback thread.
  [[nodiscard]] CUresult watch(FencePoint point, std::shared_ptr<void> kept);

 private:
  // The other slots are for the host functions of streams.
  static constexpr uint32_t kGraphSlots = wire::kCallbackSlots / 4 * 3;
  // Beside a function that takes longer, waking the worker's thread costs little (46 us, decision
  // 24).
  static constexpr uint64_t kSoonNs = 100'000;
  // After so many functions in a row that took no longer, the next one is expected not to either.
  static constexpr uint32_t kSure = 4;
  struct Watched {
    FencePoint point;
    std::shared_ptr<void> kept;
  };
  struct Pending {
    uint32_t slot;
    bool nudges;  // the worker is nudged once the function has run
    HostCall call;
    bool is_dropped = false;  // its stream has lost it: it does not run
  };
  struct Used {
    uint32_t slot;
    FencePoint point;
  };

  // Answers the slot behind the function, also if the function ends its thread.
  class Answer;
  static void* thread_main(void* self);
  [[noreturn]] void serve();
  [[nodiscard]] bool is_pending(uint32_t slot) const REQUIRES(lock_);
  bool take_posted(Pending* posted);
  bool run_posted();
  [[nodiscard]] bool any_posted() const;
  [[nodiscard]] bool any_watched_done();
  void drop_watched(bool all);
  void wait_for_news();
  static void tell(const Pending& pending, CUresult error);
  void end(CUresult result);
  void tell_locked() REQUIRES(lock_);
  [[nodiscard]] bool start_locked() REQUIRES(lock_);
  // Releases the lock while it waits for a slot, and holds it again when it returns.
  [[nodiscard]] CUresult acquire_slot(uint32_t* slot) REQUIRES(lock_);

  Channel& channel_;
  Fences& fences_;
  Mutex lock_{LockRank::kClientCallbacks};
  CondVar told_;
  bool started_ GUARDED_BY(lock_) = false;
  std::atomic<uint32_t> next_slot_{0};              // slots from here on were never used
  std::deque<Used> used_ GUARDED_BY(lock_);         // free once their point is reached
  std::vector<Pending> pending_ GUARDED_BY(lock_);  // enqueued, not yet run
  std::map<uint32_t, HostCall> graph_calls_ GUARDED_BY(lock_);  // by slot
  std::vector<Watched> watched_ GUARDED_BY(lock_);
  // How many of the last functions took no longer than kSoonNs, in a row.
  uint32_t soon_ GUARDED_BY(lock_) = 0;
  // Incremented under the lock with each function that is enqueued and each point that is watched.
  std::atomic<uint32_t> news_{0};
  std::atomic<bool> any_watched_{false};
  std::atomic<bool> napping_{false};
  // Of the callback thread: the news that it knows, and whether it pays to spin for more.
  uint32_t seen_ = 0;
  SpinHistory idle_spins_;
};

}  // namespace openmps::client
