// SPDX-License-Identifier: Apache-2.0
// The watchdog over the shared contexts, and the one place that decides what a lost context means:
// the server is told, and every session is handed over to another worker (decision 42). A session
// that can't be gets the error as its status, and all waiting threads of its client wake.
//
// The GPU writes no fence behind a faulted kernel, and clients wait for fences alone. So while some
// fence is unreached, a thread asks the driver periodically whether the contexts are intact;
// otherwise that thread sleeps.
#pragma once

#include <atomic>
#include <functional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "worker/device/devices.h"
#include "worker/session/fault_listener.h"
#include "worker/streams/fence.h"

namespace openmps::worker {

// `result` becomes the session's sticky status, unless the session has one, and all waiting threads
// of its client wake. Any thread.
void end_session(const wire::ChannelView& view, CUresult result);

class FaultMonitor {
 public:
  // Whether the driver has told of the loss. Until then its calls may take some 200 ms.
  enum class DriverKnows { kNo, kYes };
  // Tells the server. Called once, on the thread that noticed the loss.
  using Report = std::function<void(CUresult, const std::string& reason, DriverKnows knows)>;

  // `takes_over`: sessions that can go on in another worker are handed over, and their clients
  // are not told.
  FaultMonitor(const DriverTable& driver, const Devices& devices, bool takes_over, Report report);
  ~FaultMonitor();
  FaultMonitor(const FaultMonitor&) = delete;
  FaultMonitor& operator=(const FaultMonitor&) = delete;

  // Called with the error, where the driver has told of it before any session gets it: what is
  // printed then still reaches the clients. To be set before the first session.
  void set_last_words(std::function<void(CUresult)> last_words) {
    last_words_ = std::move(last_words);
  }

  // A session under watch. Session's thread.
  class Watched final : public FaultListener {
   public:
    // `hand_over`: the session's executor is to take no further command. Any thread.
    Watched(FaultMonitor& monitor, const wire::ChannelView& view, const FenceLedger& fences,
            std::function<void()> hand_over)
        : monitor_(monitor), view_(view), fences_(fences), hand_over_(std::move(hand_over)) {}
    Watched(const Watched&) = delete;
    Watched& operator=(const Watched&) = delete;

    // Costs one load while other fences of the session are unreached.
    void fence_promised() override {
      // Pairs with look_at_sessions_locked(): a promise that it missed finds pending_ false here.
      if (!pending_.load(std::memory_order_seq_cst)) monitor_.wake_up(*this);
    }
    void context_lost(CUresult result, const std::string& reason) override {
      monitor_.context_lost(result, reason);
    }
    [[nodiscard]] bool hands_over() const override {
      return monitor_.takes_over_ && may_move_ && monitor_.lost() != CUDA_SUCCESS;
    }
    // The session has a journal. Before FaultMonitor::add().
    void set_may_move() { may_move_ = true; }
    // The contexts are lost: for how long a stream of the session that had work had not moved then,
    // to some milliseconds. 0: it is not known.
    [[nodiscard]] uint64_t stood_still_ms() const {
      return stood_still_ms_.load(std::memory_order_relaxed);
    }

   private:
    friend class FaultMonitor;
    FaultMonitor& monitor_;
    const wire::ChannelView& view_;
    const FenceLedger& fences_;
    const std::function<void()> hand_over_;
    bool may_move_ = false;
    std::vector<FenceLedger::Seen> seen_;  // under the monitor's mutex
    std::atomic<uint64_t> stood_still_ms_{0};
    std::atomic<bool> pending_{false};  // a fence may be unreached: the monitor's pending_ has it
  };
  // From add() to remove() the session's channel is mapped. remove() may be called again. Any
  // thread.
  void add(Watched& session);
  void remove(Watched& session);

  // NVML has told of a kernel's fault on the device, of this process or another one: for some time
  // the caller looks closely at this process's work. If it stands still, although the device has
  // handled the fault, the contexts are lost with `result`, long before the driver says so. Any
  // thread; takes 50 to 600 ms.
  void watch(uint32_t device, CUresult result, const std::string& what);

  // The contexts are lost with this error. The first call counts. Any thread.
  void context_lost(CUresult result, const std::string& reason) {
    lose(result, reason, DriverKnows::kYes);
  }
  // CUDA_SUCCESS while the contexts live.
  [[nodiscard]] CUresult lost() const { return lost_.load(std::memory_order_acquire); }
  [[nodiscard]] bool takes_over() const { return takes_over_; }

 private:
  void run();
  void look();
  void lose(CUresult result, const std::string& reason, DriverKnows knows);
  [[nodiscard]] uint64_t reached_locked() const REQUIRES(mutex_);
  void look_at_sessions_locked() REQUIRES(mutex_);
  void wake_up(Watched& session);
  // The contexts are lost: the session is handed over, or gets the error as its status.
  void end(const Watched& session) const;

  const DriverTable& driver_;
  const Devices& devices_;
  const bool takes_over_;
  const Report report_;
  std::function<void(CUresult)> last_words_;
  struct Probe {
    CUstream stream = nullptr;
    CUevent event = nullptr;
    std::atomic<uint64_t> passed_ns{0};  // when the event was last seen to have passed
  };
  CUresult make_probe(uint32_t device, Probe* probe);
  std::vector<Probe> probes_;  // one per device, used by the watchdog's thread only
  std::atomic<CUresult> lost_{CUDA_SUCCESS};

  Mutex mutex_{LockRank::kFaultMonitor};
  CondVar wake_;
  std::set<Watched*> sessions_ GUARDED_BY(mutex_);
  std::vector<Watched*> pending_ GUARDED_BY(mutex_);  // sessions that may have an unreached fence
  uint64_t busy_since_ns_ GUARDED_BY(mutex_) = 0;     // when the first of them came
  bool stop_ GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace openmps::worker
