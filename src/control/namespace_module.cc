// SPDX-License-Identifier: Apache-2.0
// The verbs of the module `namespace`.
#include <algorithm>
#include <memory>

#include "base/text.h"
#include "control/module_command.h"

namespace openmps::control {
namespace {

const std::vector<std::string> kNamespaceColumns = {"name",
                                                    "server",
                                                    "server-status",
                                                    "pinned-memory-limit",
                                                    "active-thread-percentage",
                                                    "client-priority",
                                                    "pipe-directory"};
// Beyond those of MPS's interface: of `namespace get`, and of the JSON form of the list.
const std::vector<std::string> kFurtherColumns = {"quality", "borrow-sms", "weight",
                                                  "guaranteed-memory", "on-pressure"};

std::vector<std::string> all_columns() {
  std::vector<std::string> all = kNamespaceColumns;
  all.insert(all.end(), kFurtherColumns.begin(), kFurtherColumns.end());
  return all;
}

std::string no_such_namespace(const std::string& name, const std::string& server) {
  return "namespace '" + printable(name) + "' does not exist on server '" + printable(server) + "'";
}

// The server that --server names. Nothing: there is none, and the call is done.
std::optional<std::string> server_option(const ModuleCall& call) {
  const auto server = call.command.option("server");
  if (!server || server->empty()) {
    call.fail("--server=<name> is required");
    return std::nullopt;
  }
  if (call.servers.named().find(*server) != nullptr || user_of_server_name(*server)) return server;
  call.fail("server '" + printable(*server) + "' does not exist");
  return std::nullopt;
}

// The values of all_columns().
std::vector<std::string> namespace_row(const ModuleCall& call, const NamedServer& server,
                                       const GroupRule& rule) {
  const bool runs = call.servers.find_named(server.name) != nullptr;
  return {rule.name,
          server.name,
          runs ? "Ready" : "Stopped",
          limit_text(rule, wire::Limit::kMemory),
          limit_text(rule, wire::Limit::kPercentage),
          limit_text(rule, wire::Limit::kPriority),
          call.servers.path_of(server.name, rule.name),
          std::string(text_of_quality(rule.quality)),
          limit_text(rule, wire::Limit::kBorrow),
          limit_text(rule, wire::Limit::kWeight),
          limit_text(rule, wire::Limit::kGuaranteedMemory),
          limit_text(rule, wire::Limit::kOnPressure)};
}

// "GPU-1=large,GPU-2=small". Nothing: it is not like that.
std::optional<std::map<std::string, std::string>> read_partitions(std::string_view text) {
  std::map<std::string, std::string> partitions;
  while (!text.empty()) {
    const std::string_view entry = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), entry.size() + 1));
    const size_t equals = entry.find('=');
    if (equals == std::string_view::npos) return std::nullopt;
    const std::string_view uuid = entry.substr(0, equals);
    const std::string_view name = entry.substr(equals + 1);
    if (!uuid.starts_with("GPU-") || !names_a_device(uuid) || !names_a_share(name)) {
      return std::nullopt;
    }
    partitions[std::string(uuid)] = name;
  }
  return partitions;
}

void namespace_create(const ModuleCall& call) {
  const auto server = server_option(call);
  if (!server || !call.may_change(*server)) return;
  GroupRule rule{.name = call.command.word(0)};
  if (const auto uid = call.command.option("uid")) {
    const auto number = parse_unsigned(*uid, UINT32_MAX - 1);
    if (!number) return call.fail("--uid=" + printable(*uid) + " is no user's number");
    rule.user = static_cast<uid_t>(*number);
  }
  if (const auto directory = call.command.option("cgroup")) {
    const auto cgroup = cgroup_of_directory(*directory);
    if (!cgroup) {
      return call.fail("--cgroup=" + printable(*directory) +
                       ": expected a directory below /sys/fs/cgroup");
    }
    rule.cgroup = *cgroup;
  }
  if (const auto text = call.command.option("sm-partitions")) {
    const auto partitions = read_partitions(*text);
    if (!partitions) {
      return call.fail("--sm-partitions=" + printable(*text) +
                       ": expected partitions by device, like GPU-<uuid>=<name>,...");
    }
    rule.partitions = *partitions;
  }
  const Result<std::optional<wire::Quality>> quality = quality_of_options(call.command);
  if (!quality.ok()) return call.fail(quality.status().message());
  rule.quality = quality->value_or(rule.quality);
  const Result<LimitChanges> changes = limits_of_options(call.command);
  if (!changes.ok()) return call.fail(changes.status().message());
  for (const auto& [key, value] : *changes) {
    if (value) rule.limits[key] = *value;
  }
  call.finish(call.servers.create_namespace(*server, std::move(rule)));
}

// The clients of a namespace.
std::vector<ClientLine> members_of(const ServerAnswer& answer, const std::string& name) {
  std::vector<ClientLine> members = answer.clients;
  std::erase_if(members, [&name](const ClientLine& client) { return client.group != name; });
  return members;
}

void terminate_all(ServerProcess& server, const std::vector<ClientLine>& members,
                   const std::function<void()>& done) {
  if (members.empty()) return done();
  const auto missing = std::make_shared<size_t>(members.size());
  for (const ClientLine& member : members) {
    wire::Query query;
    query.query = wire::QueryKind::kTerminate;
    query.session = member.pid;
    query.id = member.pid == 0 ? member.id : 0;
    server.ask(query, [missing, done](const ServerAnswer&) {
      if (--*missing == 0) done();
    });
  }
}

// No client comes in from here on, and the server knows those that are there: the question comes
// behind all that was passed on.
void namespace_remove(const ModuleCall& call) {
  const auto server = server_option(call);
  if (!server || !call.may_change(*server)) return;
  const std::string name = call.command.word(0);
  if (call.servers.named().find(*server, name) == nullptr) {
    return call.fail(no_such_namespace(name, *server));
  }
  if (name == kDefaultNamespace) {
    return call.fail("namespace 'default' is there as long as its server");
  }
  ServerProcess* const process = call.servers.find_named(*server);
  if (process == nullptr) {
    call.servers.delete_namespace(*server, name);
    return call.done({});
  }
  call.servers.close_namespace(*server, name);
  process->ask(wire::QueryKind::kClients,
               [call, server = *server, name](const ServerAnswer& answer) {
                 ServerProcess* const there = call.servers.find_named(server);
                 const std::vector<ClientLine> members = members_of(answer, name);
                 const auto end = [call, server, name] {
                   call.servers.delete_namespace(server, name);
                   call.done({});
                 };
                 if (there != nullptr && !answer.answered) {
                   (void)call.servers.open_namespace(server, name);
                   return call.fail(silence_of(*there));
                 }
                 if (there == nullptr || members.empty()) return end();
                 if (call.command.has("force")) return terminate_all(*there, members, end);
                 (void)call.servers.open_namespace(server, name);
                 call.fail(format_text("namespace '%s' has %zu clients: end them, or use --force",
                                       name.c_str(), members.size()));
               });
}

void namespace_list(const ModuleCall& call) {
  const std::string wanted = call.command.word(0);
  const auto of_server = call.command.option("server");
  const bool has_all = call.command.option("format") == "json";
  Listing listing{has_all ? all_columns() : kNamespaceColumns};
  bool has_server = !of_server;
  for (const auto& [server_name, server] : call.servers.named().all()) {
    if (of_server && server_name != *of_server) continue;
    if (!call.may_see(server_name)) continue;
    has_server = true;
    for (const auto& [name, rule] : server.namespaces) {
      if (!wanted.empty() && name != wanted) continue;
      if (call.may_see(server_name, name)) {
        listing.rows.push_back(namespace_row(call, server, rule));
        listing.rows.back().resize(listing.columns.size());
      }
    }
  }
  if (!has_server) return call.fail("server '" + printable(*of_server) + "' does not exist");
  if (!wanted.empty() && listing.rows.empty()) {
    return call.fail("namespace '" + printable(wanted) + "' does not exist");
  }
  call.show(listing);
}

void namespace_set(const ModuleCall& call) {
  const auto server = server_option(call);
  if (!server) return;
  const Result<LimitChanges> changes = limits_of_options(call.command);
  if (!changes.ok()) return call.fail(changes.status().message());
  const Result<std::optional<wire::Quality>> quality = quality_of_options(call.command);
  if (!quality.ok()) return call.fail(quality.status().message());
  if (changes->empty() && !*quality) {
    return call.fail("nothing to set; see 'namespace set help'");
  }
  if (!call.may_change(*server)) return;
  call.finish(call.servers.set_namespace(*server, call.command.word(0), *changes, *quality));
}

void namespace_get(const ModuleCall& call) {
  const std::string name = call.command.word(0);
  const std::string server = call.command.word(1);
  const std::string field = call.command.word(2);
  const std::vector<std::string> columns = all_columns();
  const auto column = std::ranges::find(columns, field);
  if (column == columns.end()) {
    return call.fail("unknown field '" + printable(field) +
                     "': name, server, server-status, pipe-directory, pinned-memory-limit, "
                     "active-thread-percentage, client-priority, quality, borrow-sms, weight, "
                     "guaranteed-memory, on-pressure");
  }
  const GroupRule* const rule = call.servers.named().find(server, name);
  if (rule == nullptr || !call.may_see(server, name)) {
    return call.fail(no_such_namespace(name, server));
  }
  const auto row = namespace_row(call, *call.servers.named().find(server), *rule);
  call.done({row[static_cast<size_t>(column - columns.begin())] + "\n"});
}

}  // namespace

std::span<const ModuleVerb> namespace_verbs() {
  static const std::vector<ModuleVerb> kRows = [] {
    const ModuleOption server{"server", "<name>", "Its server"};
    std::vector<ModuleOption> to_set = limit_options();
    to_set.insert(to_set.begin(), server);
    to_set.push_back({"quality", "<quality>",
                      "latency, normal (default) or best-effort: the best of clients that come"});
    std::vector<ModuleOption> to_create = to_set;
    to_create.push_back({"uid", "<n>", "Only that user may come, and root"});
    to_create.push_back({"sm-partitions", "<list>",
                         "The static partitions of its clients, like GPU-<uuid>=<name>,...: "
                         "nobody else of the server is in these"});
    to_create.push_back({"cgroup", "<directory>",
                         "Clients of that cgroup belong to it when they come by the main socket"});
    return std::vector<ModuleVerb>{
        {.module = "namespace",
         .verb = "create",
         .words = {"name"},
         .options = to_create,
         .run = namespace_create,
         .help = "Makes a namespace: who comes by its directory has its limits"},
        {.module = "namespace",
         .verb = "delete",
         .words = {"name"},
         .options = {server, {"force", "", "End its clients first"}},
         .run = namespace_remove,
         .help = "Removes a namespace and its directory"},
        {.module = "namespace",
         .verb = "list",
         .optional = {"name"},
         .options = {server, {"format", "<format>", "table, csv or json; ,noheader"}},
         .run = namespace_list,
         .help = "Namespaces, their limits and their directories"},
        {.module = "namespace",
         .verb = "set",
         .words = {"name"},
         .options = to_set,
         .run = namespace_set,
         .help =
             "Limits of all its clients together, in force at once; quality, of those that come"},
        {.module = "namespace",
         .verb = "get",
         .words = {"name", "server", "field"},
         .run = namespace_get,
         .help = "One value: a column of namespace list, or a further limit"}};
  }();
  return kRows;
}

}  // namespace openmps::control
