// SPDX-License-Identifier: Apache-2.0
// One openmps-server as the daemon sees it: start, messages, end. Used by ServerPool on the
// daemon's loop. The server runs as its user, so its messages are checked like those of any peer.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/heartbeat.h"
#include "base/packet_peer.h"
#include "control/format.h"
#include "control/settings.h"
#include "control/user.h"
#include "wire/handshake.h"

namespace openmps::control {

// A server that does not answer a query in this time is reported as silent. Answers come from
// memory.
inline constexpr uint64_t kAnswerMs = 2000;
// A user may make a server slow on purpose, and all users' commands wait for it. So each answer
// that takes longer than kSlowAnswerMs, or does not come, halves the time for the next one, at most
// kMostHalvings times. After kForgiveMs without a slow answer the full time counts again.
inline constexpr uint64_t kSlowAnswerMs = 250;
inline constexpr uint32_t kMostHalvings = 4;
inline constexpr uint64_t kForgiveMs = 600'000;
// A server that is forced to shut down gives its worker 5 s. After this time the server is killed.
inline constexpr uint64_t kForcedExitMs = 8000;
// How long a server may take to exit after it has closed its connection.
inline constexpr uint64_t kExitMs = 2000;

struct ServerAnswer {
  bool answered = false;  // false: the server has gone, or is silent
  wire::ServerState state = wire::ServerState::kInitializing;
  std::vector<ClientLine> clients;                // kClients
  std::vector<GroupLine> groups;                  // kGroups
  std::vector<wire::TotalsRow> totals;            // kTotals
  std::vector<Device> devices;                    // kDevices
  std::optional<Inspected> inspected;             // kInspect, if it has the session
  std::vector<wire::StaticPartition> partitions;  // kPartitions
  // kTerminate, kChange, kReserve, kRenew, kMove, kSuspend, kResume
  CUresult result = CUDA_SUCCESS;
  uint32_t amount = 0;        // kChange, kReserve, kRenew, kMove
  uint32_t stayed = 0;        // kRenew, kMove
  uint64_t moved_bytes = 0;   // kSuspend
  uint64_t stayed_bytes = 0;  // kSuspend
  bool more = false;          // kClients, kGroups, kTotals: there are rows with higher ids
};

// Reads a server's packet of kind Answer. CUDA_ERROR_INVALID_VALUE: its counts do not fit its
// bytes. Texts are made printable.
Result<ServerAnswer> read_answer(std::span<const std::byte> data, pid_t server);

class ServerProcess {
 public:
  struct Callbacks {
    // The worker is ready, or can't work: the result and the reason.
    std::function<void(CUresult result, std::string reason)> on_ready;
    std::function<void(uint32_t active_clients)> on_shutdown_refused;
    // The process has ended. The owner may destroy the ServerProcess in it.
    std::function<void(std::string how)> on_gone;
    std::function<void(const wire::TotalsRow& row)> on_totals;
    std::function<void(const wire::Event& event)> on_event;
    // For the log: the server does not answer, or answers again, or messages to it wait.
    std::function<void(std::string what)> on_trouble;
  };

  ServerProcess(EventLoop& loop, Disposal& disposal, std::string name, User user, Settings settings,
                Callbacks callbacks);
  ~ServerProcess();
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  struct Program {
    std::string path;
    int log_fd = -1;                        // its standard output and error
    std::string control_socket;             // the path at which a next daemon would listen
    std::vector<std::string> devices = {};  // UUIDs of those that it sees; empty: all
  };
  // Start the program as the user.
  Status start(const Program& program);
  // Adopt a server that another daemon started, with the connection that it has made, which is
  // taken on success. Errors: CUDA_ERROR_OPERATING_SYSTEM; CUDA_ERROR_NOT_PERMITTED: the process
  // belongs to another user.
  Status adopt(pid_t pid, ForeignFd* connection);

  // Pass on a client. CUDA_ERROR_MPS_SERVER_NOT_READY: the server does not answer, or too many
  // clients wait to be sent to it.
  Status admit(const wire::Admit& admit, int client);
  void set_group(const wire::SetGroup& group);
  // `done` is called exactly once unless this object is destroyed first. A silent server is not
  // asked, except for its devices: `done` is called at once. kTerminate takes as long as the
  // client's work, up to OPENMPS_DRAIN_SECONDS; kDevices, kRenew, kMove, kSuspend and kResume have
  // no limit of time.
  void ask(wire::QueryKind kind, std::function<void(ServerAnswer)> done) {
    wire::Query query;
    query.query = kind;
    ask(query, std::move(done));
  }
  // ask() with a whole query, in which the ticket is set here. `descriptor`: that goes with it; -1:
  // none.
  void ask(wire::Query query, std::function<void(ServerAnswer)> done, int descriptor = -1);
  void ask_to_shut_down();
  void force_shutdown();

  // Whether nothing waits to be sent to it.
  [[nodiscard]] bool has_sent_all() const { return peer_ == nullptr || peer_->drained(); }
  // Whether an answer is overdue.
  [[nodiscard]] bool is_silent() const { return owed_ != 0; }
  // Whether this daemon started it. An adopted server may be any program of its user.
  [[nodiscard]] bool was_started_here() const { return !process_.valid(); }
  [[nodiscard]] pid_t pid() const { return pid_; }
  // Which of the daemon's servers it is: name_of_users_server(), or a name by configuration or
  // command.
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] User user() const { return user_; }
  [[nodiscard]] Settings& settings() { return settings_; }

 private:
  struct Question {
    std::function<void(ServerAnswer)> done;
    EventLoop::TimerId timer = 0;
    uint64_t asked_ns = 0;
    ServerAnswer parts;  // the lists of the parts that have come so far
  };
  void send_query(const wire::Query& query, int descriptor = -1);
  bool probe();
  Status open_connection(UniqueFd connection);
  void kill_now();
  void on_packet(const Packet& packet);
  Status handle_packet(const Packet& packet);
  Status on_answer(std::span<const std::byte> data);
  Status on_late_answer(uint32_t ticket);
  [[nodiscard]] uint64_t patience_ms();
  void note_slow();
  void finish_question(uint32_t ticket, ServerAnswer answer);
  void shut_down(uint32_t force);
  void kill_after(uint64_t delay_ms);
  void on_connection_closed();
  void finish_if_gone();

  EventLoop& loop_;
  Disposal& disposal_;
  const std::string name_;
  User user_;
  Settings settings_;
  Callbacks callbacks_;
  pid_t pid_ = 0;
  UniqueFd process_;  // of an adopted server: its PID may have been reused
  std::unique_ptr<PacketPeer> peer_;
  std::string how_it_ended_;  // empty: it runs
  std::map<uint32_t, Question> questions_;
  bool has_to_answer_ = false;  // a client was passed on after its last message
  Heartbeat heartbeat_;
  uint32_t last_ticket_ = 0;
  uint32_t owed_ = 0;          // answers that are overdue
  uint32_t halvings_ = 0;      // of the time for an answer
  uint64_t last_slow_ns_ = 0;  // now_ns()
  EventLoop::TimerId kill_timer_ = 0;
};

}  // namespace openmps::control
