// SPDX-License-Identifier: Apache-2.0
// The verbs of the modules `client` and `device`.
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "base/text.h"
#include "control/client_name.h"
#include "control/module_command.h"

namespace openmps::control {
namespace {

const std::vector<std::string> kClientColumns = {"pid", "server", "device", "maws-ns", "cmd"};

struct SeenClient {
  ClientLine line;
  std::string server;
  uid_t owner = 0;
};

// "SERVER/NAMESPACE (NUMBER)": NVIDIA's name of the namespace of a client, which has the server's
// number of the namespace behind it. Ours is always 0.
std::string namespace_of(const SeenClient& client) {
  const std::string name = client.line.group.empty() ? kDefaultNamespace : client.line.group;
  return client.server + "/" + name + " (0)";
}

// The clients that the caller may see: of its own servers all, of others those of its namespace.
void with_clients(const ModuleCall& call, const std::string& of_server,
                  const std::function<void(const std::vector<SeenClient>&)>& done) {
  std::vector<ServerProcess*> servers = call.servers.all();
  std::erase_if(servers, [&](const ServerProcess* server) {
    return (!of_server.empty() && server->name() != of_server) || !call.may_see(server->name());
  });
  std::vector<std::pair<std::string, uid_t>> names;
  for (const ServerProcess* server : servers) {
    names.emplace_back(server->name(), server->user().uid);
  }
  call.servers.ask(
      servers, wire::QueryKind::kClients, [call, names, done](const ServerPool::Answers& answers) {
        std::vector<SeenClient> seen;
        for (size_t i = 0; i < answers.size(); ++i) {
          for (const ClientLine& line : answers[i].second.clients) {
            const std::string name = line.group.empty() ? kDefaultNamespace : line.group;
            const bool is_owner =
                call.door.is_main() && may_control(call.caller.uid, names[i].second, geteuid());
            if (!is_owner && !call.may_see(names[i].first, name)) continue;
            seen.push_back({line, names[i].first, names[i].second});
          }
        }
        done(seen);
      });
}

void client_list(const ModuleCall& call) {
  const auto server = call.command.option("server");
  const bool is_known = !server || call.servers.named().find(*server) != nullptr ||
                        call.servers.find_named(*server) != nullptr;
  if (!is_known || (server && !call.may_see(*server))) {
    return call.fail("server '" + printable(*server) + "' does not exist");
  }
  with_clients(call, server.value_or(""), [call](const std::vector<SeenClient>& clients) {
    Listing listing{kClientColumns};
    for (const SeenClient& client : clients) {
      if (client.line.ending && !call.command.has("all")) continue;
      listing.rows.push_back({client_name(client.line.pid, client.line.id), client.server,
                              client.line.device_uuid, namespace_of(client), client.line.command});
    }
    call.show(listing);
  });
}

// The client that the first word names, among those that the caller may see. Null: there is none,
// and the call is done.
const SeenClient* named_client(const ModuleCall& call, const std::vector<SeenClient>& clients) {
  const std::string word = call.command.word(0);
  const auto name = parse_client_name(word);
  const auto found = std::ranges::find_if(clients, [&name](const SeenClient& client) {
    if (!name) return false;
    return name->pid != 0 ? client.line.pid == name->pid : client.line.id == name->id;
  });
  if (found != clients.end()) return &*found;
  call.fail("client '" + printable(word) + "' does not exist");
  return nullptr;
}

std::string pci_id_of(const ServerPool& servers, const SeenClient& client) {
  const std::vector<Device> devices = servers.devices_of(client.server);
  const auto device = std::ranges::find(devices, client.line.device_uuid, &Device::uuid);
  return device == devices.end() ? kNoValue : device->pci_bus_id;
}

void client_get(const ModuleCall& call) {
  with_clients(call, "", [call](const std::vector<SeenClient>& clients) {
    const SeenClient* const client = named_client(call, clients);
    if (client == nullptr) return;
    const std::pair<std::string_view, std::string> fields[] = {
        {"pid", client_name(client->line.pid, client->line.id)},
        {"server", client->server},
        {"device", client->line.device_uuid},
        {"pci-id", pci_id_of(call.servers, *client)},
        {"linux-ns", std::to_string(client->line.namespace_inode)},
        {"maws-ns", namespace_of(*client)},
        {"cmd", client->line.command}};
    const std::string field = call.command.word(1);
    for (const auto& [name, value] : fields) {
      if (name == field) return call.done({value + "\n"});
    }
    call.fail("unknown field '" + printable(field) +
              "': pid, server, device, pci-id, linux-ns, maws-ns, cmd");
  });
}

void client_terminate(const ModuleCall& call) {
  with_clients(call, "", [call](const std::vector<SeenClient>& clients) {
    const SeenClient* const client = named_client(call, clients);
    if (client == nullptr || !call.may_change(client->server)) return;
    ServerProcess* const server = call.servers.find_named(client->server);
    if (server == nullptr) return call.done({});  // and its clients with it
    if (server->is_silent()) return call.fail(silence_of(*server));
    wire::Query query;
    query.query = wire::QueryKind::kTerminate;
    query.session = client->line.pid;
    query.id = client->line.pid == 0 ? client->line.id : 0;
    server->ask(query, [call](const ServerAnswer&) { call.done({}); });
  });
}

// As a server counts them, if one is named.
void list_devices(const ModuleCall& call) {
  const auto server = call.command.option("server");
  const auto show = [call](const std::string& name, const std::vector<Device>& devices) {
    Listing listing{{"ordinal", "server", "pci-id", "device-uuid", "name", "total-sms",
                     "total-chunks", "attributes"}};
    for (size_t i = 0; i < devices.size(); ++i) {
      listing.rows.push_back({std::to_string(i), name, devices[i].pci_bus_id, devices[i].uuid,
                              devices[i].name, std::to_string(devices[i].sms),
                              std::to_string(devices[i].chunks), kNoValue});
    }
    call.show(listing);
  };
  if (server) {
    const bool is_known = call.servers.named().find(*server) != nullptr ||
                          call.servers.find_named(*server) != nullptr;
    if (!is_known || !call.may_see(*server)) {
      return call.fail("server '" + printable(*server) + "' does not exist");
    }
    return show(*server, call.servers.devices_of(*server));
  }
  call.servers.with_devices(
      [call, show](const std::vector<Device>& devices, const std::string& why_not) {
        if (devices.empty()) return call.fail("the devices are not known: " + why_not);
        show(kNoValue, devices);
      });
}

}  // namespace

std::span<const ModuleVerb> client_verbs() {
  static const ModuleVerb kRows[] = {
      {.module = "client",
       .verb = "list",
       .options = {{"server", "<name>", "Clients of that server"},
                   {"all", "", "Also those that have gone, and whose work has not ended"},
                   {"format", "<format>", "table, csv or json; ,noheader"}},
       .run = client_list,
       .help = "Running clients, and their namespaces"},
      {.module = "client",
       .verb = "get",
       .words = {"pid", "field"},
       .run = client_get,
       .help = "One value: pid, server, device, pci-id, linux-ns, maws-ns, cmd"},
      {.module = "client",
       .verb = "terminate",
       .words = {"pid"},
       .run = client_terminate,
       .help = "Ends a client's work on the devices; returns when nothing of it is left"}};
  return kRows;
}

std::span<const ModuleVerb> device_verbs() {
  static const ModuleVerb kRows[] = {
      {.module = "device",
       .verb = "list",
       .options = {{"server", "<name>", "As that server sees them"},
                   {"format", "<format>", "table, csv or json; ,noheader"}},
       .run = list_devices,
       .help = "Devices, their SMs and chunks"}};
  return kRows;
}

}  // namespace openmps::control
