// SPDX-License-Identifier: Apache-2.0
// See command_call.h.
#include "control/command_call.h"

#include <unistd.h>

#include "base/text.h"

namespace openmps::control {

std::string silence_of(const ServerProcess& server) {
  return format_text("Server %d of user %u does not answer\n", static_cast<int>(server.pid()),
                     server.user().uid);
}

std::string silent_servers(const CommandCall& call, const ServerPool::Answers& answers) {
  std::string text;
  for (const auto& [pid, answer] : answers) {
    const ServerProcess* server = call.servers.find(std::to_string(pid));
    if (!answer.answered && server != nullptr) text += silence_of(*server);
  }
  return text;
}

std::string not_found(const std::string& server) {
  return "Server " + printable(server) + " not found\n";
}

std::optional<std::vector<ServerProcess*>> servers_of_client(const CommandCall& call,
                                                             const ClientName& client) {
  const auto is_others = [&call](const ServerProcess* server) {
    return !may_control(call.caller.uid, server->user().uid, geteuid());
  };
  if (!client.server.empty()) {
    ServerProcess* server = call.servers.find(client.server);
    if (server != nullptr && !is_others(server)) return std::vector{server};
    call.done({server == nullptr ? not_found(client.server)
                                 : format_text("Permission denied: server %s is user %u's\n",
                                               client.server.c_str(), server->user().uid),
               1});
    return std::nullopt;
  }
  std::vector<ServerProcess*> servers = call.servers.all();
  std::erase_if(servers, is_others);
  if (client.id == 0 || servers.size() <= 1) return servers;
  call.done({format_text("Each of several servers may have a client id:%u: say id:%u@PID, with the "
                         "server's PID\n",
                         client.id, client.id),
             1});
  return std::nullopt;
}

ServerProcess* named_server(const CommandCall& call) {
  ServerProcess* server = call.servers.find(call.command.server);
  if (server == nullptr) call.done({not_found(call.command.server)});
  return server;
}

bool is_seen(const CommandCall& call, const ClientLine& client) {
  if (call.door.is_main()) return true;
  const ServerProcess* server = call.servers.find(std::to_string(client.server));
  return server != nullptr && server->name() == call.door.server && client.group == call.door.group;
}

std::vector<ClientLine> clients_of(const ServerPool::Answers& answers) {
  std::vector<ClientLine> clients;
  for (const auto& [pid, answer] : answers) {
    clients.insert(clients.end(), answer.clients.begin(), answer.clients.end());
  }
  return clients;
}

Reply usage_of(const Command& command, std::string_view wrong) {
  return {"Not understood: " + printable(wrong) + "\nUsage: " + command.word + " " +
              std::string(command.info->arguments) + "\n",
          1};
}

}  // namespace openmps::control
