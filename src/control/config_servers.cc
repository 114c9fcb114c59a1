// SPDX-License-Identifier: Apache-2.0
// See config_servers.h.
#include "control/config_servers.h"

#include <unistd.h>

#include <iterator>
#include <memory>

namespace openmps::control {
namespace {

constexpr std::string_view kSchemaVersion = "1.0";
// The driver's own levels of time slices (CU compute policy).
constexpr std::string_view kTimeslices[] = {"default", "short", "medium", "long"};
// Numbers in files of the interface are small; larger ones are mistakes.
constexpr int64_t kMostDepth = 64;

class ServersReader {
 public:
  ServersReader(const TomlReader& toml, Config* config) : toml_(toml), config_(*config) {}

  Status read_servers(const toml::node& value) const {
    return for_each_table(value, "servers.NAME",
                          [this](const std::string& name, const toml::table& table) {
                            return read_server(name, table);
                          });
  }

  Status read_features(const toml::node& value) const {
    const toml::table* table = value.as_table();
    if (table == nullptr) return toml_.expected(value, "a table, [features]");
    Features& features = config_.features;
    return toml_.read_keys(
        *table, {{"memacct",
                  [this, &features](const toml::node& one) {
                    return read_feature(
                        one, "memacct",
                        {{"audit_log", toml_.boolean(&features.audit_log)},
                         {"force_polling", unused("features.memacct.force_polling",
                                                  "memory is counted where it is allocated")}});
                  }},
                 {"context-share", [this, &features](const toml::node& one) {
                    return read_feature(
                        one, "context-share",
                        {{"default_socket", [this, &features](const toml::node& word) {
                            const std::string text = TomlReader::text_of(word);
                            if (text != "on" && text != "off") {
                              return toml_.expected(word, "\"on\" or \"off\"");
                            }
                            features.shares_default_socket = text == "on";
                            return Status();
                          }}});
                  }}});
  }

  Status read_compute_policy(const toml::node& value) const {
    const toml::table* table = value.as_table();
    if (table == nullptr) return toml_.expected(value, "a table, [compute_policy]");
    const char* const reason = "clients of a server share a context, which is not sliced";
    return toml_.read_keys(
        *table,
        {{"timeslice",
          [this, reason](const toml::node& word) {
            const auto known = std::ranges::find(kTimeslices, TomlReader::text_of(word));
            if (known == std::end(kTimeslices)) {
              return toml_.expected(word, "\"default\", \"short\", \"medium\" or \"long\"");
            }
            note("compute_policy.timeslice", reason);
            return Status();
          }},
         {"timeslice_yield_level", unused("compute_policy.timeslice_yield_level", reason)}});
  }

 private:
  using Key = TomlReader::Key;
  using ReadTable = std::function<Status(const std::string& name, const toml::table& table)>;

  Status for_each_table(const toml::node& value, const std::string& what,
                        const ReadTable& read) const {
    const toml::table* tables = value.as_table();
    if (tables == nullptr) return toml_.expected(value, "tables, [" + what + "]");
    for (const auto& [key, one] : *tables) {
      const toml::table* table = one.as_table();
      if (table == nullptr) return toml_.expected(one, "a table, [" + what + "]");
      const std::string name(key.str());
      if (!names_a_share(name)) {
        return toml_.error_at(key.source().begin, fault_of_name("server or namespace", name));
      }
      OPENMPS_RETURN_IF_ERROR(read(name, *table));
    }
    return Status();
  }

  // Calls `read` with each table of an array of tables.
  Status for_each_row(const toml::node& value, const std::string& what,
                      const std::function<Status(const toml::table&)>& read) const {
    const toml::array* rows = value.as_array();
    if (rows == nullptr) return toml_.expected(value, "tables, [[" + what + "]]");
    for (const toml::node& one : *rows) {
      if (!one.is_table()) return toml_.expected(one, "a table, [[" + what + "]]");
      OPENMPS_RETURN_IF_ERROR(read(*one.as_table()));
    }
    return Status();
  }

  void note(std::string_view key, std::string_view reason) const {
    config_.notes.push_back(std::string(key) + " has no effect: " + std::string(reason));
  }
  std::function<Status(const toml::node&)> unused(std::string key, std::string reason) const {
    return [this, key = std::move(key), reason = std::move(reason)](const toml::node&) {
      note(key, reason);
      return Status();
    };
  }
  Status read_feature(const toml::node& value, const std::string& name,
                      std::vector<Key> keys) const {
    const toml::table* table = value.as_table();
    if (table == nullptr) return toml_.expected(value, "a table, [features." + name + "]");
    keys.push_back({"enabled", [this, name](const toml::node& one) {
                      const auto is_on = one.value_exact<bool>();
                      if (!is_on) return toml_.expected(one, "true or false");
                      if (!*is_on) note("features." + name + ".enabled", "it is always on");
                      return Status();
                    }});
    return toml_.read_keys(*table, keys);
  }

  // The limits of a namespace: those of [[groups]], memory by the interface's name for it, and
  // guaranteed memory also in the interface's notation.
  std::vector<Key> limit_keys(Limits* limits) const {
    std::vector<Key> keys = toml_.limit_keys(limits, true);
    const auto guaranteed =
        std::ranges::find(keys, wire::info_of(wire::Limit::kGuaranteedMemory).name, &Key::name);
    guaranteed->read =
        [by_device = guaranteed->read,
         by_text = memory(wire::Limit::kGuaranteedMemory, limits)](const toml::node& value) {
          return value.is_string() ? by_text(value) : by_device(value);
        };
    keys.push_back({"pinned_memory_limit", memory(wire::Limit::kMemory, limits)});
    return keys;
  }
  std::function<Status(const toml::node&)> memory(wire::Limit limit, Limits* limits) const {
    return [this, limit, limits](const toml::node& value) {
      if (read_memory_limits(TomlReader::text_of(value), limit, limits)) return Status();
      return toml_.expected(value, "a size like \"4G\", or sizes by device like \"0=4G,1=512M\"");
    };
  }

  Status read_server(const std::string& name, const toml::table& table) const {
    NamedServer server{name, system_user(user_of_server_name(name).value_or(geteuid()))};
    GroupRule own{.name = kDefaultNamespace};
    std::vector<Key> keys = {
        {"uid",
         [&](const toml::node& value) {
           const auto uid = value.value_exact<int64_t>();
           if (!uid || *uid < 0 || *uid >= int64_t{UINT32_MAX}) {
             return toml_.expected(value, "the number of a user");
           }
           server.user = system_user(static_cast<uid_t>(*uid));
           return Status();
         }},
        {"allowed_devices",
         [&](const toml::node& value) { return read_devices(value, &server.devices); }},
        {"locality_domains",
         unused("servers." + name + ".locality_domains", "GPUs are shared whole")},
        {"timeslice_pct", unused("servers." + name + ".timeslice_pct",
                                 "servers take turns as the driver lets them")},
        {"devices",
         [&](const toml::node& value) {
           return for_each_row(value, "servers." + name + ".devices",
                               [&](const toml::table& row) { return read_device(name, row); });
         }},
        {"namespaces", [&](const toml::node& value) {
           return for_each_table(value, "servers." + name + ".namespaces.NAME",
                                 [&](const std::string& which, const toml::table& one) {
                                   GroupRule rule{.name = which};
                                   if (which == kDefaultNamespace) rule.limits = own.limits;
                                   OPENMPS_RETURN_IF_ERROR(read_namespace(one, &rule));
                                   server.namespaces.insert_or_assign(which, std::move(rule));
                                   return Status();
                                 });
         }}};
    std::ranges::move(limit_keys(&own.limits), std::back_inserter(keys));
    OPENMPS_RETURN_IF_ERROR(toml_.read_keys(table, keys));
    const auto [entry, is_new] = server.namespaces.try_emplace(kDefaultNamespace, own);
    if (!is_new) entry->second.limits = overlay(own.limits, entry->second.limits);
    OPENMPS_RETURN_IF_ERROR(toml_.check_limits(table, entry->second.limits));
    NamedServers check(geteuid());
    if (const Status fits = check.add(server); !fits.ok()) {
      return toml_.error_at(table.source().begin, fits.message());
    }
    config_.servers.insert_or_assign(name, std::move(server));
    return Status();
  }

  Status read_namespace(const toml::table& table, GroupRule* rule) const {
    std::vector<Key> keys = {
        {"cgroup",
         [&](const toml::node& value) {
           const auto cgroup = cgroup_of_directory(TomlReader::text_of(value));
           if (!cgroup) return toml_.expected(value, "a directory below /sys/fs/cgroup");
           rule->cgroup = *cgroup;
           return Status();
         }},
        {"cgroup_depth",
         [&](const toml::node& value) {
           const auto depth = value.value_exact<int64_t>();
           if (!depth || *depth < 0 || *depth > kMostDepth) {
             return toml_.expected(
                 value, format_text("a number of levels, 0 to %d", static_cast<int>(kMostDepth)));
           }
           rule->cgroup_depth = static_cast<uint32_t>(*depth);
           return Status();
         }},
        {"quality",
         [&](const toml::node& value) {
           const auto quality = quality_of_text(TomlReader::text_of(value));
           if (quality) rule->quality = *quality;
           return quality ? Status()
                          : toml_.expected(value, "\"latency\", \"normal\" or \"best-effort\"");
         }},
        {"user",
         [&](const toml::node& value) {
           rule->user = toml_.user_of(TomlReader::text_of(value));
           if (rule->user) return Status();
           return toml_.expected(value, "the name or number of a user, in quotation marks");
         }},
        {"devices", [&](const toml::node& value) {
           return for_each_row(value, "devices", [&](const toml::table& row) {
             std::string uuid;
             std::string partition;
             OPENMPS_RETURN_IF_ERROR(toml_.read_keys(
                 row,
                 {{"uuid", device(&uuid)}, {"sm_partition", share_name("partition", &partition)}}));
             if (uuid.empty()) return toml_.expected(row, "a device with its uuid");
             if (!partition.empty()) rule->partitions[uuid] = partition;
             return Status();
           });
         }}};
    std::ranges::move(limit_keys(&rule->limits), std::back_inserter(keys));
    OPENMPS_RETURN_IF_ERROR(toml_.read_keys(table, keys));
    return toml_.check_limits(table, rule->limits);
  }

  // A table of [[servers.NAME.devices]]: its partitions.
  Status read_device(const std::string& server, const toml::table& table) const {
    std::string uuid;
    std::vector<PartitionRule> partitions;
    const auto read_partitions = [&](const toml::node& value) {
      return for_each_row(value, "servers.NAME.devices.sm_partitions", [&](const toml::table& row) {
        PartitionRule& rule = partitions.emplace_back();
        rule.server = server;
        std::vector<Key> keys = {{"name", share_name("partition", &rule.name)},
                                 {"include_remainder", toml_.boolean(&rule.includes_remainder)}};
        std::ranges::move(toml_.chunk_keys(&rule), std::back_inserter(keys));
        return toml_.read_keys(row, keys);
      });
    };
    OPENMPS_RETURN_IF_ERROR(
        toml_.read_keys(table, {{"uuid", device(&uuid)}, {"sm_partitions", read_partitions}}));
    if (uuid.empty()) return toml_.expected(table, "a device with its uuid");
    for (PartitionRule& rule : partitions) {
      rule.device = uuid;
      if (rule.name.empty() || rule.chunks == 0) {
        return toml_.expected(table, "partitions with name and chunks");
      }
      OPENMPS_RETURN_IF_ERROR(toml_.check_chunks(table, rule));
      const auto is_same = [&rule](const PartitionRule& other) {
        return other.id() == rule.id() && other.device == rule.device;
      };
      if (std::ranges::any_of(config_.partitions, is_same)) {
        return toml_.expected(table, "partition " + rule.name + " once");
      }
      config_.partitions.push_back(rule);
    }
    return Status();
  }

  std::function<Status(const toml::node&)> device(std::string* target) const {
    return [this, target](const toml::node& value) {
      *target = TomlReader::text_of(value);
      if (names_a_device(*target)) return Status();
      return toml_.expected(value, "a device: its UUID, \"GPU-...\", or its number");
    };
  }
  std::function<Status(const toml::node&)> share_name(std::string what, std::string* target) const {
    return [this, what = std::move(what), target](const toml::node& value) {
      *target = TomlReader::text_of(value);
      if (names_a_share(*target)) return Status();
      return toml_.error_at(value.source().begin, fault_of_name(what, *target));
    };
  }
  Status read_devices(const toml::node& value, std::vector<std::string>* devices) const {
    std::string text = TomlReader::text_of(value);
    std::ranges::replace(text, ',', ' ');
    *devices = split_words(text);
    const bool is_right = !devices->empty() && std::ranges::all_of(*devices, names_a_device);
    return is_right ? Status() : toml_.expected(value, "devices, like \"GPU-...,GPU-...\"");
  }

  const TomlReader& toml_;
  Config& config_;
};

}  // namespace

std::vector<TomlReader::Key> keys_of_v3(const TomlReader& toml, Config* config) {
  const auto reader = std::make_shared<const ServersReader>(toml, config);
  return {{"schema_version",
           [&toml](const toml::node& value) {
             if (TomlReader::text_of(value) == kSchemaVersion) return Status();
             return toml.expected(value, "\"" + std::string(kSchemaVersion) + "\"");
           }},
          {"servers", [reader](const toml::node& value) { return reader->read_servers(value); }},
          {"features", [reader](const toml::node& value) { return reader->read_features(value); }},
          {"compute_policy",
           [reader](const toml::node& value) { return reader->read_compute_policy(value); }}};
}

}  // namespace openmps::control
