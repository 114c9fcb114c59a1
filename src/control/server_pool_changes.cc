// SPDX-License-Identifier: Apache-2.0
// What is to be: the configuration, named servers and namespaces as commands and the configuration
// change them, and what the next daemon finds of them.
#include <algorithm>
#include <utility>

#include "base/text.h"
#include "control/server_pool.h"
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

}  // namespace

// ---- Configuration ------------------------------------------------------------------------------

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

}  // namespace openmps::control
