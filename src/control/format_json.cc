// SPDX-License-Identifier: Apache-2.0
// The JSON forms of command output; the only file that includes nlohmann-json.
#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>

#include "control/format.h"
#include "control/listing.h"
#include "wire/client_limits.h"
#include "wire/command_info.h"

namespace openmps::control {
namespace {

// A client's command line may not be UTF-8: invalid bytes are replaced.
std::string text_of(const nlohmann::ordered_json& json) {
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

// Names of the enumerators of wire/layout.h and of CUDA's wait conditions, by number.
constexpr const char* kExecutorWaits[] = {"", "quiet moment", "held back", "print turn"};
constexpr const char* kHindrances[] = {"",      "submits",       "runs",         "outlasts",
                                       "value", "host function", "quiet moment", "print turn"};
constexpr const char* kConditions[] = {"geq", "eq", "and", "nor"};
constexpr const char* kReturns[] = {
    "", "device memory", "host memory", "array", "green context", "image", "code"};
constexpr const char* kReturnWaits[] = {"streams", "quiet moment"};

constexpr const char* kHeld[] = {"value",      "event",         "streams",    "window",
                                 "connection", "quiet moment",  "print turn", "memory",
                                 "share",      "host function", "room"};
static_assert(std::size(kHeld) == wire::kHeldReasons);

// "" for a number without a name, which only a broken peer sends.
template <size_t count>
const char* word(const char* const (&words)[count], uint32_t number) {
  return number < count ? words[number] : "";
}

constexpr const char* kQualities[] = {"", "latency", "normal", "best-effort"};
constexpr const char* kResidences[] = {"device", "host", "held"};

const char* residence_of(wire::Residence residence) {
  return word(kResidences, static_cast<uint32_t>(residence));
}

// A client's use of each device that it has used.
nlohmann::ordered_json devices_of(const wire::Usage& usage) {
  using wire::DeviceUse;
  auto list = nlohmann::ordered_json::array();
  for (uint32_t device = 0; device < wire::kUsageDevices; ++device) {
    const auto use = [&](DeviceUse what) { return usage.use(device, what); };
    if (use(DeviceUse::kMostNs) == 0 && usage.memory[device] == 0) continue;
    list.push_back({{"device", device},
                    {"gpu_ns", use(DeviceUse::kNs)},
                    {"sm_ns", use(DeviceUse::kSmNs)},
                    {"compared_ns", use(DeviceUse::kComparedNs)},
                    {"alone_ns", use(DeviceUse::kAloneNs)},
                    {"memory_bytes", usage.memory[device]},
                    {"host_bytes", usage.on_host[device]}});
  }
  return list;
}

// null: there are no figures.
nlohmann::ordered_json usage_of(const wire::Usage& usage) {
  using wire::DeviceUse;
  using wire::UsageCount;
  if (usage.is_known == 0) return nullptr;
  const auto count = [&](UsageCount what) { return usage.count(what); };
  const auto time = [&](DeviceUse what) -> nlohmann::ordered_json {
    if (usage.is_timed == 0) return nullptr;
    return usage.use(what);
  };
  auto held = nlohmann::ordered_json::object();
  for (size_t i = 0; i < wire::kHeldReasons; ++i) {
    held[kHeld[i]] = {
        {"times", usage.held_times[i]}, {"ns", usage.held_ns[i]}, {"standing", usage.held_now[i]}};
  }
  return {{"age_ns", usage.age_ns},
          {"gpu_ns", time(DeviceUse::kNs)},
          {"gpu_ns_least", time(DeviceUse::kLeastNs)},
          {"gpu_ns_most", time(DeviceUse::kMostNs)},
          {"sm_ns", time(DeviceUse::kSmNs)},
          {"launches", count(UsageCount::kLaunches)},
          {"batched_launches", count(UsageCount::kBatched)},
          {"graph_launches", count(UsageCount::kGraphs)},
          {"graph_kernels", count(UsageCount::kGraphKernels)},
          {"copies", count(UsageCount::kCopies)},
          {"fills", count(UsageCount::kFills)},
          {"images_loaded", count(UsageCount::kImagesMade)},
          {"images_found", count(UsageCount::kImagesFound)},
          {"bytes",
           {{"host_to_device", count(UsageCount::kHostToDevice)},
            {"device_to_host", count(UsageCount::kDeviceToHost)},
            {"device_to_device", count(UsageCount::kDeviceToDevice)},
            {"host_to_host", count(UsageCount::kHostToHost)},
            {"filled", count(UsageCount::kFilled)}}},
          {"blocks", count(UsageCount::kBlocks)},
          {"threads", count(UsageCount::kThreads)},
          {"beyond_limit", count(UsageCount::kBeyondLimit)},
          {"lengths", usage.lengths},
          {"gap_ns", usage.gap_ns},
          {"part_ns", usage.part_ns},
          {"devices", devices_of(usage)},
          {"held", held}};
}

// The limits of a device, or those that are not per device. null: not stated.
nlohmann::ordered_json limits_of(const wire::ClientLimits& limits, std::optional<uint32_t> device) {
  auto all = nlohmann::ordered_json::object();
  for (const wire::LimitInfo& info : wire::limit_table()) {
    if (info.is_per_device != device.has_value()) continue;
    nlohmann::ordered_json& shown = all[std::string(info.json)];
    wire::visit_limit(limits, info.limit, device.value_or(0), [&](auto value) { shown = value; });
    if (info.notation == wire::Notation::kWord) shown = info.text(shown.get<wire::LimitValue>());
  }
  return all;
}

nlohmann::ordered_json text_or_null(const std::string& text) {
  return text.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(text);
}

// "13.0" of 13000, which has 1000 for each major and 10 for each minor version. null: not known.
nlohmann::ordered_json version_or_null(uint32_t number, uint32_t major, uint32_t minor) {
  if (number == 0) return nullptr;
  return std::to_string(number / major) + "." + std::to_string(number % major / minor);
}

}  // namespace

std::string format_ps_json(const std::vector<ClientLine>& clients) {
  auto list = nlohmann::ordered_json::array();
  for (const ClientLine& client : clients) {
    list.push_back({{"pid", client.pid},
                    {"id", client.id},
                    {"server", client.server},
                    {"device", client.device_uuid},
                    {"namespace", client.namespace_inode},
                    {"claimed_pid", client.claimed_pid},
                    {"command", client.command},
                    {"ending", client.ending},
                    {"worker_silent", client.silent},
                    {"moves", client.moves},
                    {"stays", text_or_null(client.stays)},
                    {"domain", client.domain},
                    {"active_thread_percentage", client.active_thread_percentage},
                    {"quality", word(kQualities, static_cast<uint32_t>(client.quality))},
                    {"group", text_or_null(client.group)},
                    {"sm_partition", text_or_null(client.partition)},
                    {"residence", residence_of(client.residence)},
                    {"host_bytes", client.host_bytes()},
                    {"usage", usage_of(client.usage)}});
  }
  return text_of(list);
}

std::string format_totals_json(const std::vector<TotalsLine>& totals) {
  using wire::DeviceUse;
  auto list = nlohmann::ordered_json::array();
  for (const TotalsLine& line : totals) {
    auto devices = nlohmann::ordered_json::array();
    for (const TotalsLine::OnDevice& device : line.devices) {
      const auto use = [&device](DeviceUse what) { return device.uses[static_cast<size_t>(what)]; };
      devices.push_back({{"device", device.uuid},
                         {"gpu_ns", use(DeviceUse::kNs)},
                         {"gpu_ns_least", use(DeviceUse::kLeastNs)},
                         {"gpu_ns_most", use(DeviceUse::kMostNs)},
                         {"sm_ns", use(DeviceUse::kSmNs)},
                         {"compared_ns", use(DeviceUse::kComparedNs)},
                         {"alone_ns", use(DeviceUse::kAloneNs)},
                         {"memory_bytes", device.memory},
                         {"host_bytes", device.on_host}});
    }
    nlohmann::ordered_json usage = usage_of(line.usage);
    if (usage.is_object()) {
      for (const auto& [name, what] :
           {std::pair("gpu_ns", DeviceUse::kNs), std::pair("gpu_ns_least", DeviceUse::kLeastNs),
            std::pair("gpu_ns_most", DeviceUse::kMostNs), std::pair("sm_ns", DeviceUse::kSmNs)}) {
        if (line.usage.is_timed != 0) usage[name] = line.use(what);
      }
      usage["devices"] = devices;
    }
    list.push_back({{"server", line.server},
                    {"group", text_or_null(line.group)},
                    {"sessions", line.sessions},
                    {"open", line.open},
                    {"usage", usage}});
  }
  return text_of(list);
}

std::string format_events_json(const std::vector<EventLine>& events,
                               const std::optional<History::Counts>& counts) {
  auto list = nlohmann::ordered_json::array();
  for (const EventLine& event : events) {
    list.push_back({{"number", event.number},
                    {"at_ns", event.at_ns},
                    {"server", event.server},
                    {"event", name_of(event.kind)},
                    {"result", static_cast<int>(event.result)},
                    {"pid", event.pid},
                    {"id", event.id},
                    {"command", event.command},
                    {"group", text_or_null(event.group)},
                    {"domain", event.domain},
                    {"text", event.text}});
  }
  nlohmann::ordered_json all = nlohmann::ordered_json::object();
  if (counts) {
    for (size_t i = 0; i < counts->size(); ++i) {
      all["counts"][name_of(static_cast<wire::EventKind>(i))] = (*counts)[i];
    }
  }
  all["events"] = list;
  return text_of(all);
}

std::string format_groups_json(const std::vector<GroupLine>& groups) {
  auto list = nlohmann::ordered_json::array();
  for (const GroupLine& group : groups) {
    auto devices = nlohmann::ordered_json::array();
    for (uint32_t i = 0; i < wire::kMaxDevices; ++i) {
      nlohmann::ordered_json limits = limits_of(group.limits, i);
      const bool has_none =
          std::ranges::all_of(limits, [](const auto& value) { return value == 0; });
      if (has_none && group.memory[i] == 0) continue;
      nlohmann::ordered_json device = {{"device", i}};
      device.update(limits);
      device["memory_bytes"] = group.memory[i];
      devices.push_back(device);
    }
    nlohmann::ordered_json line = {{"name", group.name},
                                   {"id", group.id},
                                   {"server", group.server},
                                   {"members", group.members}};
    line.update(limits_of(group.limits, std::nullopt));
    line["devices"] = devices;
    list.push_back(line);
  }
  return text_of(list);
}

std::string format_inspected_json(const Inspected& inspected) {
  const wire::SessionReport& r = inspected.report;
  auto waits = nlohmann::ordered_json::array();
  for (const wire::WaitRow& wait : inspected.waits) {
    switch (wait.kind) {
      case wire::WaitKind::kQueued:
        waits.push_back({{"kind", "queued"},
                         {"command", wire::name_of(static_cast<wire::Opcode>(wait.number))},
                         {"count", wait.have}});
        break;
      case wire::WaitKind::kReply:
        waits.push_back({{"kind", "reply"}, {"slot", wait.number}});
        break;
      case wire::WaitKind::kFence:
        waits.push_back({{"kind", "fence"},
                         {"stream", wait.stream},
                         {"slot", wait.number},
                         {"reached", wait.have},
                         {"promised", wait.want}});
        break;
      case wire::WaitKind::kHostFunction:
        waits.push_back({{"kind", "host function"}, {"slot", wait.number}});
        break;
      case wire::WaitKind::kHindrance:
        waits.push_back({{"kind", "hindrance"},
                         {"session", wait.number},
                         {"pid", wait.want},
                         {"stream", wait.stream},
                         {"why", word(kHindrances, wait.how)}});
        break;
      case wire::WaitKind::kValue:
        waits.push_back({{"kind", "value"},
                         {"stream", wait.stream},
                         {"stands_at_it", wait.number != 0},
                         {"address", wait.address},
                         {"bytes", wait.how % wire::kValueCondition},
                         {"condition", word(kConditions, wait.how / wire::kValueCondition)},
                         {"value", wait.want},
                         {"age_ns", wait.age_ns}});
        break;
      case wire::WaitKind::kReturn:
        waits.push_back({{"kind", "return"},
                         {"what", word(kReturns, wait.number)},
                         {"address", wait.address},
                         {"bytes", wait.have},
                         {"waits_for", word(kReturnWaits, wait.how)},
                         {"stream", wait.stream},
                         {"age_ns", wait.age_ns}});
        break;
    }
  }
  return text_of({{"pid", r.pid},
                  {"id", r.id},
                  {"ending", r.ending != 0},
                  {"status", r.status},
                  {"async_error", r.async_error},
                  {"ring_bytes", r.ring_bytes},
                  {"executed", r.executed},
                  {"executing", wire::name_of(static_cast<wire::Opcode>(r.opcode))},
                  {"executor_sleeps", r.sleeping != 0},
                  {"executor_waits_for", word(kExecutorWaits, static_cast<uint32_t>(r.wait))},
                  {"executor_waits_ns", r.wait_ns},
                  {"answered_later", r.later},
                  {"sleeping_threads", r.waiters},
                  {"value_waits", r.value_waits},
                  {"value_waits_age_ns", r.value_waits_age_ns},
                  {"held", r.held},
                  {"returns", r.returns},
                  {"residence", residence_of(inspected.residence)},
                  {"host_bytes", inspected.host_bytes},
                  {"waits", waits},
                  {"more_waits", r.more_waits}});
}

std::string format_devices_json(const std::vector<DeviceLine>& devices) {
  auto list = nlohmann::ordered_json::array();
  for (const auto& [device, ordinal, share] : devices) {
    nlohmann::ordered_json line = {
        {"ordinal", ordinal},
        {"pci", device.pci_bus_id},
        {"uuid", device.uuid},
        {"name", device.name},
        {"sms", device.sms},
        {"memory_bytes", device.memory_bytes},
        {"chunk_sms", device.chunk_sms},
        {"chunks", device.chunks},
        {"compute_capability", version_or_null(device.compute_capability, 10, 1)},
        {"cuda_version", version_or_null(device.cuda_version, 1000, 10)},
        {"share", nullptr}};
    if (share) line["share"] = {{"sms", share->sms}, {"memory_bytes", share->memory_bytes}};
    list.push_back(std::move(line));
  }
  return text_of(list);
}

std::string format_partitions_json(const std::vector<DevicePartitions>& devices) {
  auto list = nlohmann::ordered_json::array();
  for (const DevicePartitions& device : devices) {
    auto partitions = nlohmann::ordered_json::array();
    for (const DevicePartitions::Partition& partition : device.partitions) {
      partitions.push_back({{"name", device.uuid + "/" + partition.id},
                            {"id", partition.id},
                            {"chunks", partition.chunks},
                            {"sms", partition.chunks * device.chunk_sms},
                            {"clients", partition.has_clients},
                            {"shareable", partition.is_shareable},
                            {"max_chunks", std::max(partition.chunks, partition.most_chunks)}});
    }
    list.push_back({{"uuid", device.uuid},
                    {"chunk_sms", device.chunk_sms},
                    {"chunks", device.chunks},
                    {"used_chunks", device.used_chunks()},
                    {"partitions", partitions}});
  }
  return text_of(list);
}

std::string format_server_list_json(const std::vector<ServerLine>& servers) {
  auto list = nlohmann::ordered_json::array();
  for (const ServerLine& server : servers) {
    list.push_back(
        {{"pid", server.pid}, {"uid", server.uid}, {"name", server.name}, {"state", server.state}});
  }
  return text_of(list);
}

std::string json_of(const Listing& listing) {
  auto rows = nlohmann::ordered_json::array();
  for (const auto& row : listing.rows) {
    auto object = nlohmann::ordered_json::object();
    for (size_t i = 0; i < row.size(); ++i) object[listing.columns[i]] = row[i];
    rows.push_back(std::move(object));
  }
  return text_of(rows);
}

}  // namespace openmps::control
