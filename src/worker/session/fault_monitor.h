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

  // A session's channel, between opening and closing. Any thread.
  struct Watched {
    wire::ChannelView view;
    const FenceLedger* fences = nullptr;
  };
  void add(const Watched& session);
  void remove(const FenceLedger* fences);

  // A fence has been promised. Any thread; costs one load while the watchdog is awake.
  void notice_work() {
    // Pairs with rest(): a promise that it did not see finds active_ false here.
    if (!active_.load(std::memory_order_seq_cst)) wake_up();
  }
  // The contexts are lost with this error. Any thread; later calls change nothing.
  void context_lost(CUresult result, const std::string& reason);
  // CUDA_SUCCESS while the contexts live.
  [[nodiscard]] CUresult lost() const { return lost_.load(std::memory_order_acquire); }

 private:
  void run();
  void look();
  bool rest();
  void wake_up();
  void end(const wire::ChannelView& view, CUresult result);

  const DriverTable& driver_;
  const Devices& devices_;
  const Report report_;
  std::function<void(CUresult)> last_words_;
  std::vector<CUstream> probes_;  // one per device, used by the watchdog's thread only
  std::atomic<CUresult> lost_{CUDA_SUCCESS};
  std::atomic<bool> active_{false};

  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Watched> sessions_;  // guarded by mutex_
  bool stop_ = false;              // guarded by mutex_
  std::thread thread_;
};

}  // namespace openmps::worker
