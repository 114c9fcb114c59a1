// SPDX-License-Identifier: Apache-2.0
// The servers of the daemon: start, clients, end.
#include "control/server_pool.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "wire/message.h"

namespace openmps::control {

void refuse_client(int connection, CUresult result, const std::string& reason) {
  wire::Welcome no;
  no.result = result;
  fill_field(no.reason, reason);
  (void)send_packet(connection, wire::message_bytes(no)).ok();  // the client may have gone
}

Limits ServerPool::limits_of(const Config& config, uid_t uid) const {
  const Limits defaults = overlay(config.defaults, environment_);
  const auto own = config.users.find(uid);
  return own != config.users.end() ? overlay(defaults, own->second) : defaults;
}

std::vector<std::string> ServerPool::configure(Config config) {
  std::vector<std::string> lines;
  const auto change = [&](Settings& settings, const std::string& whose, const Limits& before,
                          const Limits& now) {
    for (const std::string& line : settings.change(before, now)) {
      lines.push_back(whose + " " + line);
    }
  };
  change(defaults_, "default", overlay(config_.defaults, environment_),
         overlay(config.defaults, environment_));
  for (const auto& [uid, entry] : entries_) {
    change(entry.process->settings(), format_text("user %u", uid), limits_of(config_, uid),
           limits_of(config, uid));
  }
  // Users without a server: only changes of their own limits.
  Config both = config_;
  both.users.insert(config.users.begin(), config.users.end());
  for (const auto& [uid, either] : both.users) {
    if (entries_.contains(uid)) continue;
    const auto before = config_.users.find(uid);
    const auto now = config.users.find(uid);
    const Limits none;
    Settings settings = defaults_;
    if (before != config_.users.end()) (void)settings.change({}, before->second);
    change(settings, format_text("user %u", uid),
           before != config_.users.end() ? before->second : none,
           now != config.users.end() ? now->second : none);
  }
  const std::vector<GroupRule> before = std::move(config_.groups);
  config_ = std::move(config);
  for (const std::string& line : configure_groups(before)) lines.push_back(line);
  if (partitions_) {
    for (const std::string& line : partitions_->describe(config_.partitions)) lines.push_back(line);
    for (const std::string& line : place_partitions()) lines.push_back(line);
  }
  return lines;
}

std::vector<std::string> ServerPool::configure_groups(const std::vector<GroupRule>& before) {
  std::vector<GroupRule> all = config_.groups;
  for (const GroupRule& was : before) {
    if (rule_of(all, was.name) == nullptr) all.push_back(was);
  }
  std::vector<std::string> lines;
  for (const GroupRule& either : all) {
    const GroupRule* was = rule_of(before, either.name);
    const GroupRule* is = rule_of(config_.groups, either.name);
    for (const std::string& line : changes_of_group(was, is)) lines.push_back(line);
  }
  for (const auto& [uid, entry] : entries_) {
    if (entry.ready) tell_groups(entry, all);
  }
  return lines;
}

// A group without a rule has no configured limits any more.
void ServerPool::tell_groups(const Entry& entry, const std::vector<GroupRule>& rules) const {
  for (const GroupRule& either : rules) {
    const GroupRule* rule = rule_of(config_.groups, either.name);
    wire::SetGroup message;
    fill_field(message.group, either.name);
    if (rule != nullptr) {
      message.limits = group_limits(*rule, entry.devices);
      const bool may_come = !rule->user || *rule->user == entry.process->user().uid;
      message.is_permanent = may_come && !rule->each_cgroup ? 1 : 0;
    }
    entry.process->set_group(message);
  }
}

std::string ServerPool::reason_against(User user) const {
  if (shutdown_.has_begun()) return "the daemon is shutting down";
  if (user.uid != geteuid() && geteuid() != 0) {
    return format_text(
        "the daemon runs as user %u and can't start a server for user %u; only a "
        "daemon of root serves several users",
        geteuid(), user.uid);
  }
  if (!entries_.contains(user.uid) && entries_.size() >= kMaxServers) {
    return format_text("there are servers for %zu users already, the maximum", entries_.size());
  }
  return "";
}

void ServerPool::refuse(NewClient client, CUresult result, const std::string& reason) {
  refuse_client(client.connection.get(), result, reason);
  client.connection.hang_up();
}

void ServerPool::admit(NewClient client) {
  const User user = client.user;
  std::string intro = format_text("NEW CLIENT %u from user %u: ", client.pid, user.uid);
  if (client.pid == 0) {
    intro += format_text("in a PID namespace that is not to be seen (PID %u by its own word), ",
                         client.hello.pid);
  }
  if (const std::string why_not = reason_against(user); !why_not.empty()) {
    log_.write(intro + "refused, " + why_not);
    refuse(std::move(client), CUDA_ERROR_MPS_SERVER_NOT_READY, why_not);
    return;
  }
  if (const Status placed = partition_of(client).status(); !placed.ok()) {
    log_.write(intro + "refused, " + placed.message());
    refuse(std::move(client), placed.code(), placed.message());
    return;
  }
  client.group = group_of(client);
  Entry& entry = entries_[user.uid];
  entry.only_for_devices = false;
  if (entry.ready && !entry.leaving) {
    log_.write(intro + "Server already exists");
    pass_on(&entry, std::move(client));
    return;
  }
  if (entry.pending.size() >= kMaxPendingClients) {
    log_.write(intro + "refused, too many clients wait for the server");
    refuse(std::move(client), CUDA_ERROR_MPS_MAX_CLIENTS_REACHED,
           "too many clients wait for the server to start");
    return;
  }
  log_.write(intro + "Server is not ready, push client to pending list");
  entry.pending.push_back(std::move(client));
  if (entry.process != nullptr) return;
  if (const Status started = start(user, &entry); !started.ok()) {
    fail_pending(&entry, started.code(), started.message());
    entries_.erase(user.uid);
  }
}

std::string ServerPool::group_of(const NewClient& client) const {
  const std::vector<GroupRule>& rules = config_.groups;
  const bool asks = std::ranges::any_of(rules, [](const auto& one) { return !one.cgroup.empty(); });
  const Membership membership = membership_of(
      rules, {client.user.uid, field_text(client.hello.command), field_text(client.hello.group)},
      asks ? read_cgroups(client.pid) : std::nullopt);
  if (!membership.note.empty()) {
    log_.write(format_text("Client %u: %s", client.pid, membership.note.c_str()));
  }
  return membership.group;
}

void ServerPool::ensure_server(User user, std::function<void(Status)> done) {
  if (const std::string why_not = reason_against(user); !why_not.empty()) {
    done(Status(CUDA_ERROR_MPS_SERVER_NOT_READY, why_not));
    return;
  }
  Entry& entry = entries_[user.uid];
  entry.only_for_devices = false;
  if (entry.leaving) {
    entry.starts.push_back(std::move(done));
    return;
  }
  Status started = entry.process != nullptr ? Status() : start(user, &entry);
  if (!started.ok()) entries_.erase(user.uid);
  done(std::move(started));
}

void ServerPool::shut_down_server(ServerProcess& server, bool force, std::function<void()> done) {
  Entry& entry = entries_.at(server.user().uid);
  entry.leaving = true;
  entry.ends.push_back(std::move(done));
  if (force) {
    log_.write(format_text("Force shutting down server %d", static_cast<int>(server.pid())));
    server.force_shutdown();
  } else {
    log_.write(format_text("Try shutting down server %d", static_cast<int>(server.pid())));
    server.ask_to_shut_down();
  }
}

void ServerPool::on_refused(uid_t uid, uint32_t clients) {
  ServerProcess& server = *entries_.at(uid).process;
  if (shutdown_.has_begun()) {
    shutdown_.on_refused(server, clients);
    return;
  }
  log_.write(format_text("Server %d has %u active worker threads. It will shut down with the last.",
                         static_cast<int>(server.pid()), clients));
}

std::unique_ptr<ServerProcess> ServerPool::make_process(User user) {
  const uid_t uid = user.uid;
  Settings settings = defaults_;
  if (const auto own = config_.users.find(uid); own != config_.users.end()) {
    (void)settings.change({}, own->second);
  }
  return std::make_unique<ServerProcess>(
      loop_, disposal_, user, std::move(settings),
      ServerProcess::Callbacks{[this, uid](CUresult result, const std::string& reason) {
                                 on_ready(uid, result, reason);
                               },
                               [this, uid](uint32_t clients) { on_refused(uid, clients); },
                               [this, uid](const std::string& how) { on_gone(uid, how); },
                               [this, uid](const std::string& what) {
                                 const Entry& entry = entries_.at(uid);
                                 log_.write(format_text("Server %d of user %u ",
                                                        static_cast<int>(entry.process->pid()),
                                                        uid) +
                                            what);
                               }});
}

void ServerPool::take_back(User user, pid_t pid, uint64_t build, ForeignFd connection) {
  const Status same = wire::check_build(build, "server", "daemon");
  std::string why_not = same.ok() ? reason_against(user) : same.message();
  if (why_not.empty() && entries_.contains(user.uid)) why_not = "the user has another one already";
  if (why_not.empty()) {
    std::unique_ptr<ServerProcess> process = make_process(user);
    const Status taken = process->adopt(pid, &connection);
    if (taken.ok()) {
      log_.write(format_text("Server %d of user %u is back", static_cast<int>(pid), user.uid));
      entries_[user.uid].process = std::move(process);
      on_ready(user.uid, CUDA_SUCCESS, "");
      return;
    }
    why_not = taken.message();
  }
  log_.write(format_text("Server %d of user %u is not taken back, %s: it ends with its last client",
                         static_cast<int>(pid), user.uid, why_not.c_str()));
  if (!connection.valid()) return;
  (void)send_packet(connection.get(), wire::message_bytes(wire::Shutdown())).ok();
  connection.hang_up();
}

Status ServerPool::start(User user, Entry* entry) {
  ++entry->attempts;
  const uid_t uid = user.uid;
  entry->process = make_process(user);
  Status started = entry->process->start(server_program_, server_log_.get(), control_socket_);
  if (!started.ok()) {
    log_.write(
        format_text("The server for user %u can't be started: %s", uid, started.message().c_str()));
    entry->process.reset();
    return Status(CUDA_ERROR_MPS_CONNECTION_FAILED, started.message());
  }
  log_.write(format_text("Starting new server %d for user %u",
                         static_cast<int>(entry->process->pid()), uid));
  return started;
}

void ServerPool::on_ready(uid_t uid, CUresult result, const std::string& reason) {
  Entry& entry = entries_.at(uid);
  if (result != CUDA_SUCCESS) {
    // The server ends now, and on_gone() reports the failure.
    entry.failure = result;
    entry.failure_reason = reason;
    return;
  }
  if (entry.ready) return;  // only its worker was replaced
  // Memory limits may name a device by its UUID, so the devices are learnt before the first client.
  ask_for_devices(uid);
}

void ServerPool::ask_for_devices(uid_t uid) {
  entries_.at(uid).process->ask(wire::QueryKind::kDevices, [this, uid](const ServerAnswer& answer) {
    on_devices(uid, answer);
  });
}

void ServerPool::on_devices(uid_t uid, const ServerAnswer& answer) {
  if (!answer.answered) return;  // on_gone() follows
  Entry& entry = entries_.at(uid);
  entry.devices = answer.devices;
  learn_devices(entry);
  if (!partitions_ || !devices_.empty() || uid == geteuid()) {
    begin_to_serve(uid);
    return;
  }
  // The partitions of its clients are on devices that this daemon does not know yet.
  const pid_t pid = entry.process->pid();
  with_devices([this, uid, pid](const std::vector<Device>&, const std::string&) {
    const auto found = entries_.find(uid);
    if (found == entries_.end() || found->second.process == nullptr) return;
    if (found->second.process->pid() == pid) begin_to_serve(uid);
  });
}

void ServerPool::learn_devices(const Entry& entry) {
  const bool is_own = entry.process->user().uid == geteuid();
  const bool counts = is_own || (entry.process->was_started_here() && devices_.empty());
  if (!counts || entry.devices.empty()) return;
  devices_ = entry.devices;
  for (const std::string& line : place_partitions()) log_.write(line);
}

void ServerPool::begin_to_serve(uid_t uid) {
  Entry& entry = entries_.at(uid);
  entry.ready = true;
  entry.attempts = 0;
  server_ready_();
  log_.write(format_text("NEW SERVER %d: Ready", static_cast<int>(entry.process->pid())));
  tell_groups(entry, config_.groups);
  while (!entry.leaving && !entry.pending.empty()) {
    pass_on(&entry, std::move(entry.pending.front()));
    entry.pending.pop_front();
  }
  if (uid == geteuid() || !devices_.empty()) answer_device_waiters("the server knows of none");
  if (entry.only_for_devices) {
    entry.leaving = true;
    entry.process->ask_to_shut_down();
  }
}

void ServerPool::use_static_partitions(const std::string& kept,
                                       std::function<void(std::string)> keep) {
  partitions_.emplace().restore(kept);
  keep_partitions_ = std::move(keep);
  keep_partitions();
}

std::vector<std::string> ServerPool::place_partitions() {
  if (!partitions_ || devices_.empty()) return {};
  std::vector<std::string> lines = partitions_->place(devices_);
  if (!lines.empty()) keep_partitions();
  return lines;
}

Result<wire::StaticPartition> ServerPool::partition_of(const NewClient& client) {
  if (!partitions_) return wire::StaticPartition{};
  return partitions_->named(field_text(client.hello.sm_partition));
}

void ServerPool::pass_on(Entry* entry, NewClient client) {
  // The client's partition may have been removed while the client waited.
  Result<wire::StaticPartition> partition = partition_of(client);
  if (partition.ok() && partition->device == wire::kMaxDevices) {
    partition = Status(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION,
                       "the device of its partition is not there any more");
  }
  if (!partition.ok()) {
    log_.write(format_text("CLIENT %u is refused, ", client.pid) + partition.status().message());
    refuse(std::move(client), partition.status().code(), partition.status().message());
    return;
  }
  wire::Admit admit;
  admit.pid = client.pid;
  admit.uid = client.user.uid;
  admit.gid = client.user.gid;
  admit.default_limits = entry->process->settings().resolved(entry->devices);
  admit.partition = *partition;
  admit.hello = client.hello;
  fill_field(admit.group, client.group);
  const GroupRule* rule = rule_of(config_.groups, client.group);
  if (rule != nullptr) admit.group_limits = group_limits(*rule, entry->devices);
  if (const Status passed = entry->process->admit(admit, client.connection.get()); !passed.ok()) {
    log_.write(format_text("CLIENT %u is refused, ", client.pid) + passed.message());
    refuse(std::move(client), passed.code(), passed.message());
  }
}

void ServerPool::on_gone(uid_t uid, const std::string& how) {
  Entry& entry = entries_.at(uid);
  const User user = entry.process->user();
  log_.write(format_text("Server %d %s", static_cast<int>(entry.process->pid()), how.c_str()));
  const bool was_ready = entry.ready;
  // A client or a command may have asked for a server while this one ended.
  const bool wanted = entry.leaving ? !entry.pending.empty() || !entry.starts.empty() : !was_ready;
  const auto ends = std::exchange(entry.ends, {});
  const auto starts = std::exchange(entry.starts, {});
  for (const auto& end : ends) end();
  entry.process.reset();
  entry.ready = false;
  entry.leaving = false;
  if (wanted && !shutdown_.has_begun() && entry.failure == CUDA_SUCCESS &&
      entry.attempts < kServerStartAttempts && start(user, &entry).ok()) {
    for (const auto& started : starts) started(Status());
    return;
  }
  const std::string reason =
      entry.failure_reason.empty() ? "the server " + how : entry.failure_reason;
  for (const auto& started : starts) {
    started(Status(CUDA_ERROR_MPS_CONNECTION_FAILED, reason));
  }
  fail_pending(&entry, CUDA_ERROR_MPS_CONNECTION_FAILED, reason);
  entries_.erase(uid);
  if (!was_ready) {
    log_.write(format_text("No server for user %u: %s", uid, reason.c_str()));
    if (uid == geteuid()) answer_device_waiters(reason);
  }
  shutdown_.finish_if_none_left();
}

void ServerPool::fail_pending(Entry* entry, CUresult result, const std::string& reason) {
  while (!entry->pending.empty()) {
    refuse(std::move(entry->pending.front()), result, reason);
    entry->pending.pop_front();
  }
}

ServerProcess* ServerPool::find(std::string_view pid_text) const {
  for (const auto& [uid, entry] : entries_) {
    if (std::to_string(entry.process->pid()) == pid_text) return entry.process.get();
  }
  return nullptr;
}

bool ServerPool::is_there(pid_t pid) const {
  return std::ranges::any_of(
      entries_, [pid](const auto& entry) { return entry.second.process->pid() == pid; });
}

std::vector<ServerProcess*> ServerPool::all() const {
  std::vector<ServerProcess*> servers;
  for (const auto& [uid, entry] : entries_) servers.push_back(entry.process.get());
  return servers;
}

void ServerPool::ask(const std::vector<ServerProcess*>& servers, wire::QueryKind kind,
                     std::function<void(Answers)> done) {
  wire::Query query;
  query.query = kind;
  ask(servers, query, std::move(done));
}

void ServerPool::ask(const std::vector<ServerProcess*>& servers, const wire::Query& query,
                     std::function<void(Answers)> done) {
  if (servers.empty()) {
    done({});
    return;
  }
  struct Gathering {
    Answers answers;
    size_t missing = 0;
    std::function<void(Answers)> done;
  };
  const auto gathering = std::make_shared<Gathering>();
  gathering->missing = servers.size();
  gathering->done = std::move(done);
  gathering->answers.resize(servers.size());
  for (size_t i = 0; i < servers.size(); ++i) {
    const pid_t pid = servers[i]->pid();
    const auto take = [gathering, i, pid](ServerAnswer answer) {
      gathering->answers[i] = {pid, std::move(answer)};
      if (--gathering->missing == 0) gathering->done(std::move(gathering->answers));
    };
    servers[i]->ask(query, take);
  }
}

void ServerPool::with_devices(
    std::function<void(const std::vector<Device>&, std::string why_not)> done) {
  if (!devices_.empty()) {
    done(devices_, "");
    return;
  }
  const User self{geteuid(), getegid()};
  const auto own = entries_.find(self.uid);
  if (own != entries_.end() && own->second.ready && !own->second.leaving) {
    done(devices_, "the server knows of none");
    return;
  }
  device_waiters_.push_back(std::move(done));
  const bool only_for_devices = !entries_.contains(self.uid);
  ensure_server(self, [this](const Status& started) {
    if (!started.ok()) answer_device_waiters(started.message());
  });
  const auto entry = entries_.find(self.uid);
  if (entry != entries_.end()) entry->second.only_for_devices = only_for_devices;
}

void ServerPool::answer_device_waiters(const std::string& why_not) {
  auto waiters = std::move(device_waiters_);
  device_waiters_.clear();
  for (const auto& waiter : waiters) waiter(devices_, why_not);
}

}  // namespace openmps::control
