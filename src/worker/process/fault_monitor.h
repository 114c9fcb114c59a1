// SPDX-License-Identifier: Apache-2.0
// The watchdog over the shared contexts, and the one place that decides what a lost context means:
// every session gets the error as its status, all waiting threads of its client wake, and the
// server is told. The worker lives on for the clients that are attached to it; new clients get
// another worker (decision 10).
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
  // Tells the server. Called once, on the thread that noticed the loss.
  using Report = std::function<void(CUresult, const std::string& reason)>;

  FaultMonitor(const DriverTable& driver, const Devices& devices, Report report);
  ~FaultMonitor();
  FaultMonitor(const FaultMonitor&) = delete;
  FaultMonitor& operator=(const FaultMonitor&) = delete;

  // Called with the error before any session gets it: what is printed then still reaches the
  // clients. To be set before the first session.
  void set_last_words(std::function<void(CUresult)> last_words) {
    last_words_ = std::move(last_words);
  }

  // A session under watch. Session's thread.
  class Watched final : public FaultListener {
   public:
    Watched(FaultMonitor& monitor, const wire::ChannelView& view, const FenceLedger& fences)
        : monitor_(monitor), view_(view), fences_(fences) {}
    Watched(const Watched&) = delete;
    Watched& operator=(const Watched&) = delete;

    // Costs one load while other fences of the session are unreached.
    void fence_promised() override {
      // Pairs with forget_idle(): a promise that forget_idle() missed finds pending_ false here.
      if (!pending_.load(std::memory_order_seq_cst)) monitor_.wake_up(*this);
    }
    void context_lost(CUresult result, const std::string& reason) override {
      monitor_.context_lost(result, reason);
    }

   private:
    friend class FaultMonitor;
    FaultMonitor& monitor_;
    const wire::ChannelView& view_;
    const FenceLedger& fences_;
    std::atomic<bool> pending_{false};  // a fence may be unreached: the monitor's pending_ has it
  };
  // From add() to remove() the session's channel is mapped. remove() may be called again. Any
  // thread.
  void add(Watched& session);
  void remove(Watched& session);

  // The contexts are lost with this error. The first call counts. Any thread.
  void context_lost(CUresult result, const std::string& reason);
  // CUDA_SUCCESS while the contexts live.
  [[nodiscard]] CUresult lost() const { return lost_.load(std::memory_order_acquire); }

 private:
  void run();
  void look();
  void forget_idle_locked() REQUIRES(mutex_);
  void wake_up(Watched& session);

  const DriverTable& driver_;
  const Devices& devices_;
  const Report report_;
  std::function<void(CUresult)> last_words_;
  std::vector<CUstream> probes_;  // one per device, used by the watchdog's thread only
  std::atomic<CUresult> lost_{CUDA_SUCCESS};

  Mutex mutex_{LockRank::kFaultMonitor};
  CondVar wake_;
  std::set<Watched*> sessions_ GUARDED_BY(mutex_);
  std::vector<Watched*> pending_ GUARDED_BY(mutex_);  // sessions that may have an unreached fence
  bool stop_ GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace openmps::worker
