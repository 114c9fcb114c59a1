// SPDX-License-Identifier: Apache-2.0
// See config_state.h.
#include "control/config_state.h"

#include <sstream>

#include "control/config_servers.h"

namespace openmps::control {
namespace {

void put(const wire::LimitInfo& info, wire::LimitValue value, const std::string& name,
         toml::table* table) {
  switch (info.notation) {
    case wire::Notation::kSwitch: table->insert_or_assign(name, value != 0); break;
    case wire::Notation::kInteger:
      table->insert_or_assign(name, static_cast<int64_t>(value));
      break;
    case wire::Notation::kWord: table->insert_or_assign(name, info.text(value)); break;
    default: table->insert_or_assign(name, value);
  }
}

toml::table table_of(const Limits& limits) {
  toml::table table;
  for (const auto& [key, value] : limits) {
    const wire::LimitInfo& info = wire::info_of(key.limit);
    if (info.notation == wire::Notation::kSize) continue;
    if (!info.is_per_device) {
      put(info, value, std::string(info.name), &table);
      continue;
    }
    if (!table.contains(info.name)) table.insert(info.name, toml::table{});
    put(info, value, key.device, table.get_as<toml::table>(info.name));
  }
  const std::pair<wire::Limit, std::string_view> amounts[] = {
      {wire::Limit::kMemory, "pinned_memory_limit"},
      {wire::Limit::kGuaranteedMemory, wire::info_of(wire::Limit::kGuaranteedMemory).name}};
  for (const auto& [limit, name] : amounts) {
    const std::string memory = memory_limits_text(limits, limit);
    if (!memory.empty()) table.insert(name, memory);
  }
  return table;
}

toml::table table_of(const GroupRule& rule) {
  toml::table table = table_of(rule.limits);
  if (!rule.cgroup.empty()) {
    table.insert("cgroup", "/sys/fs/cgroup" + (rule.cgroup == "/" ? "" : rule.cgroup));
  }
  if (rule.cgroup_depth) table.insert("cgroup_depth", int64_t{*rule.cgroup_depth});
  if (rule.user) table.insert("user", std::to_string(*rule.user));
  if (rule.quality != wire::Quality::kNormal) {
    table.insert("quality", std::string(text_of_quality(rule.quality)));
  }
  toml::array devices;
  for (const auto& [uuid, partition] : rule.partitions) {
    devices.push_back(toml::table{{"uuid", uuid}, {"sm_partition", partition}});
  }
  if (!devices.empty()) table.insert("devices", std::move(devices));
  return table;
}

toml::table table_of(const NamedServer& server) {
  toml::table table{{"uid", int64_t{server.user.uid}}};
  std::string devices;
  for (const std::string& uuid : server.devices) devices += (devices.empty() ? "" : ",") + uuid;
  if (!devices.empty()) table.insert("allowed_devices", devices);
  toml::table namespaces;
  for (const auto& [name, rule] : server.namespaces) namespaces.insert(name, table_of(rule));
  table.insert("namespaces", std::move(namespaces));
  return table;
}

}  // namespace

std::string write_state(const State& state) {
  toml::table servers;
  for (const auto& [name, server] : state.servers) servers.insert(name, table_of(server));
  const toml::table document{
      {"partitions", state.partitions},
      {"features",
       toml::table{
           {"memacct", toml::table{{"audit_log", state.features.audit_log}}},
           {"context-share",
            toml::table{{"default_socket", state.features.shares_default_socket ? "on" : "off"}}}}},
      {"servers", std::move(servers)}};
  std::ostringstream text;
  text << document << '\n';
  return text.str();
}

std::optional<State> parse_state(std::string_view text) {
  const toml::parse_result parsed = toml::parse(text);
  if (!parsed) return std::nullopt;
  const FindUser nobody = [](const std::string&) { return std::nullopt; };
  const TomlReader toml("state", nobody);
  Config config;
  State state;
  std::vector<TomlReader::Key> keys = keys_of_v3(toml, &config);
  keys.push_back({"partitions", [&](const toml::node& value) {
                    state.partitions = TomlReader::text_of(value);
                    return Status();
                  }});
  if (!toml.read_keys(parsed.table(), keys).ok()) return std::nullopt;
  state.servers = std::move(config.servers);
  state.features = config.features;
  return state;
}

}  // namespace openmps::control
