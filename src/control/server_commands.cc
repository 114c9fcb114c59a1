// SPDX-License-Identifier: Apache-2.0
// The commands about servers, and the lists of clients and devices that servers answer with.
#include <algorithm>

#include "base/text.h"
#include "control/command_call.h"
#include "control/format.h"
#include "cuda/sm_steps.h"

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

void start_server(const CommandCall& call) {
  const auto uid = call.command.uid;
  if (!uid) return call.done({"A user id (UID) is required to start a new server\n"});
  const User user = *uid == call.caller.uid ? call.caller : system_user(*uid);
  call.servers.ensure_server(user, [done = call.done](const Status& started) {
    done(started.ok() ? Reply{}
                      : Reply{"The server can't be started: " + started.message() + "\n", 1});
  });
}

void shut_down_server(const CommandCall& call) {
  ServerProcess* server = named_server(call);
  if (server == nullptr) return;
  call.servers.shut_down_server(*server, call.command.force, [done = call.done] { done({}); });
}

void list_servers(const CommandCall& call) {
  const std::vector<ServerProcess*> servers = call.servers.all();
  if (!call.command.json) {
    std::string text;
    for (const ServerProcess* server : servers) text += std::to_string(server->pid()) + "\n";
    return call.done({text});
  }
  std::vector<ServerLine> lines;
  for (const ServerProcess* server : servers) {
    lines.push_back({static_cast<uint32_t>(server->pid()), server->user().uid, "", server->name()});
  }
  call.servers.ask(servers, wire::QueryKind::kStatus,
                   [done = call.done, lines](const ServerPool::Answers& answers) {
                     std::vector<ServerLine> stated = lines;
                     for (size_t i = 0; i < answers.size(); ++i) {
                       stated[i].state = state_text(answers[i].second);
                     }
                     done({format_server_list_json(stated)});
                   });
}

void show_server_status(const CommandCall& call) {
  ServerProcess* server = named_server(call);
  if (server == nullptr) return;
  server->ask(wire::QueryKind::kStatus, [done = call.done](const ServerAnswer& answer) {
    done({std::string(state_text(answer)) + "\n"});
  });
}

void list_clients(const CommandCall& call) {
  ServerProcess* server = named_server(call);
  if (server == nullptr) return;
  server->ask(wire::QueryKind::kClients,
              [done = call.done, silence = silence_of(*server)](const ServerAnswer& answer) {
                if (!answer.answered) return done({silence, 1});
                done({format_client_list(answer.clients)});
              });
}

void list_device_clients(const CommandCall& call) {
  std::vector<ServerProcess*> servers = call.servers.all();
  if (!call.command.server.empty()) {
    ServerProcess* server = named_server(call);
    if (server == nullptr) return;
    servers = {server};
  }
  if (servers.empty()) return call.done({});
  call.servers.with_devices(
      [call, servers](const std::vector<Device>& devices, const std::string&) {
        // The servers may have gone while the devices were asked for.
        std::vector<ServerProcess*> still_there = call.servers.all();
        std::erase_if(still_there, [&](const ServerProcess* server) {
          return std::ranges::find(servers, server) == servers.end();
        });
        call.servers.ask(still_there, wire::QueryKind::kClients,
                         [call, devices](const ServerPool::Answers& answers) {
                           call.done({format_device_clients(devices, clients_of(answers)) +
                                      silent_servers(call, answers)});
                         });
      });
}

void show_client_table(const CommandCall& call) {
  std::vector<ServerProcess*> servers = call.servers.all();
  if (!call.command.server.empty()) {
    ServerProcess* server = call.servers.find(call.command.server);
    if (server == nullptr) {
      // To the byte what NVIDIA's daemon says.
      const std::string line = not_found(call.command.server);
      return call.done({line + line + "\n"});
    }
    servers = {server};
  }
  if (servers.empty() && !call.command.json) return call.done({"Server not found\n"});
  call.servers.ask(servers, wire::QueryKind::kClients, [call](const ServerPool::Answers& answers) {
    std::vector<ClientLine> clients = clients_of(answers);
    std::erase_if(clients, [&call](const ClientLine& client) { return !is_seen(call, client); });
    for (ClientLine& client : clients) {
      const auto* partition = call.servers.partitions().find(client.device_uuid, client.place);
      if (partition != nullptr) client.partition = partition->name();
    }
    call.done({call.command.json ? format_ps_json(clients)
                                 : format_ps(clients) + silent_servers(call, answers)});
  });
}

// What a namespace with these limits has of the device with that number among its server's.
DeviceLine::Share share_of(const CommandCall& call, const GroupRule& rule,
                           const wire::ClientLimits& limits, const Device& device, size_t number) {
  const cuda::SmSteps steps{device.sms, device.chunk_sms, device.chunk_sms * device.chunks};
  DeviceLine::Share share;
  share.sms = cuda::sms_of_limits(steps, limits.sm_count[number], limits.active_thread_percentage);
  share.memory_bytes = wire::combined_limit(limits.memory_limit[number], device.memory_bytes);
  const auto own = rule.partitions.find(device.uuid);
  if (own != rule.partitions.end()) {
    const StaticPartitions::Partition* const partition =
        call.servers.partitions().find(call.door.server, device.uuid, own->second);
    if (partition != nullptr) share.sms = partition->chunks * device.chunk_sms;
  }
  return share;
}

// The devices that the caller's programs can use, in the order in which these see them, of the
// daemon's `devices`.
std::vector<DeviceLine> devices_seen(const CommandCall& call, const std::vector<Device>& devices) {
  std::vector<DeviceLine> all;
  for (const Device& device : devices) all.push_back({device, static_cast<uint32_t>(all.size())});
  const NamedServer* const server = call.servers.named().find(call.door.server);
  const GroupRule* const rule = call.servers.named().find(call.door.server, call.door.group);
  if (call.door.is_main() || server == nullptr || rule == nullptr) return all;

  const auto is_hidden = [server](const DeviceLine& line) {
    return !server->devices.empty() && std::ranges::count(server->devices, line.device.uuid) == 0;
  };
  std::erase_if(all, is_hidden);
  std::ranges::stable_sort(all, {}, [server](const DeviceLine& line) {
    return std::ranges::find(server->devices, line.device.uuid) - server->devices.begin();
  });
  std::vector<Device> seen;
  for (const DeviceLine& line : all) seen.push_back(line.device);
  const wire::ClientLimits limits = group_limits(*rule, seen);
  for (size_t i = 0; i < all.size(); ++i) {
    all[i].share = share_of(call, *rule, limits, seen[i], i);
  }
  return all;
}

void query_devices(const CommandCall& call) {
  const bool is_of_server = !call.command.server.empty();
  if (is_of_server && named_server(call) == nullptr) return;
  call.servers.with_devices(
      [call, is_of_server](const std::vector<Device>& devices, const std::string& why_not) {
        if (devices.empty() && !why_not.empty()) {
          return call.done({"The devices are not known: " + why_not + "\n", 1});
        }
        const Command& command = call.command;
        if (command.json) return call.done({format_devices_json(devices_seen(call, devices))});
        std::string text = format_devices("Default", devices, command.csv);
        if (is_of_server) {
          text += "\n" + format_devices("Server " + command.server, devices, command.csv);
        }
        call.done({text});
      });
}

}  // namespace

std::span<const CommandInfo> server_commands() {
  static const CommandInfo kRows[] = {
      {.word = "start_server",
       .arguments = "-uid <uid>",
       .options = {&kUidOption},
       .right = Right::kSelf,  // connecting a client does the same
       .run = start_server,
       .help = "Start a server for a user before its first client comes",
       .manual = "Start the server of a user before the first client comes."},
      {.word = "shutdown_server",
       .arguments = "<server PID> [-f]",
       .places = {&Command::server},
       .options = {&kForceOption},
       .right = Right::kServerOwner,
       .run = shut_down_server,
       .help = "Stop a server with its last client, or at once (-f)",
       .manual = "Stop a server when its last client has left, or at once with `-f`, which its "
                 "clients learn from `CUDA_ERROR_MPS_RPC_FAILURE`. Returns when the server has "
                 "gone. Programs that connect meanwhile wait for the user's next server. Users "
                 "may stop their own server; root and the user of the daemon may stop all."},
      {.word = "get_server_list",
       .arguments = "[--json]",
       .options = {&kJsonOption},
       .right = Right::kEverybody,
       .run = list_servers,
       .manual = "PIDs of the servers, one per line; nothing if there is none."},
      {.word = "get_server_status",
       .arguments = "<server PID>",
       .places = {&Command::server},
       .right = Right::kEverybody,
       .run = show_server_status,
       .manual = "INITIALIZING until its worker is ready, then ACTIVE; FAULT from the loss of a "
                 "worker until the next one is ready. Clients that come meanwhile wait."},
      {.word = "get_client_list",
       .arguments = "<server PID>",
       .places = {&Command::server},
       .right = Right::kEverybody,
       .run = list_clients,
       .manual =
           "PIDs of the clients of a server, one per line. A client has no PID here if it is in a "
           "PID namespace that the daemon can't see, which is any that is neither the daemon's own "
           "nor below it: a container's daemon needs the host's PIDs. This list and `ps` name such "
           "a client by its ID, `id:3`, and wherever a command takes a client's PID it takes an "
           "ID, "
           "too. IDs are unique within a server; `id:3@4711` is the one of server 4711, which has "
           "to be said where several servers run. PID 0 is nobody's."},
      {.word = "get_device_client_list",
       .arguments = "[<server PID>]",
       .places = {&Command::server},
       .right = Right::kEverybody,
       .run = list_device_clients},
      {.word = "device_query",
       .arguments = "[<server PID>] [--csv] [--json]",
       .places = {&Command::server},
       .options = {&kCsvOption, &kJsonOption},
       .right = Right::kEverybody,
       .is_for_members = true,
       .run = query_devices,
       .manual = "Devices, and the clients of each. With `--json` also SMs, memory and chunks, the "
                 "SMs that limits and partitions are made of; the compute capability, and CUDA's "
                 "version by the driver; and, by a namespace's socket, the devices of its server "
                 "with the SMs and the memory that the namespace has of each."},
      {.word = "ps",
       .arguments = "[-p <server PID>] [--json]",
       .options = {&kServerOption, &kJsonOption},
       .right = Right::kEverybody,
       .is_for_members = true,
       .run = show_client_table,
       .manual = "A table of clients: PID, ID, SERVER, DEVICE, NAMESPACE, COMMAND. A client that "
                 "has gone and whose work has not ended yet is marked `(ending)`, here and in the "
                 "other lists. The JSON form has what each client has used, too, as `openmps ps` "
                 "shows it, and of a client that has no PID here the PID that it states itself."},
  };
  return kRows;
}

}  // namespace openmps::control
