// SPDX-License-Identifier: Apache-2.0
// The verbs of the modules `sm-partition`, `feature`, `memacct` and `context-share`.
#include <algorithm>

#include "base/text.h"
#include "control/module_command.h"

namespace openmps::control {
namespace {

// ---- sm-partition -------------------------------------------------------------------------------

// Calls `done` with the number of the device that --device names.
void with_named_device(const ModuleCall& call,
                       const std::function<void(uint32_t ordinal, const Device& device)>& done) {
  const auto wanted = call.command.option("device");
  if (!wanted) return call.fail("--device=<ordinal or UUID> is required");
  call.servers.with_devices([call, done, wanted = *wanted](const std::vector<Device>& devices,
                                                           const std::string& why_not) {
    if (devices.empty()) return call.fail("the devices are not known: " + why_not);
    const auto found = find_device(wanted, devices);
    if (!found || *found >= devices.size()) {
      return call.fail("there is no device '" + printable(wanted) + "'; see 'device list'");
    }
    done(*found, devices[*found]);
  });
}

// The server that --server names, which the caller may change. Nothing: the call is done.
std::optional<std::string> server_to_change(const ModuleCall& call) {
  const auto server = call.command.option("server");
  if (!server) {
    call.fail("--server=<name> is required");
    return std::nullopt;
  }
  if (call.servers.named().find(*server) == nullptr) {
    call.fail("server '" + printable(*server) + "' does not exist");
    return std::nullopt;
  }
  return call.may_change(*server) ? server : std::nullopt;
}

std::optional<bool> boolean_of(const std::string& text) {
  if (text == "true") return true;
  if (text == "false") return false;
  return std::nullopt;
}

void partition_create(const ModuleCall& call) {
  const auto server = server_to_change(call);
  if (!server) return;
  PartitionRule rule{.name = call.command.word(0), .device = "", .server = *server};
  if (const std::string fault = fault_of_name("partition", rule.name); !fault.empty()) {
    return call.fail(fault);
  }
  const std::string chunks = call.command.option("chunks").value_or("");
  const auto number = parse_unsigned(chunks, wire::kMaxSmGroups);
  if (!number || *number == 0) {
    return call.fail(format_text("--chunks=%s: expected a number, 1 to %u",
                                 printable(chunks).c_str(), wire::kMaxSmGroups));
  }
  rule.chunks = static_cast<uint32_t>(*number);
  const auto remainder = boolean_of(call.command.option("include-remainder").value_or("false"));
  if (!remainder) return call.fail("--include-remainder: expected true or false");
  rule.includes_remainder = *remainder;
  const auto shareable = boolean_of(call.command.option("shareable").value_or("false"));
  if (!shareable) return call.fail("--shareable: expected true or false");
  rule.is_shareable = *shareable;
  if (const auto text = call.command.option("max-chunks")) {
    const auto most = parse_unsigned(*text, wire::kMaxSmGroups);
    if (!most) {
      return call.fail(
          format_text("--max-chunks=%s: expected a number, 0 (the same as --chunks) "
                      "to %u",
                      printable(*text).c_str(), wire::kMaxSmGroups));
    }
    rule.most_chunks = static_cast<uint32_t>(*most);
  }
  with_named_device(call, [call, rule](uint32_t ordinal, const Device& device) {
    const NamedServer* const named = call.servers.named().find(rule.server);
    if (named == nullptr) return call.fail("server '" + rule.server + "' does not exist");
    const auto is_it = [&](const std::string& allowed) {
      return device.uuid.starts_with(allowed) || allowed == std::to_string(ordinal);
    };
    if (!named->devices.empty() && std::ranges::none_of(named->devices, is_it)) {
      return call.fail("device " + device.uuid + " is not among the devices of server '" +
                       rule.server + "'");
    }
    const auto made = call.servers.partitions().add(ordinal, device, rule);
    if (!made.ok()) return call.fail(made.status().message());
    call.servers.keep_state();
    call.done({format_text(
        "SM partition '%s' created on device %s (sm-count=%u)\n"
        "CUDA_MPS_SM_PARTITION=%s\n",
        rule.name.c_str(), device.uuid.c_str(), (*made)->place.sms, (*made)->name().c_str())});
  });
}

// No client is let in from here on, and the servers know those that are there.
void partition_remove(const ModuleCall& call) {
  const auto server = server_to_change(call);
  if (!server) return;
  with_named_device(call, [call, server = *server](uint32_t, const Device& device) {
    const std::string name = call.command.word(0);
    StaticPartitions::Partition* const partition =
        call.servers.partitions().find(server, device.uuid, name);
    if (partition == nullptr || partition->is_leaving) {
      return call.fail("SM partition '" + printable(name) + "' does not exist on device " +
                       device.uuid);
    }
    partition->is_leaving = true;
    call.servers.ask(
        call.servers.all(), wire::QueryKind::kPartitions,
        [call, server, uuid = device.uuid, name](const ServerPool::Answers& answers) {
          StaticPartitions::Partition* const there =
              call.servers.partitions().find(server, uuid, name);
          if (there == nullptr) return call.done({});
          const bool is_lost = std::ranges::any_of(answers, [&call](const auto& answer) {
            return !answer.second.answered && call.servers.is_there(answer.first);
          });
          if (is_lost || call.servers.has_clients(*there, answers)) {
            there->is_leaving = false;
            return call.fail(is_lost ? "a server does not answer"
                                     : "SM partition '" + name + "' has clients");
          }
          call.servers.partitions().remove(there);
          call.servers.keep_state();
          call.done({"SM partition '" + name + "' deleted from device " + uuid + "\n"});
        });
  });
}

void partition_list(const ModuleCall& call) {
  call.servers.with_devices([call](const std::vector<Device>& devices, const std::string& why_not) {
    if (devices.empty()) return call.fail("the devices are not known: " + why_not);
    const auto of_server = call.command.option("server");
    const auto of_device = call.command.option("device");
    const uint32_t wanted =
        find_device(of_device.value_or("0"), devices).value_or(wire::kMaxDevices);
    if (wanted >= devices.size()) {
      return call.fail("there is no device '" + printable(of_device.value_or("")) +
                       "'; see 'device list'");
    }
    Listing listing{{"server", "device", "name", "chunks", "sm-count", "include-remainder",
                     "status", "visible-uuid", "shareable", "max-chunks"}};
    listing.plain_columns = 8;  // as NVIDIA's daemon lists them
    for (size_t i = 0; i < devices.size(); ++i) {
      if (of_device && wanted != i) continue;
      uint32_t free = devices[i].chunks;
      for (const StaticPartitions::Partition& one : call.servers.partitions().all()) {
        if (one.uuid != devices[i].uuid) continue;
        free -= std::min(free, one.chunks);
        if (of_server && one.server != *of_server) continue;
        if (!one.server.empty() && !call.may_see(one.server)) continue;
        listing.rows.push_back({one.server.empty() ? kNoValue : one.server, one.uuid,
                                one.short_name(), std::to_string(one.chunks),
                                std::to_string(one.place.sms), one.has_remainder ? "true" : "false",
                                "created", one.name(), one.place.lends != 0 ? "true" : "false",
                                std::to_string(one.most_chunks)});
      }
      if (free == 0 || !call.command.has("all")) continue;
      listing.rows.push_back({kNoValue, devices[i].uuid, kNoValue, std::to_string(free),
                              std::to_string(free * devices[i].chunk_sms), "false", "unallocated",
                              kNoValue, kNoValue, kNoValue});
    }
    const auto fields = call.command.option("fields");
    const Result<Listing> shown = fields ? with_columns(listing, *fields) : listing;
    if (!shown.ok()) return call.fail(shown.status().message());
    call.show(*shown);
  });
}

// ---- Features -----------------------------------------------------------------------------------

struct Feature {
  std::string_view name;
  std::string_view covers;
};
constexpr Feature kFeatures[] = {
    {"memacct", "device memory of each client and namespace, counted and limited"},
    {"context-share", "clients of a server run side by side in one context per device"}};

const Feature* feature_of(const ModuleCall& call) {
  const std::string name = call.command.word(0);
  const auto found = std::ranges::find(kFeatures, name, &Feature::name);
  if (found != std::end(kFeatures)) return found;
  call.fail("unknown feature '" + printable(name) + "': memacct, context-share");
  return nullptr;
}

void feature_enable(const ModuleCall& call) {
  if (feature_of(call) != nullptr) call.done({});
}

void feature_disable(const ModuleCall& call) {
  const Feature* const feature = feature_of(call);
  if (feature != nullptr) call.fail(std::string(feature->name) + " is always on in OpenMPS");
}

void feature_describe(const ModuleCall& call) {
  const std::string wanted = call.command.word(0);
  Listing listing{{"feature", "state", "module", "covers"}};
  for (const Feature& feature : kFeatures) {
    if (!wanted.empty() && wanted != feature.name) continue;
    listing.rows.push_back({std::string(feature.name), "enabled (default)",
                            std::string(feature.name), std::string(feature.covers)});
  }
  if (listing.rows.empty()) {
    return call.fail("unknown feature '" + printable(wanted) + "': memacct, context-share");
  }
  call.show(listing);
}

bool is_operator(const ModuleCall& call) { return call.may_change(""); }

// "key=value", of two possible values. Nothing: the call is done.
std::optional<bool> switch_of(const ModuleCall& call, std::string_view key, std::string_view on,
                              std::string_view off) {
  const auto value = call.command.option(key);
  if (!value) {
    call.fail(std::string(key) + "=<" + std::string(on) + "|" + std::string(off) + "> is required");
    return std::nullopt;
  }
  if (*value == on) return true;
  if (*value == off) return false;
  call.fail(std::string(key) + "=" + printable(*value) + ": expected " + std::string(on) + " or " +
            std::string(off));
  return std::nullopt;
}

void set_memacct(const ModuleCall& call) {
  const auto is_on = switch_of(call, "audit_log", "true", "false");
  if (!is_on || !is_operator(call)) return;
  call.servers.features().audit_log = *is_on;
  call.servers.keep_state();
  call.done({});
}

void describe_memacct(const ModuleCall& call) {
  call.show(
      {{"key", "value"}, {{"audit_log", call.servers.features().audit_log ? "true" : "false"}}});
}

void set_context_share(const ModuleCall& call) {
  const auto is_on = switch_of(call, "default_socket", "on", "off");
  if (!is_on || !is_operator(call)) return;
  call.servers.features().shares_default_socket = *is_on;
  call.servers.keep_state();
  call.done({});
}

void describe_context_share(const ModuleCall& call) {
  call.show({{"key", "value"},
             {{"default_socket", call.servers.features().shares_default_socket ? "on" : "off"}}});
}

}  // namespace

std::span<const ModuleVerb> partition_verbs() {
  static const ModuleVerb kRows[] = {
      {.module = "sm-partition",
       .verb = "create",
       .words = {"name"},
       .options = {{"server", "<name>", "Whose clients may be in it"},
                   {"device", "<device>", "Ordinal or UUID"},
                   {"chunks", "<n>", "How many chunks of SMs"},
                   {"include-remainder", "<bool>", "Also the SMs that fill no chunk"},
                   {"shareable", "<bool>", "Lends its SMs while its clients have no work", true},
                   {"max-chunks", "<n>",
                    "Up to how many it grows by what others lend; default: its own"}},
       .run = partition_create,
       .help = "Keeps SMs for the clients that name the partition in CUDA_MPS_SM_PARTITION"},
      {.module = "sm-partition",
       .verb = "delete",
       .words = {"name"},
       .options = {{"server", "<name>", "Its server"}, {"device", "<device>", "Ordinal or UUID"}},
       .run = partition_remove,
       .help = "Removes a partition that has no clients"},
      {.module = "sm-partition",
       .verb = "list",
       .options = {{"server", "<name>", "Partitions of that server"},
                   {"device", "<device>", "Partitions of that device"},
                   {"all", "", "Also what is in no partition"},
                   {"fields", "<list>",
                    "These columns only; also shareable and max-chunks, which are in JSON anyway"},
                   {"format", "<format>", "table, csv or json; ,noheader"}},
       .run = partition_list,
       .help = "Partitions, and the values of CUDA_MPS_SM_PARTITION (visible-uuid)"}};
  return kRows;
}

std::span<const ModuleVerb> feature_verbs() {
  const static ModuleOption kFormat{"format", "<format>", "table, csv or json; ,noheader"};
  static const ModuleVerb kRows[] = {
      {.module = "feature",
       .verb = "enable",
       .words = {"name"},
       .run = feature_enable,
       .help = "Accepted: both features are always on"},
      {.module = "feature",
       .verb = "disable",
       .words = {"name"},
       .run = feature_disable,
       .help = "Refused: both features are always on"},
      {.module = "feature",
       .verb = "describe",
       .optional = {"name"},
       .options = {kFormat},
       .run = feature_describe,
       .help = "The features memacct and context-share"},
      {.module = "memacct",
       .verb = "set",
       .options = {{"audit_log", "<bool>", "Kept and shown; control.log names clients anyway"}},
       .run = set_memacct,
       .help = "Settings of memory accounting"},
      {.module = "memacct",
       .verb = "describe",
       .options = {kFormat},
       .run = describe_memacct,
       .help = "Settings of memory accounting"},
      {.module = "context-share",
       .verb = "set",
       .options = {{"default_socket", "<on|off>", "Kept and shown, without effect"}},
       .run = set_context_share,
       .help = "Settings of context sharing"},
      {.module = "context-share",
       .verb = "describe",
       .options = {kFormat},
       .run = describe_context_share,
       .help = "Settings of context sharing"}};
  return kRows;
}

}  // namespace openmps::control
