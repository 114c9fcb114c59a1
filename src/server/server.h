// SPDX-License-Identifier: Apache-2.0
// openmps-server: accepts the clients of one user and owns their sessions, which run in its
// workers. The server does not use CUDA, so no GPU fault reaches it, and it is not on the data
// path. Made by main(), runs on one EventLoop; every peer (daemon, workers, clients) is a
// PacketPeer.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/event_loop.h"
#include "base/log.h"
#include "base/packet_peer.h"
#include "server/busy_devices.h"
#include "server/grants.h"
#include "server/history.h"
#include "server/kept.h"
#include "server/quarantine.h"
#include "server/recovery.h"
#include "server/session_table.h"
#include "server/workers.h"
#include "wire/message.h"

namespace openmps::server {

// How long the work of a client that has gone may go on before its worker is replaced. Most kernels
// take milliseconds; the driver's own watchdogs, where there are any, take 2 to 10 s.
inline constexpr uint64_t kDrainMs = 10'000;

// How long a server that has been told to end, and has no clients, waits for the remaining work of
// clients that have gone.
inline constexpr uint64_t kLeaveMs = 2'000;

// How long a domain without clients keeps its worker: a program that starts again finds it ready.
inline constexpr uint64_t kDomainUnusedMs = 10'000;

// How often it is looked who has been in quarantine for long enough.
inline constexpr uint64_t kQuarantineLookMs = 5'000;

// How often it is looked where programs that see several GPUs work, and so a third of the time for
// which they take turns with those that see one of these alone.
inline constexpr uint64_t kBusyLookMs = 2'000;

// Orders to record that a server carries out at once: each costs a descriptor for each session.
inline constexpr size_t kMostTraces = 16;

// How often a server that has lost its daemon looks for the next one.
inline constexpr uint64_t kRejoinMs = 50;

struct ServerOptions {
  WorkerOptions worker;
  std::string name = {};                          // by which the next daemon knows the server
  std::string control_socket = {};                // of the daemon; "": there is no next daemon
  uint64_t drain_ms = kDrainMs;                   // OPENMPS_DRAIN_SECONDS
  bool has_quarantine = true;                     // OPENMPS_QUARANTINE
  bool has_gpu_domains = true;                    // OPENMPS_GPU_DOMAINS
  uint64_t most_kept = 512;                       // descriptors that are kept for workers
  std::function<void()> on_worker_ready = [] {};  // called for each, before it serves
};

class Server final : Workers::Owner {
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
    ForeignFd client;
    bool has_lost_worker = false;  // as Session's
    Domain* domain = nullptr;
  };
  // A query that is answered once it is known what has become of these sessions.
  struct MoveQuery {
    wire::QueryKind kind{};
    uint32_t ticket = 0;
    std::set<std::string> domains = {};  // whose new worker does not serve yet; kRenew
    std::set<uint32_t> sessions = {};
    uint32_t moved = 0;
    uint32_t stayed = 0;
    CUresult result = CUDA_SUCCESS;
  };

  // A query that is answered when the workers of these sessions have answered.
  struct SuspendQuery {
    wire::QueryKind kind{};
    uint32_t ticket = 0;
    std::set<uint32_t> sessions = {};
    CUresult result = CUDA_SUCCESS;
    uint64_t moved = 0;  // bytes
    uint64_t stays = 0;
  };

  // A client, or all, that somebody has recorded.
  struct TraceOrder {
    wire::Query query;
    ForeignFd to;

    [[nodiscard]] bool is_of_client() const { return query.session != 0 || query.id != 0; }
    [[nodiscard]] bool means(const Session& session) const;
  };

  // From the daemon.
  void on_daemon_packet(Packet packet);
  void on_daemon_gone();
  Status take_daemon(UniqueFd daemon);
  void look_for_daemon();
  void on_admit(const wire::Admit& admit, ForeignFd client);
  void on_query(const wire::Query& query, ForeignFd descriptor);
  // Ends a client's sessions, whatever they execute; answers when they have ended.
  void terminate(const wire::Query& query);
  void note_end(uint32_t id);
  // kSuspend and kResume (suspend.cc).
  void suspend(const wire::Query& query);
  // Messages to the worker. A session that opens or moves is told when it is active, if a query
  // awaits its answer.
  static void tell_residence(const Session& session);
  void tell_awaited_residence(const Session& session);
  void on_session_suspended(Worker& worker, const wire::SessionSuspended& suspended);
  void answer_suspensions();
  // kTrace (trace.cc). A session that opens or moves is recorded when it is active.
  void trace(const wire::Query& query, ForeignFd to);
  void tell_of(const TraceOrder& order, Session& session);
  void tell_of_traces(Session& session);
  void end_traces_without_client();
  void end_traces(const std::function<bool(const TraceOrder&)>& which);
  void answer_terminations(CUresult result);
  // Partitions that have clients in any state.
  [[nodiscard]] std::vector<wire::StaticPartition> used_partitions() const;
  void answer(wire::QueryKind kind, uint32_t ticket, const Grants::Outcome& outcome);
  void on_shutdown(const wire::Shutdown& shutdown);
  void report_ready(CUresult result, const std::string& reason);

  // Workers.
  [[nodiscard]] bool wants_worker(const Domain& domain) const override;
  void on_worker_ready(const Worker& worker) override;
  void on_spare_ready(const Worker& worker) override;
  void on_no_spare(const Domain& domain) override;
  Status on_worker_message(Worker& worker, wire::MessageKind kind, Packet& packet) override;
  void on_sessions_lost(const Worker& worker, const std::string& how) override;
  void on_worker_silent(const Worker& worker) override;
  void on_worker_gone() override;
  void on_no_worker(Domain& domain, const std::string& reason) override;
  // Of each domain that a session or client waits for.
  void start_awaited_workers();
  // Messages of workers about sessions.
  Status on_session_ready(Worker& worker, const wire::SessionReady& ready);
  void on_session_closed(Worker& worker, const wire::SessionClosed& closed);
  void on_session_fault(Worker& worker, const wire::SessionFault& fault);
  Status on_worker_descriptor(Worker& worker, const Packet& packet);
  Status on_keep(Worker& worker, Packet& packet);
  void tell_of_closed_image(uint64_t hash);
  Status on_forget(Worker& worker, const wire::Forget& forget);
  void on_context_lost(Worker& worker, const wire::SessionFault& fault);
  // Sessions that outlive their worker.
  void on_worker_lost(Worker& worker, const wire::WorkerLost& lost);
  Status on_handed_over(Worker& worker, const wire::HandedOver& over);
  [[nodiscard]] Takeover* takeover_of(const Worker& worker) const;
  // Counts a lost worker of the domain. False: there have been too many for their sessions to be
  // made again.
  [[nodiscard]] static bool note_worker_lost(Domain& domain);
  // The sessions of the lost worker have been handed over, but for those that are late.
  void judge(Takeover& takeover);
  void decide(const Takeover& takeover, Session& session);
  // The lost worker is killed, and then its late sessions are taken as they are.
  void kill_late(Takeover& takeover);
  void take_late(Takeover& takeover);
  void begin_move(Session& session, wire::Adoption adoption,
                  const std::shared_ptr<Recovery>& recovery);
  // The session's worker has died, and it waits for the next one. False: it can't.
  bool take_from_dead(Session& session, const std::shared_ptr<Recovery>& recovery);
  // Ends the lost workers of whose sessions everything has been decided.
  void end_lost_workers_soon();
  // Names who has lost the worker, if that is known: the session, or 0.
  uint32_t name_culprit(const Takeover& takeover);
  // A worker of the domain has lost its contexts; `culprit` null: not known whose fault it was.
  void note_fault(const Domain& domain, const Session* culprit, CUresult result,
                  std::string_view what);
  void lose(Session& session, CUresult result, const std::string& why);
  // Give the sessions that wait for a worker to the one that serves their domain.
  void adopt_waiting();
  void adopt(Session& session, Worker& worker);
  void on_adopted(Session& session, const wire::SessionReady& ready);
  void on_adoption_late(uint32_t id);
  // The session's worker gets the descriptors that its client has sent meanwhile.
  static void pass_parked(Session& session);
  // What becomes of a session whose worker was lost is decided, and counted there. Nothing: it had
  // been, or the worker was not lost.
  void note_decided(Session& session, uint32_t Recovery::*outcome);
  void look_at_spares();
  void look_at_spare(Domain& domain);
  // Sessions that leave a worker which is well (leaving.cc).
  // kRenew: a new worker of each domain is started, and when it is ready it serves, and takes over
  // the sessions of the present one. If it does not start nothing has changed.
  void renew(const wire::Query& query);
  void begin_renewal(Domain& domain);
  // Asks workers to let those sessions go for which another worker serves: of workers that retire,
  // and those that belong to another domain.
  void send_home();
  [[nodiscard]] static bool is_to_leave(const Session& session);
  void ask_to_leave(Session& session);
  void on_leave_late(uint32_t id);
  // The worker has let the session go, or it stays there.
  void on_left(Session& session, const wire::HandedOver& over);
  // `outcome` null: its client has left.
  void note_left(uint32_t id, uint32_t MoveQuery::*outcome);
  // Answers the queries that wait for nothing any more.
  void answer_moves();

  // Fault domains (domains.cc).
  // Where a client belongs. `own`: its session, if it has one.
  Domain& domain_of(const wire::Admit& admit, const Session* own);
  // Another client of its group; null: there is none.
  [[nodiscard]] const Session* other_member(const wire::Admit& admit, const Session* own) const;
  // SMs are reserved for the client.
  [[nodiscard]] bool has_own_sms(const wire::Admit& admit, const Session* own) const;
  // Neither of that: it may go to another domain without the others.
  [[nodiscard]] bool may_change_domain(const Session& session) const;
  // Whether the client's domain may be that of the only GPU that it sees, if it sees one alone.
  [[nodiscard]] bool may_be_of_gpu(const wire::Admit& admit) const;
  // That GPU of a session; nothing: it has none.
  [[nodiscard]] std::optional<uint32_t> home_gpu(const Session& session) const {
    return may_be_of_gpu(session.admit) ? session.only_gpu : std::nullopt;
  }
  [[nodiscard]] std::optional<uint32_t> only_gpu_of(const wire::Admit& admit) const;
  void set_domain(Session& session, Domain& domain);
  // Clients of GPUs whose clients are all in the common domain now, or no longer, go where they
  // belong.
  void look_at_joined_devices();
  // From time to time it is looked where the programs of the common domain work.
  void watch_devices();
  void look_at_busy_devices();
  // Those clients go to the domains where they belong. False: some of them are on their way to
  // another one, or their sessions are not open yet.
  bool bring_home(const std::function<bool(const Session&)>& is_concerned, const char* reason);
  // The GPUs are known from the first worker on: clients that wait get into the domains of theirs.
  void assign_waiting();
  // The clients that wait for the domain's worker, which serves, get their sessions.
  void open_waiting(Domain& domain);
  // kMove: clients go on in the domain of that name.
  void move(const wire::Query& query);
  // The domain has no worker and gets none: its clients belong to the common one.
  void dissolve(Domain& domain);
  // A fault was the program's own, or its session, which moves, is the first of several suspects.
  void note_guilty(const Session& session);
  void note_suspect(Session& session);
  // Domains without clients end.
  void look_at_domains();
  void end_unused_domain(Domain& domain);
  void look_at_quarantine();

  // A session has no worker, or is about to have another one.
  [[nodiscard]] bool has_session_between_workers() const;
  // That, or a lost worker is there.
  [[nodiscard]] bool is_moving() const;
  // The worker's session of that number; null: it has none, or it has ended.
  [[nodiscard]] Session* session_of(const Worker& worker, uint32_t id) const;

  // Sessions.
  void open_session(Waiting next);
  Status start_session(Session& session, ForeignFd client);
  void welcome(Session& session);
  void refuse(PacketPeer& client, const wire::Admit& admit, CUresult result,
              const std::string& reason);
  void refuse(ForeignFd client, const wire::Admit& admit, CUresult result,
              const std::string& reason);
  // A descriptor for the client's session in the worker; anything else cuts the client off.
  void on_client_packet(uint32_t id, Packet packet);
  static void choose_reading(Session& session);
  void on_client_gone(uint32_t id, const std::string& unexpected);
  // The client has gone or is cut off: the worker drains the session, for options_.drain_ms.
  void end_session(Session& session, CUresult result);
  void on_drain_late(uint32_t id);
  // The session's work does not end: its worker is replaced, and ends with the work when the others
  // have left it.
  void abandon(const Session& session);
  // Makes the session's client, which has had no Welcome, one that waits for a worker. Nothing: the
  // client has gone.
  std::optional<Waiting> take_client(Session& session);
  // The worker could not open the session: the client gets a session in another worker.
  void open_again(Session& session);
  void erase_session(Session& session);
  void forget_session(uint32_t id);
  // A session has ended: end its worker or the server, or renew the worker, if that is due.
  void after_session();
  // Handles clients that have closed their connection and whose end the loop has not read yet.
  void notice_hang_ups();
  void ignore_hang_up(const Session& session);
  void leave_if_unused();
  void finish(int exit_status);

  EventLoop& loop_;
  const Log& log_;
  ServerOptions options_;
  Disposal disposal_;  // of descriptors that came from clients
  std::unique_ptr<PacketPeer> daemon_;
  uid_t daemon_user_ = 0;
  SessionTable sessions_;
  Kept kept_{loop_, options_.most_kept, [](const Worker& worker, uint64_t ticket) {
               worker.process->send(wire::message_bytes(wire::Forgotten{.ticket = ticket}));
             }};
  UniqueFd hang_ups_;  // epoll on the clients' connections, by session, for their end only
  Workers workers_{loop_, log_, disposal_, sessions_, options_.worker, *this};
  // A query that is answered once these sessions have ended.
  struct Termination {
    uint32_t ticket = 0;
    std::set<uint32_t> sessions;
  };
  std::vector<Termination> terminations_;
  std::vector<MoveQuery> moves_;
  std::vector<SuspendQuery> suspensions_;
  std::vector<TraceOrder> traces_;
  std::vector<std::unique_ptr<Takeover>> takeovers_;
  Quarantine quarantine_;
  EventLoop::TimerId quarantine_timer_ = 0;
  bool ends_lost_workers_ = false;  // end_lost_workers_soon() has been called
  Grants grants_{log_, sessions_, workers_};
  History history_{[this](std::span<const std::byte> message) {
    if (daemon_ != nullptr) daemon_->send(message);
  }};
  bool uses_gpu_domains_ = options_.has_gpu_domains;
  BusyDevices busy_devices_;
  EventLoop::TimerId busy_timer_ = 0;
  uint32_t joined_devices_ = 0;     // whose clients are all in the common domain, a bit each
  uint32_t unsettled_devices_ = 0;  // of which there are clients that may have to go elsewhere
  std::deque<Waiting> waiting_;     // until the (new) worker is ready; at most kMaxWindows
  bool leaving_ = false;            // no new clients; the server ends with the last client
  EventLoop::TimerId leave_timer_ = 0;
  int exit_status_ = 0;
};

}  // namespace openmps::server
