// SPDX-License-Identifier: Apache-2.0
// openmps-server: admits the clients of one user, owns their sessions, watches and replaces the
// worker. It holds no CUDA, so no GPU fault reaches it, and it is not on the data path. Made by
// main(), runs on one EventLoop; every peer (daemon, worker, clients) is a PacketPeer.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "base/event_loop.h"
#include "base/log.h"
#include "base/packet_peer.h"
#include "server/devices.h"
#include "server/restart_backoff.h"
#include "server/session_table.h"
#include "server/worker_process.h"

namespace openmps::server {

// A worker that ends before it was ready is tried again this often, without a reason that it states
// itself; then the server gives up with the reason.
inline constexpr int kWorkerStartAttempts = 3;

// A worker that is neither ready nor gone after this hangs in its driver. Generous: without the
// persistence daemon a machine of eight GPUs takes tens of seconds to initialise.
inline constexpr uint64_t kWorkerReadyMs = 120'000;

struct ServerOptions {
  std::string worker_program;
  std::string driver = "auto";  // OPENMPS_DRIVER
  uint64_t worker_ready_ms = kWorkerReadyMs;
};

class Server {
 public:
  Server(EventLoop& loop, const Log& log, ServerOptions options);

  // Take the daemon's connection and start the worker. Errors: CUDA_ERROR_OPERATING_SYSTEM.
  Status start(UniqueFd daemon);
  // End at once: clients get CUDA_ERROR_MPS_RPC_FAILURE, then the loop stops. Signals and Shutdown.
  void force_stop();
  // For main(), when the loop has stopped.
  [[nodiscard]] int exit_status() const { return exit_status_; }

 private:
  struct Waiting {
    wire::Admit admit;
    UniqueFd client;
  };

  // From the daemon.
  void on_daemon_packet(Packet packet);
  void on_daemon_gone();
  void on_admit(const wire::Admit& admit, UniqueFd client);
  void on_query(const wire::Query& query);
  void on_shutdown(const wire::Shutdown& shutdown);
  void report_ready(CUresult result, const std::string& reason);

  // From the worker.
  void start_worker();
  void on_worker_late();
  void on_worker_packet(const Packet& packet);
  Status handle_worker_packet(const Packet& packet);
  Status on_worker_ready(const Packet& packet);
  Status on_session_ready(const wire::SessionReady& ready);
  void on_session_fault(const wire::SessionFault& fault);
  Status on_worker_descriptor(const Packet& packet);
  void on_context_lost(const wire::SessionFault& fault);
  void on_worker_gone(const std::string& how);

  // Sessions.
  void open_session(const wire::Admit& admit, UniqueFd client);
  void welcome(Session& session);
  void refuse(PacketPeer& client, CUresult result, const std::string& reason);
  void refuse(UniqueFd client, CUresult result, const std::string& reason);
  // A descriptor for the client's session in the worker; anything else cuts the client off.
  void on_client_packet(uint32_t id, const Packet& packet);
  void on_client_gone(uint32_t id, const std::string& unexpected);
  void end_session(Session& session, CUresult result);
  void forget_session(uint32_t id);
  // What is due when a session has gone: the end of the server, or a new worker.
  void after_session();
  void finish(int exit_status);

  [[nodiscard]] std::string name_of(const Session& session) const;

  EventLoop& loop_;
  const Log& log_;
  ServerOptions options_;
  std::unique_ptr<PacketPeer> daemon_;
  std::unique_ptr<WorkerProcess> worker_;  // nullptr: none, the next one starts after a pause
  int worker_attempts_ = 0;                // since the last one that was ready
  RestartBackoff restart_backoff_;
  bool worker_ready_ = false;
  EventLoop::TimerId worker_ready_timer_ = 0;
  std::string worker_error_;  // what the current worker said of why it can't work
  uint32_t spin_us_ = 0;
  UniqueFd facts_;
  std::vector<Device> devices_;
  wire::ServerState state_ = wire::ServerState::kInitializing;
  bool context_lost_ = false;  // a fault: the worker is replaced when its clients have left
  SessionTable sessions_;
  std::deque<Waiting> waiting_;  // until the (new) worker is ready; at most kMaxWindows
  bool leaving_ = false;         // no new clients; the end comes with the last one
  bool finishing_ = false;       // the end: waits for the worker's only
  int exit_status_ = 0;
};

}  // namespace openmps::server
