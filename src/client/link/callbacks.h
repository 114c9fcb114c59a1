// SPDX-License-Identifier: Apache-2.0
// Host functions and stream callbacks: the GPU posts a slot in shared memory, one thread of the
// client runs the function and answers, the stream goes on. The functions run on that thread, in
// the order in which the slots are posted. Nobody wakes the thread when a slot is posted: it looks,
// without pause for as long as that pays, then ever less often. It sleeps while no function is on
// its way.
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

  // Put a host function into the stream, behind what is there.
  // Errors: CUDA_ERROR_OUT_OF_MEMORY (no thread), the session's end.
  [[nodiscard]] CUresult enqueue(Stream& stream, const HostCall& call);

  // ---- Calls that executable graphs make at every launch, each through a slot of its own ----
  // Errors: CUDA_ERROR_OUT_OF_MEMORY: no thread, or kGraphSlots are in use.
  [[nodiscard]] CUresult open_slot(const HostCall& call, uint32_t* slot);
  // No launch that uses the slot is under way.
  void set_call(uint32_t slot, const HostCall& call);
  void close_slot(uint32_t slot);
  // Before a launch that makes calls: what the program has written is theirs to read. In fact the
  // ring, the worker and the GPU order it; in this process alone it is the lock that run_posted()
  // takes, too.
  void before_launch() { const MutexLock guard(lock_); }
  // Answer the slots of a launch until `point`, whose fence is under way, is reached; then drop
  // `kept`, on the callback thread.
  [[nodiscard]] CUresult watch(FencePoint point, std::shared_ptr<void> kept);

 private:
  // The rest stays for the host functions of streams.
  static constexpr uint32_t kGraphSlots = wire::kCallbackSlots / 4 * 3;
  // A function that takes longer makes the hop through a waking thread (46 us, decision 24) small.
  static constexpr uint64_t kSoonNs = 100'000;
  // So many in a row that did not: the next is expected not to, either.
  static constexpr uint32_t kSure = 4;
  struct Watched {
    FencePoint point;
    std::shared_ptr<void> kept;
  };
  struct Pending {
    uint32_t slot;
    bool nudges;  // the worker looks whether it has run when it is told to
    HostCall call;
  };
  struct Used {
    uint32_t slot;
    FencePoint point;
  };

  // What comes after a function that a slot has posted, also if the function ends its thread.
  class Answer;
  static void* thread_main(void* self);
  [[noreturn]] void serve();
  bool take_posted(Pending* posted);
  bool run_posted();
  [[nodiscard]] bool any_posted() const;
  [[nodiscard]] bool any_watched_done();
  void drop_watched(bool all);
  void wait_for_news();
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
  // Grows with everything that is enqueued or watched, under the lock.
  std::atomic<uint32_t> news_{0};
  std::atomic<bool> any_watched_{false};
  std::atomic<bool> napping_{false};
  // Of the callback thread: the news that it knows, and whether it pays to spin for more.
  uint32_t seen_ = 0;
  SpinHistory idle_spins_;
};

}  // namespace openmps::client
