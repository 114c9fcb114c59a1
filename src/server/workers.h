// SPDX-License-Identifier: Apache-2.0
// The workers of one server: their start, end and replacement (docs/decisions/0010). Used by
// Server, which has the sessions, on the loop's thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/event_loop.h"
#include "base/log.h"
#include "base/packet_peer.h"
#include "server/devices.h"
#include "server/restart_backoff.h"
#include "server/session_table.h"
#include "server/worker_state.h"

namespace openmps::server {

// A worker that is not ready in time or ends before it was, without a reason that it states itself,
// is followed by another, so many in all; then the server gives up with the reason.
inline constexpr int kWorkerStartAttempts = 3;

// A worker that is neither ready nor gone after this hangs, or is stopped: the next one takes its
// place, with twice the time. Without the persistence daemon a machine of eight GPUs takes tens of
// seconds to initialise; a client waits for 120 s.
inline constexpr uint64_t kWorkerReadyMs = 60'000;

// So many windows, of up to 18 MiB of pinned memory each, may a worker keep of clients that have
// ended before newcomers get another: beside a kernel that does not end it can't give them back.
inline constexpr uint32_t kMaxKeptWindows = 32;
// For so long: many clients that end at once leave more than that for some milliseconds.
inline constexpr uint64_t kKeptWindowsMs = 1000;

// Workers beside the current one that stay for clients of theirs. Each holds a context per GPU and
// a kernel that does not end, so the oldest goes, with its clients, before there are more.
inline constexpr size_t kMaxRetiringWorkers = 3;

struct WorkerOptions {
  std::string program;
  std::string driver = "auto";  // OPENMPS_DRIVER
  uint64_t ready_ms = kWorkerReadyMs;
  uint64_t ping_ms = kPingMs;
  uint64_t silent_ms = kSilentMs;
};

// At most one worker is current: starting, or open to newcomers.
class Workers {
 public:
  // Who has the sessions.
  class Owner {
   public:
    // Somebody waits for a worker, or may still come.
    [[nodiscard]] virtual bool wants_worker() const = 0;
    // The current one serves from now on.
    virtual void on_worker_ready(const Worker& worker) = 0;
    // A message about its sessions. An error: it breaks the protocol, and is replaced.
    virtual Status on_worker_message(Worker& worker, wire::MessageKind kind,
                                     const Packet& packet) = 0;
    // Its sessions are lost with it. `how` it has gone; empty: the server ends it.
    virtual void on_sessions_lost(const Worker& worker, const std::string& how) = 0;
    // The one that serves does not answer: who waits for it to open a session gets another's.
    virtual void on_worker_silent(const Worker& worker) = 0;
    // One has gone; if it was the current one, the next is on its way.
    virtual void on_worker_gone() = 0;
    // None can be started.
    virtual void on_no_worker(const std::string& reason) = 0;

   protected:
    ~Owner() = default;
  };

  // Borrows everything.
  Workers(EventLoop& loop, const Log& log, Disposal& disposal, SessionTable& sessions,
          const WorkerOptions& options, Owner& owner)
      : loop_(loop),
        log_(log),
        disposal_(disposal),
        sessions_(sessions),
        options_(options),
        owner_(owner) {}

  // Start one, unless there is a current one or the next one starts after a pause.
  void start();
  // The one that is open to newcomers, or null.
  [[nodiscard]] Worker* serving() const {
    return current_ != nullptr && current_->state == WorkerState::kServing ? current_ : nullptr;
  }
  // Of the last worker that was ready.
  [[nodiscard]] const std::vector<Device>& devices() const { return devices_; }
  [[nodiscard]] wire::ServerState state() const { return state_; }

  // It has got something to do: it is to answer from now on.
  static void note_session(Worker& worker) { worker.heartbeat->beat(); }
  // Whatever they are at.
  void tell_all(std::span<const std::byte> message) const;
  // A worker has opened a session.
  void on_served() { restart_backoff_.worker_served(); }
  // Newcomers go to the next worker, which starts now; the one that serves (there must be one) ends
  // with its last living client, at once if it has none.
  void retire_serving();
  // Likewise, if the worker is the current one and keeps too many windows for kKeptWindowsMs.
  void look_at_windows(Worker& worker);
  // Likewise, if nobody is connected to the one that serves, and somebody has left marks on it.
  void renew_if_tainted();
  // End those that stay for clients which have left.
  void end_unused();
  // The worker's contexts are lost. Nothing of it is of use to anybody any more, and its memory is
  // to newcomers: it ends now, whether its clients go on with their error or not.
  void discard(Worker& worker);

  // End all, then stop the loop.
  void stop();
  [[nodiscard]] bool stopping() const { return stopping_; }

 private:
  void retire_if_clogged(Worker& worker);
  void on_late(Worker& worker);
  [[nodiscard]] std::unique_ptr<Heartbeat> make_heartbeat(Worker& worker);
  void on_silent(Worker& worker, uint64_t ms);
  void on_gone(Worker& worker, const std::string& how);
  void on_packet(Worker& worker, Packet& packet);
  Status handle_packet(Worker& worker, Packet& packet);
  Status on_ready(Worker& worker, Packet& packet);
  static Status read_usage(Worker& worker, const Packet& packet);
  [[nodiscard]] bool one_ends() const;
  // End it now. Clients that it still has get CUDA_ERROR_MPS_RPC_FAILURE.
  void end(Worker& worker);
  // No worker is current: start the next, after a pause if they die one after the other.
  void replace();
  void give_up(const std::string& reason);

  EventLoop& loop_;
  const Log& log_;
  Disposal& disposal_;
  SessionTable& sessions_;
  const WorkerOptions& options_;
  Owner& owner_;
  std::vector<std::unique_ptr<Worker>> workers_;  // by age
  Worker* current_ = nullptr;   // null: none, the next one starts after a pause or with a newcomer
  bool start_pending_ = false;  // that pause
  bool awaits_device_ = false;  // which one that ends has: the next one starts behind it
  bool stopping_ = false;
  int attempts_ = 0;  // since the last one that was ready
  RestartBackoff restart_backoff_;
  std::vector<Device> devices_;
  wire::ServerState state_ = wire::ServerState::kInitializing;
};

}  // namespace openmps::server
