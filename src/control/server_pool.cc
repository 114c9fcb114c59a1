// SPDX-License-Identifier: Apache-2.0
// The servers of the daemon: start, clients, end.
#include "control/server_pool.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/text.h"
#include "wire/message.h"

namespace openmps::control {
namespace {

// SMs of a device that the namespace's clients may have together.
uint32_t most_sms(const GroupRule& rule, const std::vector<Device>& devices, uint32_t device) {
  const wire::ClientLimits limits = group_limits(rule, devices);
  const auto by_percentage = static_cast<uint32_t>(limits.active_thread_percentage / 100 *
                                                   static_cast<float>(devices[device].sms));
  return limits.sm_count[device] != 0 ? limits.sm_count[device] : by_percentage;
}

// What a client states for itself may only lower what its namespace has.
void lower_wishes(const GroupRule& rule, wire::Hello* hello) {
  const bool is_stated =
      hello->quality >= wire::Quality::kLatency && hello->quality <= wire::Quality::kBestEffort;
  hello->quality = is_stated ? std::max(hello->quality, rule.quality) : rule.quality;
  if (!(hello->limits.weight <= 1)) hello->limits.weight = 1;
}

}  // namespace

void refuse_client(int connection, CUresult result, const std::string& reason) {
  wire::Welcome no;
  no.result = result;
  fill_field(no.reason, reason);
  (void)send_packet(connection, wire::message_bytes(no)).ok();  // the client may have gone
}

std::string ServerPool::reason_against(const std::string& name, User user) const {
  if (shutdown_.has_begun()) return "the daemon is shutting down";
  if (user.uid != geteuid() && geteuid() != 0) {
    return format_text(
        "the daemon runs as user %u and can't start a server for user %u; only a "
        "daemon of root serves several users",
        geteuid(), user.uid);
  }
  if (!entries_.contains(name) && entries_.size() >= kMaxServers) {
    return format_text("there are %zu servers already, the maximum", entries_.size());
  }
  return "";
}

void ServerPool::refuse(NewClient client, CUresult result, const std::string& reason) {
  note_refused(client, result, reason);
  refuse_client(client.connection.get(), result, reason);
  client.connection.hang_up();
}

void ServerPool::admit(NewClient client) {
  std::string intro = format_text("NEW CLIENT %u from user %u: ", client.pid, client.user.uid);
  if (client.pid == 0) {
    intro += format_text("in a PID namespace that is not to be seen (PID %u by its own word), ",
                         client.hello.pid);
  }
  const auto refuse_it = [&](CUresult result, const std::string& reason) {
    log_.write(intro + "refused, " + reason);
    refuse(std::move(client), result, reason);
  };
  if (const Status placed = place(&client); !placed.ok()) {
    return refuse_it(placed.code(), placed.message());
  }
  const User user = user_of(client);
  if (const std::string why_not = reason_against(client.server, user); !why_not.empty()) {
    return refuse_it(CUDA_ERROR_MPS_SERVER_NOT_READY, why_not);
  }
  if (const Status has_part = partition_of(client).status(); !has_part.ok()) {
    return refuse_it(has_part.code(), has_part.message());
  }
  if (!client.group.empty()) intro += "group " + client.group + ", ";
  const std::string name = client.server;
  Entry& entry = entries_[name];
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
  if (const Status started = start(name, user, &entry); !started.ok()) {
    fail_pending(&entry, started.code(), started.message());
    entries_.erase(name);
  }
}

Status ServerPool::place(NewClient* client) const {
  const Door& door = client->door;
  if (!door.is_main()) {
    client->server = door.server;
    client->group = door.group;
    // A fault domain of its own is a worker, with contexts and turns on the GPU of its own: more
    // than a share.
    fill_field(client->hello.domain, "");
    if (named_.may_come(door.server, door.group, client->user.uid)) return Status();
    return Status(CUDA_ERROR_NOT_PERMITTED,
                  format_text("user %u may not be in namespace %s of server %s", client->user.uid,
                              door.group.c_str(), door.server.c_str()));
  }
  const std::vector<GroupRule>& rules = config_.groups;
  const bool asks = named_.asks_for_cgroups() ||
                    std::ranges::any_of(rules, [](const auto& one) { return !one.cgroup.empty(); });
  Place place = named_.route(
      rules, {client->user.uid, field_text(client->hello.command), field_text(client->hello.group)},
      asks ? read_cgroups(client->pid) : std::nullopt);
  if (!place.note.empty()) {
    log_.write(format_text("Client %u: %s", client->pid, place.note.c_str()));
  }
  client->server = std::move(place.server);
  client->group = std::move(place.group);
  return Status();
}

User ServerPool::user_of(const NewClient& client) const {
  const NamedServer* const named = named_.find(client.server);
  return named == nullptr || named->user.uid == client.user.uid ? client.user : named->user;
}

void ServerPool::ensure_server(const std::string& name, User user,
                               std::function<void(Status)> done) {
  if (const std::string why_not = reason_against(name, user); !why_not.empty()) {
    done(Status(CUDA_ERROR_MPS_SERVER_NOT_READY, why_not));
    return;
  }
  Entry& entry = entries_[name];
  entry.only_for_devices = false;
  if (entry.leaving) {
    entry.starts.push_back(std::move(done));
    return;
  }
  Status started = entry.process != nullptr ? Status() : start(name, user, &entry);
  if (!started.ok()) entries_.erase(name);
  done(std::move(started));
}

void ServerPool::shut_down_server(ServerProcess& server, bool force, std::function<void()> done) {
  Entry& entry = entries_.at(server.name());
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

void ServerPool::on_refused(const std::string& name, uint32_t clients) {
  ServerProcess& server = *entries_.at(name).process;
  if (shutdown_.has_begun()) {
    shutdown_.on_refused(server, clients);
    return;
  }
  log_.write(format_text("Server %d has %u active worker threads. It will shut down with the last.",
                         static_cast<int>(server.pid()), clients));
}

std::unique_ptr<ServerProcess> ServerPool::make_process(const std::string& name, User user) {
  Settings settings = defaults_;
  if (const auto own = config_.users.find(user.uid); own != config_.users.end()) {
    (void)settings.change({}, own->second);
  }
  return std::make_unique<ServerProcess>(
      loop_, disposal_, name, user, std::move(settings),
      ServerProcess::Callbacks{[this, name](CUresult result, const std::string& reason) {
                                 on_ready(name, result, reason);
                               },
                               [this, name](uint32_t clients) { on_refused(name, clients); },
                               [this, name](const std::string& how) { on_gone(name, how); },
                               [this, name](const wire::TotalsRow& row) {
                                 history_.note_totals(name, row, devices_of(name));
                               },
                               [this, name](const wire::Event& event) { on_event(name, event); },
                               [this, name, user](const std::string& what) {
                                 const Entry& entry = entries_.at(name);
                                 log_.write(format_text("Server %d of user %u ",
                                                        static_cast<int>(entry.process->pid()),
                                                        user.uid) +
                                            what);
                               }});
}

void ServerPool::take_back(User user, pid_t pid, const wire::Rejoin& rejoin, ForeignFd connection) {
  const std::string name = printable(field_text(rejoin.server));
  const NamedServer* const named = named_.find(name);
  const bool is_known =
      named != nullptr ? named->user.uid == user.uid : name == name_of_users_server(user.uid);
  const Status same = wire::check_build(rejoin.build, "server", "daemon");
  std::string why_not = same.ok() ? reason_against(name, user) : same.message();
  if (why_not.empty() && !is_known) {
    why_not = "there is no server " + name + " of that user any more";
  }
  if (why_not.empty() && entries_.contains(name)) why_not = "there is another one already";
  if (why_not.empty()) {
    std::unique_ptr<ServerProcess> process = make_process(name, user);
    const Status taken = process->adopt(pid, &connection);
    if (taken.ok()) {
      log_.write(format_text("Server %d of user %u is back", static_cast<int>(pid), user.uid));
      entries_[name].process = std::move(process);
      on_ready(name, CUDA_SUCCESS, "");
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

Status ServerPool::start(const std::string& name, User user, Entry* entry) {
  ++entry->attempts;
  entry->process = make_process(name, user);
  const NamedServer* const named = named_.find(name);
  Status started = entry->process->start(
      {.path = server_program_,
       .log_fd = server_log_.get(),
       .control_socket = control_socket_,
       .devices = named != nullptr ? named->devices : std::vector<std::string>()});
  if (!started.ok()) {
    log_.write(format_text("The server for user %u can't be started: %s", user.uid,
                           started.message().c_str()));
    entry->process.reset();
    return Status(CUDA_ERROR_MPS_CONNECTION_FAILED, started.message());
  }
  log_.write(format_text("Starting new server %d for user %u",
                         static_cast<int>(entry->process->pid()), user.uid));
  return started;
}

void ServerPool::on_ready(const std::string& name, CUresult result, const std::string& reason) {
  Entry& entry = entries_.at(name);
  if (result != CUDA_SUCCESS) {
    // The server ends now, and on_gone() reports the failure.
    entry.failure = result;
    entry.failure_reason = reason;
    return;
  }
  if (entry.ready) return;  // only its worker was replaced
  // Memory limits may name a device by its UUID, so the devices are learnt before the first client.
  ask_for_devices(name);
}

void ServerPool::ask_for_devices(const std::string& name) {
  entries_.at(name).process->ask(
      wire::QueryKind::kDevices,
      [this, name](const ServerAnswer& answer) { on_devices(name, answer); });
}

void ServerPool::on_devices(const std::string& name, const ServerAnswer& answer) {
  if (!answer.answered) return;  // on_gone() follows
  Entry& entry = entries_.at(name);
  entry.devices = answer.devices;
  learn_devices(entry);
  if (partitions_.empty() || !devices_.empty() || name == name_of_users_server(geteuid())) {
    begin_to_serve(name);
    return;
  }
  // The partitions of its clients are on devices that this daemon does not know yet.
  const pid_t pid = entry.process->pid();
  with_devices([this, name, pid](const std::vector<Device>&, const std::string&) {
    const auto found = entries_.find(name);
    if (found == entries_.end() || found->second.process == nullptr) return;
    if (found->second.process->pid() == pid) begin_to_serve(name);
  });
}

// A server that sees some of the devices does not tell which there are.
void ServerPool::learn_devices(const Entry& entry) {
  const NamedServer* const named = named_.find(entry.process->name());
  if (named != nullptr && !named->devices.empty()) return;
  const bool is_own = entry.process->user().uid == geteuid();
  const bool counts = is_own || (entry.process->was_started_here() && devices_.empty());
  if (!counts || entry.devices.empty()) return;
  devices_ = entry.devices;
  for (const std::string& line : place_partitions()) log_.write(line);
}

void ServerPool::begin_to_serve(const std::string& name) {
  Entry& entry = entries_.at(name);
  entry.ready = true;
  entry.attempts = 0;
  server_ready_();
  log_.write(format_text("NEW SERVER %d: Ready", static_cast<int>(entry.process->pid())));
  tell_groups(entry, config_.groups);
  const NamedServer* const named = named_.find(name);
  if (named != nullptr && named->devices.size() > entry.devices.size()) {
    log_.write(format_text("Server %s sees %zu of its %zu devices", name.c_str(),
                           entry.devices.size(), named->devices.size()));
  }
  const auto serves = std::exchange(entry.serves, {});
  for (const auto& serve : serves) serve(Status());
  while (!entry.leaving && !entry.pending.empty()) {
    pass_on(&entry, std::move(entry.pending.front()));
    entry.pending.pop_front();
  }
  if (name == name_of_users_server(geteuid()) || !devices_.empty()) {
    answer_device_waiters("the server knows of none");
  }
  if (entry.only_for_devices) {
    entry.leaving = true;
    entry.process->ask_to_shut_down();
  }
}

// ---- Partitions ---------------------------------------------------------------------------------

bool ServerPool::has_clients(const StaticPartitions::Partition& partition,
                             const Answers& answers) const {
  return std::ranges::any_of(answers, [&](const auto& answer) {
    const auto entry = std::ranges::find_if(
        entries_, [&answer](const auto& one) { return one.second.process->pid() == answer.first; });
    if (entry == entries_.end()) return false;
    return std::ranges::any_of(answer.second.partitions, [&](wire::StaticPartition used) {
      used.device = daemons_device(entry->first, used.device);
      return used == partition.place;
    });
  });
}

bool ServerPool::sees_some(const std::string& server) const {
  const NamedServer* const named = named_.find(server);
  return named != nullptr && !named->devices.empty();
}

uint32_t ServerPool::daemons_device(const std::string& server, uint32_t device) const {
  if (!sees_some(server)) return device;
  const std::vector<Device> seen = devices_of(server);
  if (device >= seen.size()) return wire::kMaxDevices;
  const auto same = std::ranges::find(devices_, seen[device].uuid, &Device::uuid);
  return same == devices_.end() ? wire::kMaxDevices
                                : static_cast<uint32_t>(same - devices_.begin());
}

void ServerPool::reorder_devices(const std::string& server, ServerAnswer* answer) const {
  if (!sees_some(server)) return;
  for (ClientLine& client : answer->clients) {
    wire::Usage& usage = client.usage;
    const wire::Usage by_server = usage;
    usage.devices = {};
    usage.memory = {};
    usage.on_host = {};
    for (uint32_t i = 0; i < wire::kUsageDevices; ++i) {
      const uint32_t device = daemons_device(server, i);
      if (device >= wire::kUsageDevices) continue;
      usage.devices[device] = by_server.devices[i];
      usage.memory[device] = by_server.memory[i];
      usage.on_host[device] = by_server.on_host[i];
    }
  }
}

uint32_t ServerPool::servers_device(const std::string& server, uint32_t device) const {
  if (!sees_some(server) || device >= devices_.size()) return device;
  const std::vector<Device> seen = devices_of(server);
  const auto same = std::ranges::find(seen, devices_[device].uuid, &Device::uuid);
  return same == seen.end() ? wire::kMaxDevices : static_cast<uint32_t>(same - seen.begin());
}

// The namespace of the server that has been given the partition; "": none has.
std::string ServerPool::owner_of(const std::string& server, wire::StaticPartition partition) {
  const NamedServer* const named = named_.find(server);
  if (named == nullptr) return "";
  for (const auto& [name, rule] : named->namespaces) {
    for (const auto& [uuid, given] : rule.partitions) {
      const auto has = partitions_.named(uuid + "/" + server + "." + given, server);
      if (has.ok() && *has == partition) return name;
    }
  }
  return "";
}

// By the client's word, else by its namespace, which may have one for each of several devices.
Result<wire::StaticPartition> ServerPool::partition_of(const NewClient& client) {
  const std::string text(field_text(client.hello.sm_partition));
  const GroupRule* const rule = named_.find(client.server, client.group);
  if (rule != nullptr && !rule->partitions.empty()) {
    const std::string visible(field_text(client.hello.visible_devices));
    std::string own;
    for (const auto& [uuid, partition] : rule->partitions) {
      const std::string name = uuid + "/" + client.server + "." + partition;
      Result<wire::StaticPartition> has = partitions_.named(name, client.server);
      if (!has.ok()) return has;
      const Result<wire::StaticPartition> wish = partitions_.named(text, client.server);
      const bool is_wished = text.empty() ? own.empty() || visible.find(uuid) != std::string::npos
                                          : wish.ok() && *wish == *has;
      if (is_wished) own = name;
    }
    if (!own.empty()) return partitions_.named(own, client.server);
    return Status(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION,
                  "CUDA_MPS_SM_PARTITION says " + printable(text) +
                      ", which is none of the partitions of namespace " + rule->name);
  }
  // A program may name one for another daemon.
  if (!requires_partitions_ && (text.empty() || partitions_.empty())) {
    return wire::StaticPartition{};
  }
  Result<wire::StaticPartition> named = partitions_.named(text, client.server);
  if (!named.ok() || rule == nullptr || named->device >= devices_.size()) return named;
  if (const std::string owner = owner_of(client.server, *named); !owner.empty()) {
    return Status(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION,
                  "partition " + printable(text) + " is that of namespace " + owner);
  }
  const uint32_t most = most_sms(*rule, devices_, named->device);
  const bool borrows = group_limits(*rule, devices_).borrows != 0;
  const uint32_t wanted = borrows ? named->sms : std::max(named->sms, named->most_sms);
  if (wanted <= most) return named;
  return Status(
      CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION,
      format_text("partition %s %s %u SMs, and namespace %s may have %u", printable(text).c_str(),
                  wanted == named->sms ? "has" : "may grow to", wanted, rule->name.c_str(), most));
}

const GroupRule* ServerPool::rule_for(const std::string& server, std::string_view group) const {
  const GroupRule* const named = named_.find(server, group);
  return named != nullptr ? named : rule_of(config_.groups, group);
}

void ServerPool::pass_on(Entry* entry, NewClient client) {
  // Its namespace may have been deleted, and its partition removed, while the client waited.
  if (!client.door.is_main() && !named_.may_come(client.server, client.group, client.user.uid)) {
    log_.write(format_text("CLIENT %u is refused: its namespace has been deleted", client.pid));
    return refuse(std::move(client), CUDA_ERROR_NOT_PERMITTED, "its namespace has been deleted");
  }
  Result<wire::StaticPartition> partition = partition_of(client);
  if (partition.ok() && partition->sms != 0) {
    partition->device = servers_device(client.server, partition->device);
  }
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
  const GroupRule* rule = rule_for(client.server, client.group);
  if (rule != nullptr) admit.group_limits = group_limits(*rule, entry->devices);
  if (rule != nullptr && !client.door.is_main()) lower_wishes(*rule, &admit.hello);
  if (const Status passed = entry->process->admit(admit, client.connection.get()); !passed.ok()) {
    log_.write(format_text("CLIENT %u is refused, ", client.pid) + passed.message());
    refuse(std::move(client), passed.code(), passed.message());
  }
}

void ServerPool::note_refused(const NewClient& client, CUresult result, const std::string& reason) {
  EventLine line{.server = client.server, .kind = wire::EventKind::kRefused, .result = result};
  line.at_ns = wall_clock_ns();
  line.pid = client.pid;
  line.command = printable(field_text(client.hello.command));
  line.group = client.group;
  line.text = reason;
  history_.note(std::move(line));
}

void ServerPool::on_event(const std::string& name, const wire::Event& event) {
  history_.note({.number = 0,
                 .server = name,
                 .kind = event.event,
                 .at_ns = event.at_ns,
                 .result = static_cast<CUresult>(event.result),
                 .pid = event.pid,
                 .id = event.id,
                 .command = printable(field_text(event.command)),
                 .group = printable(field_text(event.group)),
                 .domain = printable(field_text(event.domain)),
                 .text = printable(field_text(event.text))});
}

void ServerPool::on_gone(const std::string& name, const std::string& how) {
  history_.on_server_gone(name);
  Entry& entry = entries_.at(name);
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
      entry.attempts < kServerStartAttempts && start(name, user, &entry).ok()) {
    for (const auto& started : starts) started(Status());
    return;
  }
  const std::string reason =
      entry.failure_reason.empty() ? "the server " + how : entry.failure_reason;
  const Status failed(CUDA_ERROR_MPS_CONNECTION_FAILED, reason);
  const auto serves = std::exchange(entry.serves, {});
  fail_pending(&entry, failed.code(), reason);
  entries_.erase(name);
  for (const auto& started : starts) started(failed);
  for (const auto& serve : serves) serve(failed);
  if (!was_ready) {
    log_.write(format_text("No server for user %u: %s", user.uid, reason.c_str()));
    if (name == name_of_users_server(geteuid())) answer_device_waiters(reason);
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
  for (const auto& [name, entry] : entries_) {
    if (std::to_string(entry.process->pid()) == pid_text) return entry.process.get();
  }
  return nullptr;
}

ServerProcess* ServerPool::find_named(const std::string& name) const {
  const auto found = entries_.find(name);
  return found == entries_.end() ? nullptr : found->second.process.get();
}

bool ServerPool::is_there(pid_t pid) const {
  return std::ranges::any_of(
      entries_, [pid](const auto& entry) { return entry.second.process->pid() == pid; });
}

bool ServerPool::has_passed_on_all() const {
  return std::ranges::all_of(entries_, [](const auto& entry) {
    const Entry& one = entry.second;
    return one.pending.empty() && (one.process == nullptr || one.process->has_sent_all());
  });
}

std::vector<ServerProcess*> ServerPool::all() const {
  std::vector<ServerProcess*> servers;
  for (const auto& [name, entry] : entries_) servers.push_back(entry.process.get());
  std::ranges::stable_sort(servers, {}, [](const auto* server) { return server->user().uid; });
  return servers;
}

void ServerPool::ask(const std::vector<ServerProcess*>& servers, wire::QueryKind kind,
                     std::function<void(Answers)> done) {
  wire::Query query;
  query.query = kind;
  ask(servers, query, std::move(done));
}

void ServerPool::ask(const std::vector<ServerProcess*>& servers, const wire::Query& query,
                     std::function<void(Answers)> done, int descriptor) {
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
    const auto take = [this, gathering, i, pid, name = servers[i]->name()](ServerAnswer answer) {
      reorder_devices(name, &answer);
      gathering->answers[i] = {pid, std::move(answer)};
      if (--gathering->missing == 0) gathering->done(std::move(gathering->answers));
    };
    servers[i]->ask(query, take, descriptor);
  }
}

void ServerPool::with_devices(
    std::function<void(const std::vector<Device>&, std::string why_not)> done) {
  if (!devices_.empty()) {
    done(devices_, "");
    return;
  }
  const User self{geteuid(), getegid()};
  const std::string name = name_of_users_server(self.uid);
  const auto own = entries_.find(name);
  if (own != entries_.end() && own->second.ready && !own->second.leaving) {
    done(devices_, "the server knows of none");
    return;
  }
  device_waiters_.push_back(std::move(done));
  const bool only_for_devices = !entries_.contains(name);
  ensure_server(self, [this](const Status& started) {
    if (!started.ok()) answer_device_waiters(started.message());
  });
  const auto entry = entries_.find(name);
  if (entry != entries_.end()) entry->second.only_for_devices = only_for_devices;
}

void ServerPool::answer_device_waiters(const std::string& why_not) {
  auto waiters = std::move(device_waiters_);
  device_waiters_.clear();
  for (const auto& waiter : waiters) waiter(devices_, why_not);
}

}  // namespace openmps::control
