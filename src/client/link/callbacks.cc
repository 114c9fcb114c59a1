// SPDX-License-Identifier: Apache-2.0
// The callback thread. It polls, because a wake by the GPU would cost the stream 15 to 45 us each
// time and need a thread of the driver's (docs/decisions/0014-host-functions-are-polled.md).
#include "client/link/callbacks.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/thread_end.h"
#include "client/link/copy_pool.h"
#include "client/link/host_function.h"
#include "client/objects.h"

namespace openmps::client {
namespace {

constexpr uint64_t kNoSlotPauseNs = 1'000'000;

}  // namespace

CUresult Callbacks::acquire_slot(uint32_t* slot) {
  for (;;) {
    // A function that was dropped may be known to the callback thread later than its fence.
    const bool is_reached = !used_.empty() && fences_.reached(used_.front().point);
    const bool is_dropped = is_reached && is_pending(used_.front().slot);
    if (is_reached && !is_dropped) {
      *slot = used_.front().slot;
      used_.pop_front();
      return CUDA_SUCCESS;
    }
    if (next_slot_ < wire::kCallbackSlots) {
      *slot = next_slot_.fetch_add(1, std::memory_order_relaxed);
      return CUDA_SUCCESS;
    }
    if (channel_.status() != CUDA_SUCCESS) return channel_.status();
    if (used_.empty() || is_dropped) {  // other threads have taken slots and not enqueued them yet
      const MutexUnlock unlocked(lock_);
      const CancellationHeld held;
      channel_.clock().sleep(kNoSlotPauseNs);
      continue;
    }
    const FencePoint oldest = used_.front().point;
    const MutexUnlock unlocked(lock_);
    const CUresult result = fences_.wait(oldest);
    if (result != CUDA_SUCCESS) return result;
  }
}

bool Callbacks::is_pending(uint32_t slot) const {
  return std::ranges::find(pending_, slot, &Pending::slot) != pending_.end();
}

bool Callbacks::start_locked() {
  if (!started_) started_ = start_helper_thread(thread_main, this, "openmps-callback");
  return started_;
}

void Callbacks::tell_locked() {
  any_watched_.store(!watched_.empty(), std::memory_order_relaxed);
  // The callback thread sets napping_, then looks for news once more: either it sees this change,
  // or this thread sees napping_.
  news_.fetch_add(1, std::memory_order_seq_cst);
  told_.notify_one();
  if (napping_.load(std::memory_order_seq_cst)) channel_.wake_all();
}

CUresult Callbacks::enqueue(Stream& stream, const HostCall& call) {
  uint32_t slot = 0;
  bool soon = false;
  {
    const MutexLock guard(lock_);
    if (!start_locked()) return CUDA_ERROR_OUT_OF_MEMORY;
    const CUresult result = acquire_slot(&slot);
    if (result != CUDA_SUCCESS) return result;
    wire::CallbackSlot& shared = channel_.view().callback(slot);
    shared.posted.store(0, std::memory_order_relaxed);
    shared.done.store(0, std::memory_order_release);
    soon = soon_ >= kSure;
    pending_.push_back({slot, !soon, call});
    tell_locked();
  }
  FencePoint point;
  CUresult result = CUDA_SUCCESS;
  {
    const Channel::Order order = channel_.order();
    point = fences_.take_next_behind_work(order, stream);
    result = channel_.push(order, wire::HostFunction{stream.id, slot, point.value(), point.slot(),
                                                     soon ? wire::kAnswersSoon : 0});
  }
  const MutexLock guard(lock_);
  used_.push_back({slot, point});
  return result;
}

CUresult Callbacks::open_slot(const HostCall& call, uint32_t* slot) {
  const MutexLock guard(lock_);
  if (!start_locked() || graph_calls_.size() >= kGraphSlots) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = acquire_slot(slot);
  if (result != CUDA_SUCCESS) return result;
  wire::CallbackSlot& shared = channel_.view().callback(*slot);
  shared.posted.store(0, std::memory_order_relaxed);
  shared.done.store(0, std::memory_order_release);
  graph_calls_[*slot] = call;
  return CUDA_SUCCESS;
}

void Callbacks::set_call(uint32_t slot, const HostCall& call) {
  const MutexLock guard(lock_);
  graph_calls_[slot] = call;
}

void Callbacks::close_slot(uint32_t slot) {
  const MutexLock guard(lock_);
  graph_calls_.erase(slot);
  used_.push_front({slot, FencePoint()});
}

CUresult Callbacks::watch(FencePoint point, std::shared_ptr<void> kept) {
  const MutexLock guard(lock_);
  if (!start_locked()) return CUDA_ERROR_OUT_OF_MEMORY;
  watched_.push_back({point, std::move(kept)});
  tell_locked();
  return CUDA_SUCCESS;
}

bool Callbacks::any_watched_done() {
  const MutexLock guard(lock_);
  for (const Watched& watched : watched_) {
    if (fences_.reached(watched.point)) return true;
  }
  return false;
}

// Destructors of what is dropped may call this library, so they run without the lock. Nothing is
// allocated, because a failure could not be reported.
void Callbacks::drop_watched(bool all) {
  for (;;) {
    const HostFunctionScope scope;  // destructors of user objects are the program's
    Watched done;
    const MutexLock guard(lock_);
    const auto found = std::find_if(
        watched_.begin(), watched_.end(),
        [this, all](const Watched& watched) { return all || fences_.reached(watched.point); });
    if (found == watched_.end()) return;
    done = std::move(*found);
    watched_.erase(found);
  }
}

// A host function may end the thread that it runs on (pthread_exit(), pthread_cancel() of itself).
// Natively no host function runs any more then, in any stream; here another thread takes over.
void* Callbacks::thread_main(void* self) {
  struct Successor {
    Callbacks& of;
    ~Successor() {
      const MutexLock guard(of.lock_);
      of.started_ = false;
      static_cast<void>(of.start_locked());  // if this fails, the next function starts the thread
    }
  };
  const Successor successor{*static_cast<Callbacks*>(self)};
  successor.of.serve();
}

// Does not take the lock, which other threads want while this thread spins.
bool Callbacks::any_posted() const {
  const uint32_t slots = next_slot_.load(std::memory_order_relaxed);
  for (uint32_t slot = 0; slot < slots; ++slot) {
    if (channel_.view().callback(slot).posted.load(std::memory_order_acquire) != 0) return true;
  }
  return false;
}

bool Callbacks::take_posted(Pending* posted) {
  const MutexLock guard(lock_);
  for (auto pending = pending_.begin(); pending != pending_.end(); ++pending) {
    wire::CallbackSlot& slot = channel_.view().callback(pending->slot);
    const uint32_t state = slot.posted.load(std::memory_order_acquire);
    if (state == 0) continue;
    *posted = *pending;
    posted->is_dropped = state == wire::kCallbackDropped;
    // Nobody waits for an answer, and the slot may be used again once it is not pending.
    if (posted->is_dropped) slot.posted.store(0, std::memory_order_relaxed);
    pending_.erase(pending);
    return true;
  }
  // Each launch of a graph posts the graph's slots again.
  for (const auto& [number, call] : graph_calls_) {
    wire::CallbackSlot& slot = channel_.view().callback(number);
    if (slot.posted.exchange(0, std::memory_order_acquire) == 0) continue;
    *posted = {number, false, call};
    return true;
  }
  return false;
}

class Callbacks::Answer {
 public:
  Answer(Callbacks& callbacks, const Pending& posted) : callbacks_(callbacks), posted_(posted) {}
  Answer(const Answer&) = delete;
  Answer& operator=(const Answer&) = delete;
  ~Answer() {
    const bool was_soon = now_ns() - begin_ns_ <= kSoonNs;
    callbacks_.fences_.host_function_ran();
    // Cleared before `done` is set: the slot may be posted again at once.
    wire::CallbackSlot& slot = callbacks_.channel_.view().callback(posted_.slot);
    slot.posted.store(0, std::memory_order_relaxed);
    slot.done.store(1, std::memory_order_release);
    // After the function's time is taken: the thread that this wakes may take this core.
    if (posted_.nudges) callbacks_.channel_.nudge_worker();
    const MutexLock guard(callbacks_.lock_);
    callbacks_.soon_ = was_soon ? std::min(callbacks_.soon_ + 1, kSure) : 0;
  }

 private:
  Callbacks& callbacks_;
  const Pending& posted_;
  const uint64_t begin_ns_ = now_ns();
};

bool Callbacks::run_posted() {
  bool any = false;
  for (Pending posted{}; take_posted(&posted); any = true) {
    const HostCall& call = posted.call;
    if (posted.is_dropped) [[unlikely]] {
      tell(posted, CUDA_ERROR_LAUNCH_FAILED);
      continue;
    }
    const Answer answer(*this, posted);
    const HostFunctionScope scope;
    if (call.function != nullptr) {
      call.function(call.user_data);
    } else {
      call.callback(call.stream, CUDA_SUCCESS, call.user_data);
    }
  }
  return any;
}

// The thread has nothing to do: it spins while that pays, then sleeps.
void Callbacks::wait_for_news() {
  AdaptiveWait wait(channel_.clock(), {.spin_until_ns = idle_spins_.spin_ns()});
  const auto any = [this] { return news_.load(std::memory_order_acquire) != seen_; };
  if (!wait.spin(any)) {
    const MutexLock guard(lock_);
    while (!any()) told_.wait(lock_);
  }
  idle_spins_.note(wait.waited_ns());
}

// After an error CUDA calls stream callbacks with it. Host functions never run.
void Callbacks::tell(const Pending& pending, CUresult error) {
  if (pending.call.callback == nullptr) return;
  const HostFunctionScope scope;
  pending.call.callback(pending.call.stream, error, pending.call.user_data);
}

// The session has ended.
void Callbacks::end(CUresult result) {
  drop_watched(true);
  std::vector<Pending> left;
  {
    const MutexLock guard(lock_);
    left.swap(pending_);
  }
  for (const Pending& pending : left) tell(pending, result);
}

void Callbacks::serve() {
  for (;;) {
    seen_ = news_.load(std::memory_order_acquire);
    if (run_posted()) continue;
    drop_watched(false);
    bool none = false;
    {
      const MutexLock guard(lock_);
      any_watched_.store(!watched_.empty(), std::memory_order_relaxed);
      none = pending_.empty() && watched_.empty();
    }
    if (none) {
      wait_for_news();
      continue;
    }
    const CUresult result = channel_.watch(
        [this] {
          return any_posted() || news_.load(std::memory_order_acquire) != seen_ ||
                 (any_watched_.load(std::memory_order_relaxed) && any_watched_done());
        },
        &napping_);
    if (result != CUDA_SUCCESS) end(result);
  }
}

}  // namespace openmps::client
