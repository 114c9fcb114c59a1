// SPDX-License-Identifier: Apache-2.0
// One openmps-server as the daemon sees it: start, messages, end. Used by ServerPool on the
// daemon's loop. The server runs as its user, so what it sends is checked like any peer's.
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
#include "wire/handshake.h"

namespace openmps::control {

// A server that does not answer a query in this time is reported as such; it answers from memory.
inline constexpr uint64_t kAnswerMs = 2000;
// Another user's may be made slow on purpose, and keeps everybody's commands waiting: each answer
// that took so long, or never came, halves the time that the next one has, at most kMostHalvings
// times. Forgiven when there was none for so long.
inline constexpr uint64_t kSlowAnswerMs = 250;
inline constexpr uint32_t kMostHalvings = 4;
inline constexpr uint64_t kForgiveMs = 600'000;
// A server that was forced to shut down gives its worker 5 s; after this it is killed.
inline constexpr uint64_t kForcedExitMs = 8000;
// One that has closed its connection has nothing left to do but to exit.
inline constexpr uint64_t kExitMs = 2000;

// Who a server is for, and who a client is: as the kernel says.
struct User {
  uid_t uid = 0;
  gid_t gid = 0;
};

struct ServerAnswer {
  bool answered = false;  // false: it has gone, or is silent
  wire::ServerState state = wire::ServerState::kInitializing;
  std::vector<ClientLine> clients;                // kClients
  std::vector<GroupLine> groups;                  // kGroups
  std::vector<Device> devices;                    // kDevices
  std::optional<Inspected> inspected;             // kInspect, if it has the session
  std::vector<wire::StaticPartition> partitions;  // kPartitions
  CUresult result = CUDA_SUCCESS;                 // kTerminate, kChange
  uint32_t amount = 0;                            // kChange
  bool more = false;  // kClients, kGroups: there are some with ids above these
};

// What a server's packet of kind Answer says: CUDA_ERROR_INVALID_VALUE if its counts do not fit its
// bytes. Texts are printable, whatever the server sent.
Result<ServerAnswer> read_answer(std::span<const std::byte> data, pid_t server);

class ServerProcess {
 public:
  struct Callbacks {
    // The worker is ready, or can't work: the result and the reason.
    std::function<void(CUresult result, std::string reason)> on_ready;
    std::function<void(uint32_t active_clients)> on_shutdown_refused;
    // The process has ended. The owner may destroy the ServerProcess in it.
    std::function<void(std::string how)> on_gone;
    // For the log: it does not answer, or does again, or what is sent to it waits.
    std::function<void(std::string what)> on_trouble;
  };

  ServerProcess(EventLoop& loop, Disposal& disposal, User user, Settings settings,
                Callbacks callbacks);
  ~ServerProcess();
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  // Start `program` as the user, with `log_fd` as its standard output and error, and tell it where
  // the next daemon would listen.
  Status start(const std::string& program, int log_fd, const std::string& control_socket);
  // Take one that another daemon started, by the connection that it has made: that is taken if this
  // succeeds. Errors: CUDA_ERROR_OPERATING_SYSTEM; CUDA_ERROR_NOT_PERMITTED: the process is not the
  // user's.
  Status adopt(pid_t pid, ForeignFd* connection);

  // Pass on a client. Errors: CUDA_ERROR_MPS_SERVER_NOT_READY: it does not answer, or so many wait
  // already for the system to let them pass.
  Status admit(const wire::Admit& admit, int client);
  void set_group(const wire::SetGroup& group);
  // `done` is called exactly once unless this object is destroyed first, at once if the server is
  // silent: such a one is not asked, except for its devices. kTerminate takes as long as the
  // client's work, or the server's limit for that (OPENMPS_DRAIN_SECONDS), and kDevices as long as
  // the server likes.
  void ask(wire::QueryKind kind, std::function<void(ServerAnswer)> done) {
    wire::Query query;
    query.query = kind;
    ask(query, std::move(done));
  }
  // The same with all that a query may say, but its ticket.
  void ask(wire::Query query, std::function<void(ServerAnswer)> done);
  void ask_to_shut_down();
  void force_shutdown();

  // It has not answered in time, and has not done so since.
  [[nodiscard]] bool is_silent() const { return owed_ != 0; }
  // By this daemon. One that has come back may be any program of its user's.
  [[nodiscard]] bool was_started_here() const { return !process_.valid(); }
  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] User user() const { return user_; }
  [[nodiscard]] Settings& settings() { return settings_; }

 private:
  struct Question {
    std::function<void(ServerAnswer)> done;
    EventLoop::TimerId timer = 0;
    uint64_t asked_ns = 0;
    ServerAnswer parts;  // lists of the parts of the answer that have come
  };
  void send_query(const wire::Query& query);
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
  User user_;
  Settings settings_;
  Callbacks callbacks_;
  pid_t pid_ = 0;
  UniqueFd process_;  // a pidfd, of one that is not our child: its number may be another's already
  std::unique_ptr<PacketPeer> peer_;
  std::string how_it_ended_;  // empty: it runs
  std::map<uint32_t, Question> questions_;
  bool has_to_answer_ = false;  // it has been passed a client since it said something
  Heartbeat heartbeat_;
  uint32_t last_ticket_ = 0;
  uint32_t owed_ = 0;          // answers to questions that have been given up
  uint32_t halvings_ = 0;      // of its time to answer
  uint64_t last_slow_ns_ = 0;  // now_ns()
  EventLoop::TimerId kill_timer_ = 0;
};

}  // namespace openmps::control
