// SPDX-License-Identifier: Apache-2.0
// One client's session: its thread, from mapping the channel to giving everything back. Made and
// destroyed by the main thread (MainLoop); everything between happens on the session's thread,
// so that opening and closing one session never holds up another. Whatever fails or throws there,
// for want of memory, threads or descriptors, ends that session alone.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "base/unique_fd.h"
#include "worker/process/fault_monitor.h"
#include "worker/process/server_reports.h"
#include "worker/process/window.h"
#include "worker/session/executor.h"
#include "worker/session/session_parts.h"

namespace openmps::worker {

// What all sessions of a worker share; outlives them.
struct Environment {
  const DriverTable& driver;
  const Devices& devices;
  ContextGate& gate;
  WorkerParts& worker;
  FaultMonitor& monitor;
  SpinLimits& spins;
  ServerReports& server;
};

class SessionThread {
 public:
  // `on_end` is the thread's last act before SessionClosed.
  SessionThread(Environment& environment, SessionInfo info, std::shared_ptr<Window> window,
                UniqueFd host_file, std::function<void()> on_end);
  // Joins the thread: end the session first.
  ~SessionThread();
  SessionThread(const SessionThread&) = delete;
  SessionThread& operator=(const SessionThread&) = delete;

  // Start the thread, which answers SessionReady. CUDA_ERROR_OPERATING_SYSTEM: there is no thread
  // left for it, and no answer comes.
  Status start();
  // End the session; `result` becomes its sticky status. Returns at once. Main thread.
  void close(CUresult result);
  // From now on. Main thread.
  void change(const SessionLimits& limits) { parts_.core.change(limits); }
  // Its thread may have slept through close(): the word that it sleeps on belongs to the client,
  // too. To be called again and again until it ends. Main thread.
  void wake();
  // A descriptor that the client sent. Main thread.
  void put_descriptor(uint32_t ticket, UniqueFd descriptor) {
    parts_.physical.inbox.put(ticket, std::move(descriptor));
  }

 private:
  void run();
  Status open();
  Status map_channel();
  void execute();
  void shut();
  void set_status(CUresult result);

  Environment& environment_;
  std::shared_ptr<Window> window_;
  UniqueFd host_file_;
  SessionParts parts_;
  FaultMonitor::Watched watched_{environment_.monitor, parts_.core.view, parts_.fences.ledger()};
  const std::string name_;  // for the log
  std::function<void()> on_end_;

  std::mutex mutex_;
  wire::RingConsumer* ring_ = nullptr;  // guarded by mutex_; while the executor runs
  bool channel_mapped_ = false;         // guarded by mutex_
  CUresult end_result_ = CUDA_SUCCESS;  // guarded by mutex_; what close() was called with

  std::thread thread_;
};

}  // namespace openmps::worker
