// SPDX-License-Identifier: Apache-2.0
// The servers of the daemon, one per user and those that are named: started when a client needs
// one, given the clients that waited, forgotten when they end, shut down by quit. Used by Daemon
// and the handlers of commands on the loop.
#pragma once

#include <unistd.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "control/config_state.h"
#include "control/doors.h"
#include "control/history.h"
#include "control/named_servers.h"
#include "control/server_process.h"
#include "control/server_shutdown.h"
#include "control/static_partitions.h"

namespace openmps::control {

// How often a server is started that ends before it is ready, without a reason: as often as by
// NVIDIA's daemon. One that states why it can't work is not started again.
inline constexpr int kServerStartAttempts = 6;
// Clients that wait for one server to start: as many as a server can admit.
inline constexpr size_t kMaxPendingClients = wire::kMaxWindows;
// Servers at once. Each costs a worker with a context per GPU (hundreds of MiB of GPU memory).
inline constexpr size_t kMaxServers = 64;

struct NewClient {
  ForeignFd connection;
  uint32_t pid = 0;
  User user;
  wire::Hello hello;
  Door door = {};  // by which it has come
  // Found when the client is admitted.
  std::string server = {};
  std::string group = {};  // "": none
};

// Refuse a client, with a reason. Nothing was sent to it before, so its buffer takes the message at
// once. The caller ends the connection.
void refuse_client(int connection, CUresult result, const std::string& reason);

class ServerPool {
 public:
  // `control_socket`: the path at which this daemon and the next one listen.
  ServerPool(EventLoop& loop, const Log& log, Disposal& disposal, Doors& doors,
             std::string server_program, UniqueFd server_log, std::string control_socket)
      : loop_(loop),
        log_(log),
        disposal_(disposal),
        doors_(doors),
        server_program_(std::move(server_program)),
        server_log_(std::move(server_log)),
        control_socket_(std::move(control_socket)) {
    (void)defaults_.change({}, environment_);
  }

  // Pass a client to its server, which is started if there is none. If that fails, the client and
  // the log get the reason.
  void admit(NewClient client);
  // Adopt the server that has made this connection and was started by a daemon that has died. A
  // server that comes too late, or is of another build, is told to end with its last client.
  void take_back(User user, pid_t pid, const wire::Rejoin& rejoin, ForeignFd connection);
  // start_server: start the user's server, unless there is one. If it is ending, the next one
  // starts after it. `done` is called once, now or then.
  void ensure_server(User user, std::function<void(Status)> done) {
    ensure_server(name_of_users_server(user.uid), user, std::move(done));
  }
  // shutdown_server: end this server with its last client, or at once; clients that come meanwhile
  // wait for the next one. `done` is called when the server has gone.
  void shut_down_server(ServerProcess& server, bool force, std::function<void()> done);

  [[nodiscard]] ServerProcess* find(std::string_view pid_text) const;
  [[nodiscard]] ServerProcess* find_named(const std::string& name) const;
  // In the order of users, then of names.
  [[nodiscard]] std::vector<ServerProcess*> all() const;
  // Ask these servers, which must exist, and pass the answers to `done` in the servers' order.
  using Answers = std::vector<std::pair<pid_t, ServerAnswer>>;
  void ask(const std::vector<ServerProcess*>& servers, wire::QueryKind kind,
           std::function<void(Answers)> done);
  // `descriptor`: that goes with the query; -1: none.
  void ask(const std::vector<ServerProcess*>& servers, const wire::Query& query,
           std::function<void(Answers)> done, int descriptor = -1);
  // The devices of this machine. If no server has run yet whose list counts for all users, one is
  // started to get the list, and ends then. An empty list and the reason on failure.
  void with_devices(std::function<void(const std::vector<Device>&, std::string why_not)> done);

  // Whether the server with that PID still runs.
  [[nodiscard]] bool is_there(pid_t pid) const;

  // Before there are clients: what the daemon that was killed has left (`kept`; empty: none was),
  // and where this daemon's state goes for the next one.
  void restore(const std::string& kept, std::function<void(std::string)> keep);
  // Call it when partitions or features have changed.
  void keep_state();

  // Whether there is something to keep.
  [[nodiscard]] bool has_state() const { return !named_.all().empty() || !partitions_.empty(); }

  // For -S: each client has to name a partition.
  void require_partitions() { requires_partitions_ = true; }
  [[nodiscard]] bool requires_partitions() const { return requires_partitions_; }
  [[nodiscard]] StaticPartitions& partitions() { return partitions_; }
  // Whether a client of these servers, as they have answered, is in the partition.
  [[nodiscard]] bool has_clients(const StaticPartitions::Partition& partition,
                                 const Answers& answers) const;

  // Servers with names, and namespaces. Each `done` is called once, now or later.
  // For -m: root's servers serve everybody.
  void serve_everybody() { named_.serve_everybody(); }
  [[nodiscard]] const NamedServers& named() const { return named_; }
  // Makes the server with its default namespace and starts it; `devices` may be ordinals and
  // beginnings of UUIDs. Done when it serves. Errors: those of NamedServers::add() and
  // Doors::open(); CUDA_ERROR_INVALID_DEVICE: there is no such device; why the server did not
  // start.
  void create_server(NamedServer server, const std::function<void(Status)>& done);
  // Starts those that do not run, from now on as soon as they are configured: servers of a killed
  // daemon have had the time to come back.
  void start_all_named();
  // Forgets the server and its namespaces, and ends it. CUDA_ERROR_NOT_READY: it has clients, and
  // `force` does not end them.
  void delete_server(const std::string& name, bool force, const std::function<void(Status)>& done);
  // A user's own server (uid_N) becomes a named one with its first namespace or limit.
  Status create_namespace(const std::string& server, GroupRule rule);
  // Ends the namespace, which no clients have.
  void delete_namespace(const std::string& server, const std::string& name);
  // Limits of a namespace, in force for its clients at once, and the best quality of those that
  // come from now on; nothing: it stays. CUDA_ERROR_INVALID_VALUE: there is no such namespace, or
  // the limits contradict each other.
  Status set_namespace(const std::string& server, const std::string& name,
                       const LimitChanges& changes, std::optional<wire::Quality> quality = {});
  // No clients come into the namespace while it is being deleted, or again.
  Status open_namespace(const std::string& server, const std::string& name);
  void close_namespace(const std::string& server, const std::string& name);
  // The directory of a namespace's socket; without a name that of its server.
  [[nodiscard]] std::string path_of(const std::string& server, const std::string& name = "") const {
    return doors_.path(server, name);
  }
  // The configuration file has the namespace.
  [[nodiscard]] bool is_configured(const std::string& server, const std::string& name) const {
    const auto found = config_.servers.find(server);
    return found != config_.servers.end() && found->second.namespaces.contains(name);
  }
  // The devices as the server counts them; empty: it does not run.
  [[nodiscard]] std::vector<Device> devices_of(const std::string& server) const;
  [[nodiscard]] Features& features() { return features_; }
  [[nodiscard]] const History& history() const { return history_; }

  // quit: no new clients. With a timeout, servers that still have clients then are forced. A second
  // call may only shorten the wait. `done` is called when no server is left.
  void shut_down(std::optional<uint32_t> timeout_s, std::function<void()> done) {
    shutdown_.begin(timeout_s, std::move(done));
  }

  // No client waits for a server, or to be sent to one.
  [[nodiscard]] bool has_passed_on_all() const;

  // Call when a server's first worker is ready, before a client is passed on to it.
  void on_server_ready(std::function<void()> call) { server_ready_ = std::move(call); }

  [[nodiscard]] Settings& defaults() { return defaults_; }
  // Puts the limits in force that `config` states in another way than the last one did: for coming
  // servers, for the coming clients of running servers, and limits of groups for all clients. The
  // environment overrides the defaults of `config`. Returns a line for each change.
  std::vector<std::string> configure(Config config);

 private:
  // A server from the first client that asks for it until it ends.
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
    std::vector<std::function<void(Status)>> serves;  // wait for the server to serve
    std::vector<std::function<void()>> ends;          // wait for this server to end
  };
  [[nodiscard]] std::unique_ptr<ServerProcess> make_process(const std::string& name, User user);
  void ensure_server(const std::string& name, User user, std::function<void(Status)> done);
  Status start(const std::string& name, User user, Entry* entry);
  void on_ready(const std::string& name, CUresult result, const std::string& reason);
  void ask_for_devices(const std::string& name);
  void on_devices(const std::string& name, const ServerAnswer& answer);
  void learn_devices(const Entry& entry);
  void begin_to_serve(const std::string& name);
  void on_refused(const std::string& name, uint32_t clients);
  void on_gone(const std::string& name, const std::string& how);
  void on_event(const std::string& name, const wire::Event& event);
  // A client that no server has been asked about.
  void note_refused(const NewClient& client, CUresult result, const std::string& reason);
  void refuse(NewClient client, CUresult result, const std::string& reason);
  void fail_pending(Entry* entry, CUresult result, const std::string& reason);
  void answer_device_waiters(const std::string& why_not);
  void pass_on(Entry* entry, NewClient client);
  // Finds the client's server and group. Errors: the reason for which it may not come.
  Status place(NewClient* client) const;
  // The user as whom the client's server runs.
  [[nodiscard]] User user_of(const NewClient& client) const;
  // Adds the server and opens its namespaces; undoes it on failure.
  Status add_named(NamedServer server);
  void forget_server(const std::string& name);
  // `done` is called when it serves, or can't.
  void start_named(const std::string& name, std::function<void(Status)> done);
  // A failure goes to the log.
  void start_named_logged(const std::string& name);
  // What a group or namespace of that server has; null: it has no rule.
  [[nodiscard]] const GroupRule* rule_for(const std::string& server, std::string_view group) const;
  // Sends one server the limits of the groups of these rules, and of its namespaces.
  void tell_groups(const Entry& entry, const std::vector<GroupRule>& rules) const;
  void tell_namespace(const std::string& server, const GroupRule& rule) const;
  std::vector<std::string> configure_groups(const std::vector<GroupRule>& before);
  std::vector<std::string> configure_servers(const std::map<std::string, NamedServer>& before);
  std::vector<std::string> configure_server(const NamedServer* before, const NamedServer& now);
  // The server of that name, made if it is a user's own one. Null: there is none.
  Result<NamedServer*> named_or_users(const std::string& name);
  // As soon as the devices are known: the lines of StaticPartitions::place().
  std::vector<std::string> place_partitions();
  [[nodiscard]] std::string owner_of(const std::string& server, wire::StaticPartition partition);
  // The partition that the client names or that its namespace has, with its device as the daemon
  // counts it. Errors: CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION.
  [[nodiscard]] Result<wire::StaticPartition> partition_of(const NewClient& client);
  // A server that sees some of the devices counts them in another way than the daemon; a device
  // that the other side does not have is wire::kMaxDevices.
  [[nodiscard]] bool sees_some(const std::string& server) const;
  // The use of devices in the daemon's order, if those are known.
  void reorder_devices(const std::string& server, ServerAnswer* answer) const;
  [[nodiscard]] uint32_t daemons_device(const std::string& server, uint32_t device) const;
  [[nodiscard]] uint32_t servers_device(const std::string& server, uint32_t device) const;
  [[nodiscard]] std::string reason_against(const std::string& name, User user) const;

  EventLoop& loop_;
  const Log& log_;
  Disposal& disposal_;
  Doors& doors_;
  std::string server_program_;
  UniqueFd server_log_;
  std::string control_socket_;
  std::function<void()> server_ready_ = [] {};
  // The limits that `config` and the environment state for a user's clients.
  [[nodiscard]] Limits limits_of(const Config& config, uid_t uid) const;

  const Limits environment_ = limits_of_environment();
  Config config_;
  Settings defaults_;
  StaticPartitions partitions_;
  bool requires_partitions_ = false;
  bool starts_named_ = false;
  NamedServers named_{geteuid()};
  Features features_;
  History history_;
  std::function<void(std::string)> keep_ = [](const std::string&) {};
  bool has_kept_ = false;
  std::map<std::string, Entry> entries_;  // by the server's name
  ServerShutdown shutdown_{loop_, log_, [this] { return all(); }};
  // The list for all users: from the server of the daemon's own user or, before one has run, from
  // the first server that this daemon has started. An adopted server may be any program of its
  // user.
  std::vector<Device> devices_;
  std::vector<std::function<void(const std::vector<Device>&, std::string)>> device_waiters_;
};

}  // namespace openmps::control
