// SPDX-License-Identifier: Apache-2.0
// The servers of the daemon, one per user: started when a client needs one, given the clients that
// waited, forgotten when they end, shut down by quit. Used by Daemon and the handlers of commands
// on the loop.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "control/config.h"
#include "control/server_process.h"
#include "control/server_shutdown.h"
#include "control/static_partitions.h"

namespace openmps::control {

// How often a server is started that ends before it is ready, without a reason: as often as by
// NVIDIA's daemon. One that states why it can't work is not started again.
inline constexpr int kServerStartAttempts = 6;
// Clients that wait for one server to start: as many as a server can admit.
inline constexpr size_t kMaxPendingClients = wire::kMaxWindows;
// Users at once. Each costs a worker with a context per GPU (hundreds of MiB of GPU memory).
inline constexpr size_t kMaxServers = 64;

struct NewClient {
  ForeignFd connection;
  uint32_t pid = 0;
  User user;
  wire::Hello hello;
  std::string group = {};  // "": none; found when the client is admitted
};

// Refuse a client, with a reason. Nothing was sent to it before, so its buffer takes the message at
// once. The caller ends the connection.
void refuse_client(int connection, CUresult result, const std::string& reason);

class ServerPool {
 public:
  // `control_socket`: the path at which this daemon and the next one listen.
  ServerPool(EventLoop& loop, const Log& log, Disposal& disposal, std::string server_program,
             UniqueFd server_log, std::string control_socket)
      : loop_(loop),
        log_(log),
        disposal_(disposal),
        server_program_(std::move(server_program)),
        server_log_(std::move(server_log)),
        control_socket_(std::move(control_socket)) {
    (void)defaults_.change({}, environment_);
  }

  // Pass a client to its user's server, which is started if there is none. If that fails, the
  // client and the log get the reason.
  void admit(NewClient client);
  // Adopt the server that has made this connection and was started by a daemon that has died. A
  // server that comes too late, or is of another build, is told to end with its last client.
  void take_back(User user, pid_t pid, uint64_t build, ForeignFd connection);
  // start_server: start a server for the user, unless there is one. If the user's server is ending,
  // the next one starts after it. `done` is called once, now or then.
  void ensure_server(User user, std::function<void(Status)> done);
  // shutdown_server: end this server with its last client, or at once; clients that come meanwhile
  // wait for the next one. `done` is called when the server has gone.
  void shut_down_server(ServerProcess& server, bool force, std::function<void()> done);

  [[nodiscard]] ServerProcess* find(std::string_view pid_text) const;
  // In the order of users.
  [[nodiscard]] std::vector<ServerProcess*> all() const;
  // Ask these servers, which must exist, and pass the answers to `done` in the servers' order.
  using Answers = std::vector<std::pair<pid_t, ServerAnswer>>;
  void ask(const std::vector<ServerProcess*>& servers, wire::QueryKind kind,
           std::function<void(Answers)> done);
  void ask(const std::vector<ServerProcess*>& servers, const wire::Query& query,
           std::function<void(Answers)> done);
  // The devices of this machine. If no server has run yet whose list counts for all users, one is
  // started to get the list, and ends then. An empty list and the reason on failure.
  void with_devices(std::function<void(const std::vector<Device>&, std::string why_not)> done);

  // Whether the server with that PID still runs.
  [[nodiscard]] bool is_there(pid_t pid) const;

  // For -S, before there are clients: each client has to name a partition. `kept`: the text that a
  // killed daemon passed to `keep` last.
  void use_static_partitions(const std::string& kept, std::function<void(std::string)> keep);
  // Call it when the partitions have changed.
  void keep_partitions() { keep_partitions_(partitions_->text()); }
  // Null: without -S.
  [[nodiscard]] StaticPartitions* partitions() { return partitions_ ? &*partitions_ : nullptr; }

  // quit: no new clients. With a timeout, servers that still have clients then are forced. A second
  // call may only shorten the wait. `done` is called when no server is left.
  void shut_down(std::optional<uint32_t> timeout_s, std::function<void()> done) {
    shutdown_.begin(timeout_s, std::move(done));
  }

  // Call when a server's first worker is ready, before a client is passed on to it.
  void on_server_ready(std::function<void()> call) { server_ready_ = std::move(call); }

  [[nodiscard]] Settings& defaults() { return defaults_; }
  // Puts the limits in force that `config` states in another way than the last one did: for coming
  // servers, for the coming clients of running servers, and limits of groups for all clients. The
  // environment overrides the defaults of `config`. Returns a line for each change.
  std::vector<std::string> configure(Config config);

 private:
  // A user's server from the first client that asks for it until it ends.
  struct Entry {
    std::unique_ptr<ServerProcess> process;
    int attempts = 0;
    bool ready = false;
    bool only_for_devices = false;  // started by with_devices: ends unless a client comes
    bool leaving = false;           // told to end: new clients wait for the next server
    std::vector<Device> devices;    // as it reports them, for the limits of its own clients
    CUresult failure = CUDA_SUCCESS;
    std::string failure_reason;
    std::deque<NewClient> pending;
    std::vector<std::function<void(Status)>> starts;  // wait for the next server to start
    std::vector<std::function<void()>> ends;          // wait for this server to end
  };
  [[nodiscard]] std::unique_ptr<ServerProcess> make_process(User user);
  Status start(User user, Entry* entry);
  void on_ready(uid_t uid, CUresult result, const std::string& reason);
  void ask_for_devices(uid_t uid);
  void on_devices(uid_t uid, const ServerAnswer& answer);
  void learn_devices(const Entry& entry);
  void begin_to_serve(uid_t uid);
  void on_refused(uid_t uid, uint32_t clients);
  void on_gone(uid_t uid, const std::string& how);
  void refuse(NewClient client, CUresult result, const std::string& reason);
  void fail_pending(Entry* entry, CUresult result, const std::string& reason);
  void answer_device_waiters(const std::string& why_not);
  void pass_on(Entry* entry, NewClient client);
  [[nodiscard]] std::string group_of(const NewClient& client) const;
  // Sends one server the configuration's limits of the groups of these rules.
  void tell_groups(const Entry& entry, const std::vector<GroupRule>& rules) const;
  std::vector<std::string> configure_groups(const std::vector<GroupRule>& before);
  // For -S, as soon as the devices are known: the lines of StaticPartitions::place().
  std::vector<std::string> place_partitions();
  // The partition that the client names; without -S none.
  [[nodiscard]] Result<wire::StaticPartition> partition_of(const NewClient& client);
  [[nodiscard]] std::string reason_against(User user) const;

  EventLoop& loop_;
  const Log& log_;
  Disposal& disposal_;
  std::string server_program_;
  UniqueFd server_log_;
  std::string control_socket_;
  std::function<void()> server_ready_ = [] {};
  // The limits that `config` and the environment state for a user's clients.
  [[nodiscard]] Limits limits_of(const Config& config, uid_t uid) const;

  const Limits environment_ = limits_of_environment();
  Config config_;
  Settings defaults_;
  std::optional<StaticPartitions> partitions_;
  std::function<void(std::string)> keep_partitions_;
  std::map<uid_t, Entry> entries_;
  ServerShutdown shutdown_{loop_, log_, [this] { return all(); }};
  // The list for all users: from the server of the daemon's own user or, before one has run, from
  // the first server that this daemon has started. An adopted server may be any program of its
  // user.
  std::vector<Device> devices_;
  std::vector<std::function<void(const std::vector<Device>&, std::string)>> device_waiters_;
};

}  // namespace openmps::control
