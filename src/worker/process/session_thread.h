// SPDX-License-Identifier: Apache-2.0
// One client's session: its thread, from mapping the channel to releasing everything. The main
// thread (MainLoop) makes and destroys the object; everything between happens on the session's
// thread, so opening and closing a session never delays another one. Whatever fails or throws on
// that thread, for lack of memory, threads or descriptors, ends that session alone.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <thread>

#include "base/mutex.h"
#include "base/unique_fd.h"
#include "worker/process/fault_monitor.h"
#include "worker/process/server_reports.h"
#include "worker/process/window.h"
#include "worker/session/adoption.h"
#include "worker/session/executor.h"
#include "worker/session/session_parts.h"

namespace openmps::worker {

// Used by all sessions of a worker; outlives them.
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
  // The thread calls `on_end` right before it sends SessionClosed, or HandedOver when it leaves.
  SessionThread(Environment& environment, SessionInfo info, std::shared_ptr<Window> window,
                UniqueFd host_file, UniqueFd journal, std::function<void()> on_end);
  // Joins the thread, which ends only after close() or by itself.
  ~SessionThread();
  SessionThread(const SessionThread&) = delete;
  SessionThread& operator=(const SessionThread&) = delete;

  // Starts the thread, which sends SessionReady. CUDA_ERROR_OPERATING_SYSTEM: the system has no
  // thread left, and no SessionReady is sent.
  Status start();
  // Ends the session; `result` becomes the session's sticky status. Returns at once. Main thread.
  void close(CUresult result);
  // The session's limits from now on. Main thread.
  void change(const SessionLimits& limits) { parts_.core.change(limits); }
  // The thread may have missed the wake of close(): the client can write the word that the thread
  // sleeps on. To be called periodically until the session has ended. Main thread.
  void wake();
  // The contexts are lost, and the session goes on in another worker: its thread takes no further
  // command, sends HandedOver and ends. Any thread.
  void hand_over();
  // The session is to go on in another worker (wire::LeaveSession). Main thread.
  void leave(uint32_t limit_ms);
  // Where the session's memory is to be (wire::SuspendSession). Main thread.
  void suspend(wire::Residence residence, uint32_t limit_ms);
  // Takes a descriptor that the client has sent. Main thread.
  void put_descriptor(uint32_t ticket, UniqueFd descriptor) {
    parts_.physical.inbox.put(ticket, std::move(descriptor));
  }

 private:
  void run();
  Status open();
  Status map_channel();
  Status open_journal();
  void await_adoptions() const;
  void execute();
  void report_handed_over();
  void finish_leaving();
  void shut();

  Environment& environment_;
  std::shared_ptr<Window> window_;
  UniqueFd host_file_;
  UniqueFd journal_;  // invalid: the session can't move
  SessionParts parts_;
  FaultMonitor::Watched watched_{environment_.monitor, parts_.core.view, parts_.fences.ledger(),
                                 [this] { hand_over(); }};
  const std::string name_;  // for the log
  std::function<void()> on_end_;

  Adopted adopted_;
  bool has_failed_ = false;  // the executor has ended the session

  Mutex mutex_{LockRank::kSessionThread};
  wire::RingConsumer* ring_ GUARDED_BY(mutex_) = nullptr;  // while the executor runs
  bool channel_mapped_ GUARDED_BY(mutex_) = false;
  CUresult end_result_ GUARDED_BY(mutex_) = CUDA_SUCCESS;  // what close() was called with

  std::thread thread_;
};

}  // namespace openmps::worker
