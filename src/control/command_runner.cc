// SPDX-License-Identifier: Apache-2.0
// The commands of the control shell.
#include "control/command_runner.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>

#include "base/text.h"
#include "control/format.h"

namespace openmps::control {
namespace {

const char* state_text(const ServerAnswer& answer) {
  if (!answer.answered) return "UNRESPONSIVE";
  switch (answer.state) {
    case wire::ServerState::kActive: return "ACTIVE";
    case wire::ServerState::kFault: return "FAULT";
    default: return "INITIALIZING";
  }
}

std::vector<ClientLine> clients_of(const ServerPool::Answers& answers) {
  std::vector<ClientLine> clients;
  for (const auto& [pid, answer] : answers) {
    clients.insert(clients.end(), answer.clients.begin(), answer.clients.end());
  }
  return clients;
}

std::string silence_of(const ServerProcess& server) {
  return format_text("Server %d of user %u does not answer\n", static_cast<int>(server.pid()),
                     server.user().uid);
}

// As NVIDIA's get commands print a limit.
std::string answer_of(const Settings& settings, wire::Limit limit, std::string_view device = "") {
  const std::string text = wire::info_of(limit).answer(settings.value(limit, device));
  return text.empty() ? "" : text + "\n";
}

std::string not_found(const std::string& server) {
  return "Server " + printable(server) + " not found\n";
}

// Who may give a command: the table of docs/security.md.
enum class Right {
  kEverybody,  // it changes nothing, or what is the caller's own
  kOwner,      // the user of the server that it names, and who may all
  kDaemon,     // root, and the user who runs the daemon: they may all
};

Right right_to(const Command& command, User caller) {
  switch (command.verb) {
    case Verb::kQuit:
    case Verb::kSetDefaultPercentage:
    case Verb::kSetPercentage:
    case Verb::kSetDefaultMemoryLimit:
    case Verb::kSetMemoryLimit:
    case Verb::kSetDefaultPriority:
    case Verb::kSetClientPercentage:
    case Verb::kSetClientSmCount:
    case Verb::kSetClientMemoryLimit:
    case Verb::kSetClientPriority:
    case Verb::kReserveSms:
    case Verb::kSmPartition:
    case Verb::kReload: return Right::kDaemon;
    case Verb::kShutdownServer:
    case Verb::kTerminateClient: return Right::kOwner;
    case Verb::kStartServer:  // connecting a client does the same
      return command.uid && *command.uid != caller.uid ? Right::kDaemon : Right::kEverybody;
    case Verb::kUnknown:
    case Verb::kGetServerList:
    case Verb::kGetServerStatus:
    case Verb::kGetClientList:
    case Verb::kGetDeviceClientList:
    case Verb::kPs:
    case Verb::kDeviceQuery:
    case Verb::kGetDefaultPercentage:
    case Verb::kGetPercentage:
    case Verb::kGetDefaultMemoryLimit:
    case Verb::kGetMemoryLimit:
    case Verb::kGetDefaultPriority:
    case Verb::kGetGroupList:
    case Verb::kListPartitions:
    case Verb::kWhoAmI:
    case Verb::kInspect: return Right::kEverybody;  // kInspect: of the caller's own sessions
  }
  return Right::kDaemon;
}

}  // namespace

bool is_over(User caller, User owner, uid_t daemon) {
  return caller.uid == owner.uid || caller.uid == 0 || caller.uid == daemon;
}

// "" or who may.
std::string CommandRunner::reason_against(const Command& command, User caller) const {
  const Right right = right_to(command, caller);
  const User daemon{geteuid(), getegid()};
  if (right == Right::kEverybody || is_over(caller, daemon, daemon.uid)) return "";
  std::string whose;
  if (right == Right::kOwner) {
    const ServerProcess* server = servers_.find(command.server);
    if (server == nullptr || is_over(caller, server->user(), daemon.uid)) return "";
    whose = format_text(" for user %u, whose server that is,", server->user().uid);
  }
  return format_text("Permission denied: %s is%s for root and for user %u, who runs the daemon\n",
                     command.word.c_str(), whose.c_str(), daemon.uid);
}

namespace {

Reply who_is(User caller, pid_t pid) {
  const std::string user = format_text("User %u, ", caller.uid);
  if (pid != 0) return {user + format_text("PID %d\n", static_cast<int>(pid))};
  return {user +
          "without a PID: in a PID namespace that the daemon can't see. Rules by cgroup do "
          "not fit its clients, and commands name them by ID, like id:3\n"};
}

}  // namespace

void CommandRunner::run(const Command& command, User caller, pid_t pid, Done done) {
  const bool needs_static =
      command.verb == Verb::kSmPartition || command.verb == Verb::kListPartitions;
  if (command.verb == Verb::kUnknown || (needs_static && servers_.partitions() == nullptr)) {
    done({"Unknown command \"" + printable(command.word) + "\"\n"});
    return;
  }
  if (const std::string why_not = reason_against(command, caller); !why_not.empty()) {
    done({why_not, 1});
    return;
  }
  switch (command.verb) {
    case Verb::kQuit: quit_(command.timeout_s, std::move(done)); return;
    case Verb::kReload: done(reload_()); return;
    case Verb::kStartServer: start_server(command, caller, done); return;
    case Verb::kGetServerList: server_list(command, done); return;
    case Verb::kPs: client_table(command, done); return;
    case Verb::kGetGroupList: group_list(command, done); return;
    case Verb::kGetDeviceClientList: device_clients(command, done); return;
    case Verb::kDeviceQuery: device_query(command, done); return;
    case Verb::kInspect: inspect(command, caller, done); return;
    case Verb::kWhoAmI: done(who_is(caller, pid)); return;
    case Verb::kSetClientPercentage:
    case Verb::kSetClientSmCount:
    case Verb::kSetClientMemoryLimit:
    case Verb::kSetClientPriority:
    case Verb::kReserveSms: change_client(command, done); return;
    case Verb::kSmPartition:
      command.action == "rm" ? remove_partition(command, done) : add_partition(command, done);
      return;
    case Verb::kListPartitions: list_partitions(command, done); return;
    case Verb::kGetDefaultPercentage:
    case Verb::kSetDefaultPercentage:
    case Verb::kGetDefaultMemoryLimit:
    case Verb::kSetDefaultMemoryLimit:
    case Verb::kGetDefaultPriority:
    case Verb::kSetDefaultPriority: done(change_defaults(command)); return;
    case Verb::kTerminateClient:
      if (servers_.find(command.server) == nullptr) {
        const std::string server = printable(command.server);
        done({"Server " + server + " not found\nServer " + server + " not found!\n1\n"});
        return;
      }
      terminate(command, *servers_.find(command.server), done);
      return;
    case Verb::kUnknown:
    case Verb::kShutdownServer:
    case Verb::kGetServerStatus:
    case Verb::kGetClientList:
    case Verb::kGetPercentage:
    case Verb::kSetPercentage:
    case Verb::kGetMemoryLimit:
    case Verb::kSetMemoryLimit: break;
  }
  ServerProcess* server = servers_.find(command.server);
  if (server == nullptr) {
    done({not_found(command.server)});
    return;
  }
  run_for_server(command, *server, done);
}

void CommandRunner::run_for_server(const Command& command, ServerProcess& server,
                                   const Done& done) {
  Settings& settings = server.settings();
  switch (command.verb) {
    case Verb::kShutdownServer:
      servers_.shut_down_server(server, command.force, [done] { done({}); });
      return;
    case Verb::kGetServerStatus:
      server.ask(wire::QueryKind::kStatus, [done](const ServerAnswer& answer) {
        done({std::string(state_text(answer)) + "\n"});
      });
      return;
    case Verb::kGetClientList:
      server.ask(wire::QueryKind::kClients,
                 [done, silence = silence_of(server)](const ServerAnswer& answer) {
                   if (!answer.answered) return done({silence, 1});
                   done({format_client_list(answer.clients)});
                 });
      return;
    case Verb::kSetPercentage:
      settings.set(wire::Limit::kPercentage, "", command.value);
      [[fallthrough]];
    case Verb::kGetPercentage: done({answer_of(settings, wire::Limit::kPercentage)}); return;
    case Verb::kSetMemoryLimit:
      settings.set(wire::Limit::kMemory, command.device, command.value);
      done({});
      return;
    default: done({answer_of(settings, wire::Limit::kMemory, command.device)}); return;
  }
}

std::string CommandRunner::silent_ones(const ServerPool::Answers& answers) const {
  std::string text;
  for (const auto& [pid, answer] : answers) {
    const ServerProcess* server = servers_.find(std::to_string(pid));
    if (!answer.answered && server != nullptr) text += silence_of(*server);
  }
  return text;
}

// The result is text, as with MPS, and the exit code 0 whatever it is.
void CommandRunner::terminate(const Command& command, ServerProcess& server, const Done& done) {
  const std::string unknown = "Client " + printable(command.client) + " not found!\n1\n";
  if (is_nobodys_pid(command.client)) return done({std::string(kNobodysPid) + "1\n"});
  const auto client = parse_client_name(command.client);
  if (!client || (!client->server.empty() && client->server != command.server)) {
    return done({unknown});
  }
  if (server.is_silent()) return done({silence_of(server) + "1\n"});
  wire::Query query;
  query.query = wire::QueryKind::kTerminate;
  query.session = client->pid;
  query.id = client->id;
  server.ask(query, [done, unknown](const ServerAnswer& answer) {
    // A server that has gone has no clients.
    done({answer.answered && answer.result != CUDA_SUCCESS ? unknown : "0\n"});
  });
}

namespace {

// How a command is to be given, and what of it is not understood.
Reply usage_of(const Command& command, std::string_view wrong) {
  std::string how = command.word;
  switch (command.verb) {
    case Verb::kSetClientPercentage:
      how += " <PID, id:ID or group> <percentage above 0 up to 100>";
      break;
    case Verb::kSetClientSmCount:
      how += " <PID, id:ID or group> <device> <SMs, 0: no limit>";
      break;
    case Verb::kSetClientMemoryLimit:
      how += " <PID, id:ID or group> <device> <512M or 2G, 0G: no limit>";
      break;
    case Verb::kSetClientPriority:
      how += " <PID, id:ID or group> <0: normal, 1: below normal>";
      break;
    case Verb::kSmPartition: how += " add <device UUID> <chunks> | rm <device UUID> <id>"; break;
    default: how += " <PID, id:ID or program> <device> <SMs, 0: no longer> [--lend]"; break;
  }
  return {"Not understood: " + printable(wrong) + "\nUsage: " + how + "\n", 1};
}

// set_client_...: of a group, and no client.
bool is_of_group(const Command& command) {
  return command.verb != Verb::kReserveSms && !parse_unsigned(command.client, UINT32_MAX) &&
         !parse_client_name(command.client);
}

// Empty: all is well. Else what of the command is not understood.
std::string read_change(const Command& command, const std::vector<Device>& devices,
                        wire::Query* query) {
  wire::Change& change = query->change;
  const auto client = parse_client_name(command.client);
  if (client) {
    query->session = client->pid;
    query->id = client->id;
  }
  // A program's, or a group's; of cgroups' groups also what follows the colon.
  const bool is_name =
      command.verb == Verb::kReserveSms
          ? !command.client.empty()
          : names_a_group(std::string_view(command.client).substr(0, command.client.find(':')));
  const bool by_name = !client && is_name && command.client.size() < sizeof(change.name);
  if (!by_name && !client) return "the client \"" + command.client + "\"";
  if (by_name) fill_field(change.name, command.client);
  const std::string value = "the value \"" + command.value + "\"";
  const bool is_reservation = command.verb == Verb::kReserveSms;
  change.limit = command.verb == Verb::kSetClientPercentage ? wire::Limit::kPercentage
                 : command.verb == Verb::kSetClientPriority ? wire::Limit::kPriority
                 : command.verb == Verb::kSetClientSmCount  ? wire::Limit::kSmCount
                                                            : wire::Limit::kMemory;
  if (is_reservation || wire::info_of(change.limit).is_per_device) {
    const auto device = find_device(command.device, devices);
    if (!device) return "the device \"" + command.device + "\"";
    change.device = *device;
  }
  if (is_reservation) query->query = wire::QueryKind::kReserve;
  const auto parsed = is_reservation ? wire::info_of(wire::Limit::kSmCount).parse(command.value)
                                     : wire::info_of(change.limit).parse(command.value);
  if (is_reservation) {
    change.sms = static_cast<uint32_t>(parsed.value_or(0));
  } else {
    change.value = parsed.value_or(0);
  }
  change.lends = command.lend ? 1 : 0;
  return parsed ? "" : value;
}

Reply change_reply(const Command& command, CUresult result, uint32_t amount) {
  const std::string who = printable(command.client);
  switch (result) {
    case CUDA_SUCCESS:
      if (is_of_group(command)) {
        return {amount != 0 ? ""
                            : "Group " + who + " has no members yet: it is for those to come\n"};
      }
      return {amount == 0 ? std::string()
                          : std::to_string(amount) + " SMs are reserved for " + who + "\n"};
    case CUDA_ERROR_INVALID_VALUE:
      return {command.verb == Verb::kReserveSms && command.value == "0"
                  ? "No SMs are reserved for " + who + "\n"
                  : (is_of_group(command) ? "Group " : "Client ") + who + " not found\n",
              1};
    case CUDA_ERROR_INVALID_DEVICE: return {"There is no such device\n", 1};
    case CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION:
      return {"There are not so many SMs that others could do without\n", 1};
    case CUDA_ERROR_ALREADY_ACQUIRED:
      return {"SMs are reserved for " + who + " already: say 0 first\n", 1};
    case CUDA_ERROR_MPS_SERVER_NOT_READY: return {"The server is not ready yet\n", 1};
    default:
      return {"The server refuses it with CUDA error " + std::to_string(static_cast<int>(result)) +
                  "\n",
              1};
  }
}

}  // namespace

std::vector<ServerProcess*> CommandRunner::servers_with(const ClientName& client,
                                                        std::string* why_not) const {
  const std::vector<ServerProcess*> all = servers_.all();
  if (!client.server.empty()) {
    ServerProcess* server = servers_.find(client.server);
    if (server != nullptr) return {server};
    *why_not = not_found(client.server);
    return {};
  }
  if (client.id == 0 || all.size() <= 1) return all;
  *why_not = format_text(
      "Each of several servers may have a client id:%u: say id:%u@PID, with the "
      "server's PID\n",
      client.id, client.id);
  return {};
}

// Of several servers the first that has such a client, or for a program or group any, does it.
void CommandRunner::change_client(const Command& command, const Done& done) {
  if (is_of_group(command) && servers_.all().empty()) {
    done(
        {"There is no server that could have the group: see start_server, or describe the group in "
         "the configuration\n",
         1});
    return;
  }
  if (command.verb == Verb::kReserveSms && servers_.partitions() != nullptr) {
    done({"With static partitions (-S) SMs are kept by sm_partition\n", 1});
    return;
  }
  if (is_nobodys_pid(command.client)) return done({kNobodysPid, 1});
  servers_.with_devices(
      [this, command, done](const std::vector<Device>& devices, const std::string&) {
        wire::Query query;
        query.query = wire::QueryKind::kChange;
        if (const std::string wrong = read_change(command, devices, &query); !wrong.empty()) {
          return done(usage_of(command, wrong));
        }
        tell_change(command, query, done);
      });
}

void CommandRunner::tell_change(const Command& command, const wire::Query& query,
                                const Done& done) {
  std::string why_not;
  const auto client = parse_client_name(command.client).value_or(ClientName());
  const std::vector<ServerProcess*> servers = servers_with(client, &why_not);
  if (!why_not.empty()) return done({why_not, 1});
  servers_.ask(servers, query, [this, done, command](const ServerPool::Answers& answers) {
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    uint32_t amount = 0;
    for (const auto& [pid, answer] : answers) {
      if (!answer.answered) continue;
      amount = std::max(amount, answer.amount);
      if (result == CUDA_SUCCESS) continue;
      if (answer.result != CUDA_ERROR_INVALID_VALUE) result = answer.result;
    }
    Reply reply = change_reply(command, result, amount);
    // The client may be at one that does not answer, and of a group each has a part.
    const bool is_done = result == CUDA_SUCCESS && !is_of_group(command);
    if (!is_done) reply.text = silent_ones(answers) + reply.text;
    done(reply);
  });
}

// ---- Static partitions --------------------------------------------------------------------------

void CommandRunner::add_partition(const Command& command, const Done& done) {
  const auto chunks = parse_unsigned(command.value, UINT32_MAX);
  if (command.action != "add" || !chunks) {
    done(usage_of(command, command.action != "add" ? "the action \"" + command.action + "\""
                                                   : "the value \"" + command.value + "\""));
    return;
  }
  servers_.with_devices([this, command, done, chunks = static_cast<uint32_t>(*chunks)](
                            const std::vector<Device>& devices, const std::string& why_not) {
    if (devices.empty()) return done({"The devices are not known: " + why_not + "\n", 1});
    const auto device = find_by_uuid(command.device, devices);
    if (!device) return done(usage_of(command, "the device UUID \"" + command.device + "\""));
    const auto made = servers_.partitions()->add(*device, devices[*device], chunks);
    if (made.ok()) {
      servers_.keep_partitions();
      return done({"Partition " + (*made)->name() + " created\n"});
    }
    done(
        {format_text("Failed to fulfill the requested SM partition of %u chunks, error "
                     "CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION\n",
                     chunks)});
  });
}

// No client is let in from here on, and those who are there the servers know: the answer is behind
// all that was admitted.
void CommandRunner::remove_partition(const Command& command, const Done& done) {
  StaticPartitions::Partition* partition = servers_.partitions()->find(command.value);
  if (partition == nullptr || command.device.empty() ||
      !partition->uuid.starts_with(command.device) || partition->is_leaving) {
    done({"Partition " + printable(command.value) + " not found\n"});
    return;
  }
  partition->is_leaving = true;
  servers_.ask(servers_.all(), wire::QueryKind::kPartitions,
               [this, done, partition](const ServerPool::Answers& answers) {
                 const std::string name = partition->name();
                 for (const auto& [pid, answer] : answers) {
                   const bool is_lost = !answer.answered && servers_.is_there(pid);
                   const bool has_it = std::ranges::find(answer.partitions, partition->place) !=
                                       answer.partitions.end();
                   if (!is_lost && !has_it) continue;
                   partition->is_leaving = false;
                   return done({is_lost ? silent_ones(answers)
                                        : "Partition " + name +
                                              " in use. Terminate all clients before removing.\n",
                                is_lost ? 1 : 0});
                 }
                 servers_.partitions()->remove(partition);
                 servers_.keep_partitions();
                 done({"Partition " + name + " removed\n"});
               });
}

void CommandRunner::list_partitions(const Command& command, const Done& done) {
  servers_.with_devices([this, command, done](const std::vector<Device>& devices,
                                              const std::string& why_not) {
    if (devices.empty()) return done({"The devices are not known: " + why_not + "\n", 1});
    const auto list = [this, done, devices,
                       json = command.json](const ServerPool::Answers& answers) {
      std::vector<DevicePartitions> lines;
      for (const Device& device : devices) {
        lines.push_back({device.uuid, device.chunk_sms, device.chunks});
        DevicePartitions& of = lines.back();
        for (const StaticPartitions::Partition& one : servers_.partitions()->all()) {
          if (one.uuid != device.uuid) continue;
          const bool has_clients = std::ranges::any_of(answers, [&one](const auto& entry) {
            const auto& used = entry.second.partitions;
            return std::ranges::find(used, one.place) != used.end();
          });
          of.partitions.push_back({one.id, one.chunks, has_clients});
        }
      }
      done(
          {json ? format_partitions_json(lines) : format_partitions(lines) + silent_ones(answers)});
    };
    servers_.ask(servers_.all(), wire::QueryKind::kPartitions, list);
  });
}

Reply CommandRunner::change_defaults(const Command& command) {
  Settings& defaults = servers_.defaults();
  switch (command.verb) {
    case Verb::kSetDefaultPercentage:
      defaults.set(wire::Limit::kPercentage, "", command.value);
      [[fallthrough]];
    case Verb::kGetDefaultPercentage: return {answer_of(defaults, wire::Limit::kPercentage)};
    case Verb::kSetDefaultPriority:
      return {defaults.set(wire::Limit::kPriority, "", command.value)
                  ? ""
                  : "Invalid priority value - must be 0 or 1!\n"};
    case Verb::kGetDefaultPriority: return {answer_of(defaults, wire::Limit::kPriority)};
    case Verb::kSetDefaultMemoryLimit:
      defaults.set(wire::Limit::kMemory, command.device, command.value);
      return {};
    default: return {answer_of(defaults, wire::Limit::kMemory, command.device)};
  }
}

void CommandRunner::start_server(const Command& command, User caller, const Done& done) {
  if (!command.uid) {
    done({"A user id (UID) is required to start a new server\n"});
    return;
  }
  User user{*command.uid, caller.gid};
  if (user.uid != caller.uid) {
    // Their primary group; a user that the system does not know gets a group of the same number.
    const passwd* entry = getpwuid(user.uid);
    user.gid = entry != nullptr ? entry->pw_gid : static_cast<gid_t>(user.uid);
  }
  servers_.ensure_server(user, [done](const Status& started) {
    done(started.ok() ? Reply{}
                      : Reply{"The server can't be started: " + started.message() + "\n", 1});
  });
}

void CommandRunner::server_list(const Command& command, const Done& done) {
  const std::vector<ServerProcess*> servers = servers_.all();
  if (!command.json) {
    std::string text;
    for (const ServerProcess* server : servers) text += std::to_string(server->pid()) + "\n";
    done({text});
    return;
  }
  std::vector<uid_t> users;
  users.reserve(servers.size());
  for (const ServerProcess* server : servers) users.push_back(server->user().uid);
  servers_.ask(
      servers, wire::QueryKind::kStatus, [done, users](const ServerPool::Answers& answers) {
        std::vector<ServerLine> lines;
        for (size_t i = 0; i < answers.size(); ++i) {
          lines.push_back(
              {static_cast<uint32_t>(answers[i].first), users[i], state_text(answers[i].second)});
        }
        done({format_server_list_json(lines)});
      });
}

void CommandRunner::client_table(const Command& command, const Done& done) {
  std::vector<ServerProcess*> servers = servers_.all();
  if (!command.server.empty()) {
    ServerProcess* server = servers_.find(command.server);
    if (server == nullptr) {
      // To the byte what NVIDIA's daemon says.
      done({not_found(command.server) + not_found(command.server) + "\n"});
      return;
    }
    servers = {server};
  }
  if (servers.empty() && !command.json) {
    done({"Server not found\n"});
    return;
  }
  servers_.ask(servers, wire::QueryKind::kClients,
               [this, done, json = command.json](const ServerPool::Answers& answers) {
                 std::vector<ClientLine> clients = clients_of(answers);
                 if (const StaticPartitions* all = servers_.partitions(); all != nullptr) {
                   for (ClientLine& client : clients) {
                     const auto* partition = all->find(client.place);
                     if (partition != nullptr) client.partition = partition->name();
                   }
                 }
                 done({json ? format_ps_json(clients) : format_ps(clients) + silent_ones(answers)});
               });
}

void CommandRunner::group_list(const Command& command, const Done& done) {
  servers_.ask(
      servers_.all(), wire::QueryKind::kGroups,
      [this, done, json = command.json](const ServerPool::Answers& answers) {
        std::vector<GroupLine> groups;
        for (const auto& [pid, answer] : answers) {
          groups.insert(groups.end(), answer.groups.begin(), answer.groups.end());
        }
        done({json ? format_groups_json(groups) : format_groups(groups) + silent_ones(answers)});
      });
}

void CommandRunner::inspect(const Command& command, User caller, const Done& done) {
  if (is_nobodys_pid(command.client)) return done({kNobodysPid, 1});
  const auto wanted = parse_client_name(command.client);
  if (!wanted) {
    done({"inspect wants a session: its ID or its client's PID, as ps shows them\n", 1});
    return;
  }
  std::vector<ServerProcess*> servers = servers_.all();
  std::erase_if(servers, [&](ServerProcess* server) {
    const bool is_named = wanted->server.empty() || std::to_string(server->pid()) == wanted->server;
    return !is_named || !is_over(caller, server->user(), geteuid());
  });
  wire::Query query;
  query.query = wire::QueryKind::kInspect;
  query.session = wanted->pid;
  query.id = wanted->id;
  servers_.ask(servers, query,
               [this, done, json = command.json,
                name = printable(command.client)](const ServerPool::Answers& answers) {
                 std::string text;
                 for (const auto& [pid, answer] : answers) {
                   if (!answer.inspected) continue;
                   text += json ? format_inspected_json(*answer.inspected)
                                : format_inspected(*answer.inspected);
                 }
                 if (text.empty()) {
                   return done({silent_ones(answers) + "There is no session " + name + "\n", 1});
                 }
                 done({text});
               });
}

void CommandRunner::device_clients(const Command& command, const Done& done) {
  std::vector<ServerProcess*> servers = servers_.all();
  if (!command.server.empty()) {
    ServerProcess* server = servers_.find(command.server);
    if (server == nullptr) {
      done({not_found(command.server)});
      return;
    }
    servers = {server};
  }
  if (servers.empty()) {
    done({});
    return;
  }
  servers_.with_devices(
      [this, servers, done](const std::vector<Device>& devices, const std::string&) {
        // The servers may have gone while the devices were asked for.
        std::vector<ServerProcess*> still_there;
        for (ServerProcess* server : servers_.all()) {
          if (std::find(servers.begin(), servers.end(), server) != servers.end()) {
            still_there.push_back(server);
          }
        }
        servers_.ask(
            still_there, wire::QueryKind::kClients,
            [this, done, devices](const ServerPool::Answers& answers) {
              done({format_device_clients(devices, clients_of(answers)) + silent_ones(answers)});
            });
      });
}

void CommandRunner::device_query(const Command& command, const Done& done) {
  if (!command.server.empty() && servers_.find(command.server) == nullptr) {
    done({not_found(command.server)});
    return;
  }
  servers_.with_devices(
      [command, done](const std::vector<Device>& devices, const std::string& why_not) {
        if (devices.empty() && !why_not.empty()) {
          done({"The devices are not known: " + why_not + "\n", 1});
          return;
        }
        if (command.json) return done({format_devices_json(devices)});
        std::string text = format_devices("Default", devices, command.csv);
        if (!command.server.empty()) {
          text += "\n" + format_devices("Server " + command.server, devices, command.csv);
        }
        done({text});
      });
}

}  // namespace openmps::control
