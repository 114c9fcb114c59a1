// SPDX-License-Identifier: Apache-2.0
// The watchdog over the shared contexts, and the one place that says what a lost context means.
// Today: every session gets the error as its status, all its waiters wake, the server is told, and
// the worker stays for the clients that still hold it, while newcomers get another one (decision
// 10). Containment (who did it, rebuilding the others elsewhere) belongs here.
//
// The GPU can't write a fence behind a faulted kernel, and clients wait for fences alone. So while
// some fence is unreached a thread looks at the contexts; otherwise it sleeps.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "worker/device/devices.h"
#include "worker/streams/fence.h"

namespace openmps::worker {

class FaultMonitor {
 public:
  // Tell the server: called once, on the thread that noticed.
  using Report = std::function<void(CUresult, const std::string& reason)>;

  FaultMonitor(const DriverTable& driver, const Devices& devices, Report report);
  ~FaultMonitor();
  FaultMonitor(const FaultMonitor&) = delete;
  FaultMonitor& operator=(const FaultMonitor&) = delete;

  // Called with the error before any session hears of it: the last that its clients can be given.
  // To be set before the first session.
  void set_last_words(std::function<void(CUresult)> last_words) {
    last_words_ = std::move(last_words);
  }

  // A session's channel. It stays where it is between add() and remove(), which may be repeated.
  class Watched {
   public:
    Watched(const wire::ChannelView& view, const FenceLedger& fences)
        : view_(view), fences_(fences) {}
    Watched(const Watched&) = delete;
    Watched& operator=(const Watched&) = delete;

   private:
    friend class FaultMonitor;
    const wire::ChannelView& view_;
    const FenceLedger& fences_;
    std::atomic<bool> pending_{false};  // it may have an unreached fence: it is in pending_
  };
  // Between opening and closing. Any thread.
  void add(Watched& session);
  void remove(Watched& session);

  // A fence of the session has been promised. Session's thread; costs one load while it has others
  // that are unreached.
  void notice_work(Watched& session) {
    // Pairs with rest(): a promise that it did not see finds pending_ false here.
    if (!session.pending_.load(std::memory_order_seq_cst)) wake_up(session);
  }
  // The contexts are lost with this error. Any thread; later calls change nothing.
  void context_lost(CUresult result, const std::string& reason);
  // CUDA_SUCCESS while the contexts live.
  [[nodiscard]] CUresult lost() const { return lost_.load(std::memory_order_acquire); }

 private:
  void run();
  void look();
  void rest();
  void wake_up(Watched& session);
  void end(const wire::ChannelView& view, CUresult result);

  const DriverTable& driver_;
  const Devices& devices_;
  const Report report_;
  std::function<void(CUresult)> last_words_;
  std::vector<CUstream> probes_;  // one per device, used by the watchdog's thread only
  std::atomic<CUresult> lost_{CUDA_SUCCESS};

  std::mutex mutex_;
  std::condition_variable wake_;
  std::set<Watched*> sessions_;    // guarded by mutex_
  std::vector<Watched*> pending_;  // guarded by mutex_: those that may have an unreached fence
  bool stop_ = false;              // guarded by mutex_
  std::thread thread_;
};

}  // namespace openmps::worker
