// SPDX-License-Identifier: Apache-2.0
// The servers of the daemon, one per user: started when a client needs one, given the clients that
// waited, forgotten when they end, shut down by quit. Used by Daemon and CommandRunner on the loop.
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

// A server that ends without a word before it was ready is started again, five times, as NVIDIA's
// daemon does. One that says why it can't work is not.
inline constexpr int kServerStartAttempts = 6;
// Clients that wait for one server to start; more than a server can ever admit are not kept.
inline constexpr size_t kMaxPendingClients = wire::kMaxWindows;
// Users at once. Each costs a worker with a context per GPU (hundreds of MiB of GPU memory).
inline constexpr size_t kMaxServers = 64;

struct NewClient {
  ForeignFd connection;
  uint32_t pid = 0;
  User user;
  wire::Hello hello;
  std::string group = {};  // "": none; settled when it is admitted
};

// Tell a client why it gets nothing. Its buffer is empty, so this neither blocks nor waits. The
// caller ends the connection.
void refuse_client(int connection, CUresult result, const std::string& reason);

class ServerPool {
 public:
  // `control_socket`: where this daemon listens, and the next one will.
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

  // Pass a client to its user's server, starting it if need be. A client that can't be served is
  // told why. Nothing is returned: everything is said to the client and the log.
  void admit(NewClient client);
  // Take the server back that has made this connection: a daemon that has died started it. One that
  // comes too late, or is of another build, is told to end with its last client.
  void take_back(User user, pid_t pid, uint64_t build, ForeignFd connection);
  // start_server: a server for the user, if there is none; one that is about to leave is none, and
  // its successor starts when it has gone. `done` is called once, now or then.
  void ensure_server(User user, std::function<void(Status)> done);
  // shutdown_server: this server leaves with its last client, or at once; clients that come
  // meanwhile wait for the next one. `done` is called when it has gone.
  void shut_down_server(ServerProcess& server, bool force, std::function<void()> done);

  [[nodiscard]] ServerProcess* find(std::string_view pid_text) const;
  // In the order of users.
  [[nodiscard]] std::vector<ServerProcess*> all() const;
  // Ask these servers (all that still exist) and hand over the answers in the same order.
  using Answers = std::vector<std::pair<pid_t, ServerAnswer>>;
  void ask(const std::vector<ServerProcess*>& servers, wire::QueryKind kind,
           std::function<void(Answers)> done);
  void ask(const std::vector<ServerProcess*>& servers, const wire::Query& query,
           std::function<void(Answers)> done);
  // The devices of this machine; if no server has run yet whose word counts for everybody, one is
  // started to find out and leaves when it has. An empty list and the reason, if it can't.
  void with_devices(std::function<void(const std::vector<Device>&, std::string why_not)> done);

  // Such a server has not ended yet.
  [[nodiscard]] bool is_there(pid_t pid) const;

  // -S, before there are clients: each has to name a partition. `kept`: what the last `keep` of a
  // daemon that was killed got.
  void use_static_partitions(const std::string& kept, std::function<void(std::string)> keep);
  // Call when they have changed.
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
  // Limits from now on: what `config` states in another way than the one before it, for coming
  // servers and for the coming clients of those that are there, of groups for all clients. The
  // environment's word goes before the defaults of `config`. Returns a line for each change.
  std::vector<std::string> configure(Config config);

 private:
  // A user's server from the first client that asks for it until it ends.
  struct Entry {
    std::unique_ptr<ServerProcess> process;
    int attempts = 0;
    bool ready = false;
    bool only_for_devices = false;  // started by with_devices: leaves unless a client came
    bool leaving = false;           // has been told so: new clients wait for the next one
    std::vector<Device> devices;    // as it tells them, by which its own clients' limits go
    CUresult failure = CUDA_SUCCESS;
    std::string failure_reason;
    std::deque<NewClient> pending;
    std::vector<std::function<void(Status)>> starts;  // wait for the next one to start
    std::vector<std::function<void()>> ends;          // wait for this one to end
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
  // What the configuration says of the groups of these rules, to one server.
  void tell_groups(const Entry& entry, const std::vector<GroupRule>& rules) const;
  std::vector<std::string> configure_groups(const std::vector<GroupRule>& before);
  // Of -S, as soon as the devices are known. Returns what StaticPartitions::place() says.
  std::vector<std::string> place_partitions();
  // That the client has named; without -S none.
  [[nodiscard]] Result<wire::StaticPartition> partition_of(const NewClient& client);
  [[nodiscard]] std::string reason_against(User user) const;

  EventLoop& loop_;
  const Log& log_;
  Disposal& disposal_;
  std::string server_program_;
  UniqueFd server_log_;
  std::string control_socket_;
  std::function<void()> server_ready_ = [] {};
  // What `config` and the environment state for a user's clients.
  [[nodiscard]] Limits limits_of(const Config& config, uid_t uid) const;

  const Limits environment_ = limits_of_environment();
  Config config_;
  Settings defaults_;
  std::optional<StaticPartitions> partitions_;
  std::function<void(std::string)> keep_partitions_;
  std::map<uid_t, Entry> entries_;
  ServerShutdown shutdown_{loop_, log_, [this] { return all(); }};
  // For everybody: as the server of the daemon's own user tells them, and until one has run, the
  // first one that this daemon has started. What has come back may be any program of its user's.
  std::vector<Device> devices_;
  std::vector<std::function<void(const std::vector<Device>&, std::string)>> device_waiters_;
};

}  // namespace openmps::control
