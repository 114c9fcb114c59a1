// SPDX-License-Identifier: Apache-2.0
// The servers of the daemon: start, clients, end.
#include "control/server_pool.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "wire/message.h"

namespace openmps::control {
namespace {

std::string list_of(const std::vector<Device>& devices) {
  std::string text;
  for (size_t i = 0; i < devices.size(); ++i) {
    text += format_text("%s %zu %s", i == 0 ? "" : ",", i, devices[i].uuid.c_str());
  }
  return text;
}

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
  for (const auto& [name, entry] : entries_) {
    const uid_t uid = entry.process->user().uid;
    const bool is_users = name == name_of_users_server(uid);
    change(entry.process->settings(), is_users ? format_text("user %u", uid) : "server " + name,
           limits_of(config_, uid), limits_of(config, uid));
  }
  // Users without a server: only changes of their own limits.
  Config both = config_;
  both.users.insert(config.users.begin(), config.users.end());
  for (const auto& [uid, either] : both.users) {
    if (entries_.contains(name_of_users_server(uid))) continue;
    const auto before = config_.users.find(uid);
    const auto now = config.users.find(uid);
    const Limits none;
    Settings settings = defaults_;
    if (before != config_.users.end()) (void)settings.change({}, before->second);
    change(settings, format_text("user %u", uid),
           before != config_.users.end() ? before->second : none,
           now != config.users.end() ? now->second : none);
  }
  const Config before = std::exchange(config_, std::move(config));
  features_ = config_.features;
  lines.insert(lines.end(), config_.notes.begin(), config_.notes.end());
  for (const std::string& line : configure_groups(before.groups)) lines.push_back(line);
  for (const std::string& line : configure_servers(before.servers)) lines.push_back(line);
  for (const std::string& line : partitions_.describe(config_.partitions)) lines.push_back(line);
  for (const std::string& line : place_partitions()) lines.push_back(line);
  keep_state();
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
  for (const auto& [name, entry] : entries_) {
    if (entry.ready) tell_groups(entry, all);
  }
  return lines;
}

// Servers and namespaces that are not described any more stay until they are deleted, as partitions
// do.
std::vector<std::string> ServerPool::configure_servers(
    const std::map<std::string, NamedServer>& before) {
  std::vector<std::string> lines;
  for (const auto& [name, server] : config_.servers) {
    const auto was = before.find(name);
    for (const std::string& line :
         configure_server(was == before.end() ? nullptr : &was->second, server)) {
      lines.push_back(line);
    }
  }
  for (const auto& [name, server] : before) {
    if (config_.servers.contains(name) || named_.find(name) == nullptr) continue;
    lines.push_back("server " + name + " is there until it is deleted");
  }
  return lines;
}

std::vector<std::string> ServerPool::configure_server(const NamedServer* before,
                                                      const NamedServer& now) {
  std::vector<std::string> lines;
  if (named_.find(now.name) == nullptr) {
    const Status added = add_named(now);
    lines.push_back("server " + now.name +
                    (added.ok() ? " is there from now on" : " can't be made: " + added.message()));
    if (added.ok() && starts_named_) start_named_logged(now.name);
    return lines;
  }
  for (const auto& [name, rule] : now.namespaces) {
    GroupRule* const there = named_.find(now.name, name);
    const std::string what = "namespace " + name + " of server " + now.name;
    if (there == nullptr) {
      const Status made = create_namespace(now.name, rule);
      lines.push_back(made.ok() ? what + " is there from now on"
                                : what + " can't be made: " + made.message());
      continue;
    }
    const auto was = before == nullptr ? now.namespaces.end() : before->namespaces.find(name);
    // A daemon that follows a killed one has what commands have changed since.
    if (before == nullptr || was == before->namespaces.end()) continue;
    for (const std::string& line : changes_of_group(&was->second, &rule)) {
      lines.push_back(what + line.substr(std::string("group " + name).size()));
    }
    // What commands have changed stays where the file does not change it.
    const Limits limits = was->second.limits == rule.limits ? there->limits : rule.limits;
    const bool has_other_quality = was->second.quality != rule.quality;
    const wire::Quality quality = has_other_quality ? rule.quality : there->quality;
    if (has_other_quality) {
      lines.push_back(what + " quality: " + std::string(text_of_quality(was->second.quality)) +
                      " -> " + std::string(text_of_quality(rule.quality)));
    }
    const bool is_changed = there->limits != limits;
    const bool has_other_user = there->user != rule.user;
    *there = rule;
    there->limits = limits;
    there->quality = quality;
    if (has_other_user) {
      doors_.close(now.name, name);
      if (const Status opened = open_namespace(now.name, name); !opened.ok()) {
        lines.push_back(what + " has no socket: " + opened.message());
      }
    }
    if (is_changed) tell_namespace(now.name, *there);
  }
  return lines;
}

// A group without a rule has no configured limits any more.
void ServerPool::tell_groups(const Entry& entry, const std::vector<GroupRule>& rules) const {
  const std::string& server = entry.process->name();
  const User user = entry.process->user();
  for (const GroupRule& either : rules) {
    if (server != name_of_users_server(user.uid)) break;
    if (named_.find(server, either.name) != nullptr) continue;
    const GroupRule* rule = rule_of(config_.groups, either.name);
    wire::SetGroup message;
    fill_field(message.group, either.name);
    if (rule != nullptr) {
      message.limits = group_limits(*rule, entry.devices);
      const bool may_come = !rule->user || *rule->user == user.uid;
      message.is_permanent = may_come && !rule->each_cgroup ? 1 : 0;
    }
    entry.process->set_group(message);
  }
  const NamedServer* const named = named_.find(server);
  if (named == nullptr) return;
  for (const auto& [name, rule] : named->namespaces) tell_namespace(server, rule);
}

void ServerPool::tell_namespace(const std::string& server, const GroupRule& rule) const {
  const auto entry = entries_.find(server);
  if (entry == entries_.end() || !entry->second.ready) return;
  wire::SetGroup message;
  fill_field(message.group, rule.name);
  message.limits = group_limits(rule, entry->second.devices);
  entry->second.process->set_group(message);
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

// ---- Named servers and namespaces ---------------------------------------------------------------

Result<NamedServer*> ServerPool::named_or_users(const std::string& name) {
  if (NamedServer* const there = named_.find(name); there != nullptr) return there;
  const auto uid = user_of_server_name(name);
  if (!uid) {
    return Status(CUDA_ERROR_INVALID_VALUE, "server '" + printable(name) + "' does not exist");
  }
  NamedServer server{name, system_user(*uid)};
  if (const std::string why_not = reason_against(name, server.user); !why_not.empty()) {
    return Status(CUDA_ERROR_NOT_PERMITTED, why_not);
  }
  OPENMPS_RETURN_IF_ERROR(named_.add(std::move(server)));
  if (Status opened = open_namespace(name, kDefaultNamespace); !opened.ok()) {
    named_.remove(name);
    return opened;
  }
  return named_.find(name);
}

void ServerPool::close_namespace(const std::string& server, const std::string& name) {
  doors_.close(server, name);
  if (GroupRule* const rule = named_.find(server, name)) rule->is_leaving = true;
}

Status ServerPool::open_namespace(const std::string& server, const std::string& name) {
  GroupRule* const rule = named_.find(server, name);
  if (rule == nullptr) {
    return Status(
        CUDA_ERROR_INVALID_VALUE,
        "namespace '" + printable(name) + "' does not exist on server '" + printable(server) + "'");
  }
  rule->is_leaving = false;
  return doors_.open(server, name, named_.access(*named_.find(server), *rule));
}

Status ServerPool::add_named(NamedServer server) {
  const std::string name = server.name;
  OPENMPS_RETURN_IF_ERROR(named_.add(std::move(server)));
  for (const auto& [space, rule] : named_.find(name)->namespaces) {
    if (Status opened = open_namespace(name, space); !opened.ok()) {
      forget_server(name);
      return opened;
    }
  }
  keep_state();
  return Status();
}

void ServerPool::forget_server(const std::string& name) {
  doors_.close(name);
  named_.remove(name);
  partitions_.remove_of(name);
  keep_state();
}

void ServerPool::start_named(const std::string& name, std::function<void(Status)> done) {
  const User user = named_.find(name)->user;
  if (const std::string why_not = reason_against(name, user); !why_not.empty()) {
    return done(Status(CUDA_ERROR_NOT_PERMITTED, why_not));
  }
  Entry& entry = entries_[name];
  entry.only_for_devices = false;
  if (entry.ready && !entry.leaving) return done(Status());
  if (entry.process == nullptr) {
    if (const Status started = start(name, user, &entry); !started.ok()) {
      entries_.erase(name);
      return done(started);
    }
  }
  entry.serves.push_back(std::move(done));
}

void ServerPool::start_named_logged(const std::string& name) {
  start_named(name, [this, name](const Status& started) {
    if (!started.ok()) log_.write("Server " + name + " does not start: " + started.message());
  });
}

void ServerPool::start_all_named() {
  starts_named_ = true;
  for (const auto& [name, server] : named_.all()) start_named_logged(name);
}

void ServerPool::create_server(NamedServer server, const std::function<void(Status)>& done) {
  if (const std::string why_not = reason_against(server.name, server.user); !why_not.empty()) {
    return done(Status(CUDA_ERROR_NOT_PERMITTED, why_not));
  }
  const auto create = [this, done](NamedServer made) {
    const std::string name = made.name;
    if (const Status added = add_named(std::move(made)); !added.ok()) return done(added);
    start_named(name, [this, name, done](const Status& started) {
      if (!started.ok()) forget_server(name);
      done(started);
    });
  };
  if (server.devices.empty()) return create(std::move(server));
  with_devices([server, done, create](const std::vector<Device>& devices,
                                      const std::string& why_not) mutable {
    if (devices.empty()) {
      return done(Status(CUDA_ERROR_INVALID_DEVICE, "the devices are not known: " + why_not));
    }
    for (std::string& device : server.devices) {
      const auto found = find_device(device, devices);
      if (!found || *found >= devices.size()) {
        return done(Status(CUDA_ERROR_INVALID_DEVICE,
                           format_text("there is no device '%s', only these %zu:",
                                       printable(device).c_str(), devices.size()) +
                               list_of(devices)));
      }
      device = devices[*found].uuid;
    }
    create(std::move(server));
  });
}

void ServerPool::delete_server(const std::string& name, bool force,
                               const std::function<void(Status)>& done) {
  const auto entry = entries_.find(name);
  if (entry == entries_.end() || entry->second.process == nullptr) {
    forget_server(name);
    return done(Status());
  }
  const auto end = [this, name, force, done] {
    forget_server(name);
    ServerProcess* const server = find_named(name);
    if (server == nullptr) return done(Status());
    shut_down_server(*server, force, [done] { done(Status()); });
  };
  if (force) return end();
  entry->second.process->ask(
      wire::QueryKind::kClients, [this, name, done, end](const ServerAnswer& answer) {
        const auto there = entries_.find(name);
        if (!answer.answered && there != entries_.end()) {
          return done(Status(CUDA_ERROR_MPS_SERVER_NOT_READY,
                             "server '" + name + "' does not answer; --force ends it"));
        }
        const size_t waiting = there == entries_.end() ? 0 : there->second.pending.size();
        const size_t clients = answer.clients.size() + waiting;
        if (clients == 0) return end();
        done(Status(CUDA_ERROR_NOT_READY,
                    format_text("server '%s' has %zu clients", name.c_str(), clients)));
      });
}

Status ServerPool::create_namespace(const std::string& server, GroupRule rule) {
  if (const std::string fault = fault_of_guarantee(rule.limits); !fault.empty()) {
    return Status(CUDA_ERROR_INVALID_VALUE, fault);
  }
  const Result<NamedServer*> there = named_or_users(server);
  if (!there.ok()) return there.status();
  const std::string name = rule.name;
  OPENMPS_RETURN_IF_ERROR(named_.add(server, std::move(rule)));
  if (Status opened = open_namespace(server, name); !opened.ok()) {
    named_.remove(server, name);
    return opened;
  }
  keep_state();
  return Status();
}

// Its group in the server is forgotten with its limits.
void ServerPool::delete_namespace(const std::string& server, const std::string& name) {
  doors_.close(server, name);
  named_.remove(server, name);
  tell_namespace(server, GroupRule{.name = name});
  keep_state();
}

Status ServerPool::set_namespace(const std::string& server, const std::string& name,
                                 const LimitChanges& changes,
                                 std::optional<wire::Quality> quality) {
  const Result<NamedServer*> there = named_or_users(server);
  if (!there.ok()) return there.status();
  GroupRule* const rule = named_.find(server, name);
  if (rule == nullptr) {
    return Status(CUDA_ERROR_INVALID_VALUE,
                  "namespace '" + printable(name) + "' does not exist on server '" + server + "'");
  }
  Limits limits = changed(rule->limits, changes);
  if (const std::string fault = fault_of_guarantee(limits); !fault.empty()) {
    return Status(CUDA_ERROR_INVALID_VALUE, fault);
  }
  rule->limits = std::move(limits);
  if (quality) rule->quality = *quality;
  tell_namespace(server, *rule);
  keep_state();
  return Status();
}

std::vector<Device> ServerPool::devices_of(const std::string& server) const {
  const auto entry = entries_.find(server);
  return entry == entries_.end() ? std::vector<Device>() : entry->second.devices;
}

// ---- State and partitions -----------------------------------------------------------------------

void ServerPool::restore(const std::string& kept, std::function<void(std::string)> keep) {
  keep_ = std::move(keep);
  if (kept.empty()) return;
  std::optional<State> state = parse_state(kept);
  if (!state) {
    log_.write("What the last daemon has left can't be read: its servers and partitions are gone");
    return;
  }
  partitions_.restore(state->partitions);
  // Those of `sm_partition` are a daemon's with -S, which alone can show and remove them.
  if (!requires_partitions_) partitions_.remove_of("");
  features_ = state->features;
  for (auto& [name, server] : state->servers) {
    if (const Status added = add_named(std::move(server)); !added.ok()) {
      log_.write("Server " + name + " can't be made again: " + added.message());
    }
  }
  keep_state();
}

void ServerPool::keep_state() {
  if (!has_state() && !has_kept_) return;
  has_kept_ = true;
  keep_(write_state({named_.all(), features_, partitions_.text()}));
}

std::vector<std::string> ServerPool::place_partitions() {
  if (partitions_.empty() || devices_.empty()) return {};
  std::vector<std::string> lines = partitions_.place(devices_);
  if (!lines.empty()) keep_state();
  return lines;
}

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

uint32_t ServerPool::servers_device(const std::string& server, uint32_t device) const {
  if (!sees_some(server) || device >= devices_.size()) return device;
  const std::vector<Device> seen = devices_of(server);
  const auto same = std::ranges::find(seen, devices_[device].uuid, &Device::uuid);
  return same == seen.end() ? wire::kMaxDevices : static_cast<uint32_t>(same - seen.begin());
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

void ServerPool::on_gone(const std::string& name, const std::string& how) {
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
