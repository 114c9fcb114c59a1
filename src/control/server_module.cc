// SPDX-License-Identifier: Apache-2.0
// The verbs of the module `server`.
#include <unistd.h>

#include <algorithm>

#include "base/text.h"
#include "control/module_command.h"

namespace openmps::control {
namespace {

const char* server_status(const ServerPool& servers, const std::string& name,
                          const ServerPool::Answers& answers) {
  const ServerProcess* const process = servers.find_named(name);
  if (process == nullptr) return "Stopped";  // it starts with its next client
  const auto answer =
      std::ranges::find(answers, process->pid(), &std::pair<pid_t, ServerAnswer>::first);
  if (answer == answers.end()) return "Starting";
  if (!answer->second.answered) return "Unresponsive";
  switch (answer->second.state) {
    case wire::ServerState::kActive: return "Ready";
    case wire::ServerState::kFault: return "Fault";
    default: return "Starting";
  }
}

std::string allowed_devices_of(const NamedServer* named) {
  if (named == nullptr || named->devices.empty()) return "all";
  std::string text;
  for (const std::string& uuid : named->devices) text += (text.empty() ? "" : ",") + uuid;
  return text;
}

User user_of_named(const ServerPool& servers, const std::string& name) {
  if (const NamedServer* const named = servers.named().find(name)) return named->user;
  const ServerProcess* const process = servers.find_named(name);
  return process != nullptr ? process->user() : User{};
}

const std::vector<std::string> kServerColumns = {
    "name", "uid", "pid", "status", "pipe-directory", "allowed-devices", "context-ids"};

std::vector<std::string> server_row(const ServerPool& servers, const std::string& name,
                                    const ServerPool::Answers& answers) {
  const NamedServer* const named = servers.named().find(name);
  const ServerProcess* const process = servers.find_named(name);
  return {name,
          std::to_string(user_of_named(servers, name).uid),
          process != nullptr ? std::to_string(process->pid()) : kNoValue,
          server_status(servers, name, answers),
          named != nullptr ? servers.path_of(name) : kNoValue,
          allowed_devices_of(named),
          kNoValue};
}

void with_states(const ModuleCall& call, std::function<void(const ServerPool::Answers&)> done) {
  call.servers.ask(call.servers.all(), wire::QueryKind::kStatus, std::move(done));
}

void server_create(const ModuleCall& call) {
  const auto uid_text = call.command.option("uid");
  const auto uid = uid_text ? parse_unsigned(*uid_text, UINT32_MAX - 1) : std::nullopt;
  if (uid_text && !uid) return call.fail("--uid=" + printable(*uid_text) + " is no user's number");
  const User user = uid ? system_user(static_cast<uid_t>(*uid)) : call.caller;
  std::string name = call.command.word(0);
  if (name.empty() && !uid) return call.fail("a name or --uid is required");
  if (name.empty()) name = name_of_users_server(user.uid);
  if (!call.door.is_main() || !may_control(call.caller.uid, user.uid, geteuid())) {
    return call.done({format_text("Insufficient privileges for UID %u. 'SERVER CREATE' for another "
                                  "user requires root.\n",
                                  call.caller.uid),
                      1});
  }
  NamedServer server{name, user};
  if (auto devices = call.command.option("allowed-devices")) {
    std::ranges::replace(*devices, ',', ' ');
    server.devices = split_words(*devices);
    if (server.devices.empty()) return call.fail("--allowed-devices names no device");
  }
  call.servers.create_server(std::move(server), [call](const Status& made) { call.finish(made); });
}

void server_remove(const ModuleCall& call) {
  const std::string name = call.command.word(0);
  if (call.servers.named().find(name) == nullptr && call.servers.find_named(name) == nullptr) {
    return call.fail("server '" + printable(name) + "' does not exist");
  }
  if (!call.may_change(name)) return;
  call.servers.delete_server(name, call.command.has("force"), [call](const Status& gone) {
    if (gone.code() != CUDA_ERROR_NOT_READY) return call.finish(gone);
    call.fail(gone.message() + ": end them, or use --force");
  });
}

void server_list(const ModuleCall& call) {
  const std::string wanted = call.command.word(0);
  std::vector<std::string> names = servers_seen_by(call);
  if (!wanted.empty()) {
    if (std::ranges::find(names, wanted) == names.end()) {
      return call.fail("server '" + printable(wanted) + "' does not exist");
    }
    names = {wanted};
  }
  with_states(call, [call, names](const ServerPool::Answers& answers) {
    Listing listing{kServerColumns};
    for (const std::string& name : names) {
      listing.rows.push_back(server_row(call.servers, name, answers));
    }
    call.show(listing);
  });
}

// What a server has counts for its namespace `default`.
void server_set(const ModuleCall& call) {
  const std::string name = call.command.word(0);
  const Result<LimitChanges> changes = limits_of_options(call.command);
  if (!changes.ok()) return call.fail(changes.status().message());
  if (call.command.has("uid")) {
    return call.fail("a server's user can't change: delete it and create it for that user");
  }
  if (changes->empty() && !call.command.has("locality-domains")) {
    return call.fail("nothing to set; see 'server set help'");
  }
  if (!call.may_change(name)) return;
  call.finish(call.servers.set_namespace(name, kDefaultNamespace, *changes));
}

void server_get(const ModuleCall& call) {
  const std::string name = call.command.word(0);
  const std::string field = call.command.word(1);
  const auto column = std::ranges::find(kServerColumns, field);
  if (column == kServerColumns.end() || field == "context-ids") {
    return call.fail("unknown field '" + printable(field) +
                     "': name, uid, pid, status, pipe-directory, allowed-devices");
  }
  const std::vector<std::string> names = servers_seen_by(call);
  if (std::ranges::find(names, name) == names.end()) {
    return call.fail("server '" + printable(name) + "' does not exist");
  }
  with_states(call, [call, name, at = column - kServerColumns.begin()](const auto& answers) {
    call.done({server_row(call.servers, name, answers)[static_cast<size_t>(at)] + "\n"});
  });
}

}  // namespace

std::span<const ModuleVerb> server_verbs() {
  static const std::vector<ModuleVerb> kRows = [] {
    std::vector<ModuleOption> to_set = limit_options();
    to_set.push_back({"uid", "<n>", "Refused: a server's user does not change"});
    to_set.push_back({"locality-domains", "<bool>", "Accepted, without effect"});
    return std::vector<ModuleVerb>{
        {.module = "server",
         .verb = "create",
         .optional = {"name"},
         .options = {{"uid", "<n>", "As that user; without a name it is uid_<n>"},
                     {"allowed-devices", "<list>", "UUIDs or ordinals, with commas; default: all"},
                     {"locality-domains", "<bool>", "Accepted, without effect"}},
         .run = server_create,
         .help = "Makes a server with its namespace default, and starts it"},
        {.module = "server",
         .verb = "delete",
         .words = {"name"},
         .options = {{"force", "", "End its clients first"}},
         .run = server_remove,
         .help = "Ends a server, with its namespaces and partitions"},
        {.module = "server",
         .verb = "list",
         .optional = {"name"},
         .options = {{"format", "<format>", "table, csv or json; ,noheader"}},
         .run = server_list,
         .help = "Servers, and what they are at"},
        {.module = "server",
         .verb = "set",
         .words = {"name"},
         .options = to_set,
         .run = server_set,
         .help = "Limits of its namespace default, in force at once"},
        {.module = "server",
         .verb = "get",
         .words = {"name", "field"},
         .run = server_get,
         .help = "One value: name, uid, pid, status, pipe-directory, allowed-devices"}};
  }();
  return kRows;
}

}  // namespace openmps::control
