// SPDX-License-Identifier: Apache-2.0
// See snapshot.h.
#include "observe/snapshot.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>
#include <utility>

#include "base/clock.h"
#include "wire/control_call.h"
#include "wire/daemon_search.h"

namespace openmps::observe {
namespace {

template <typename Number>
void read(const nlohmann::json& from, const char* name, Number* to) {
  *to = from.at(name).get<Number>();
}

void read_if_known(const nlohmann::json& from, const char* name, std::string* to) {
  if (!from.at(name).is_null()) read(from, name, to);
}

// Reads an array with exactly one element per bin; another length means other bins.
template <size_t count>
void read_bins(const nlohmann::json& from, const char* name, std::array<uint64_t, count>* to) {
  const nlohmann::json& list = from.at(name);
  if (list.size() != count) {
    throw nlohmann::json::other_error::create(
        501, std::string(name) + " has " + std::to_string(list.size()) + " bins", &list);
  }
  *to = list.get<std::array<uint64_t, count>>();
}

Use read_use(const nlohmann::json& usage) {
  Use use;
  read(usage, "age_ns", &use.age_ns);
  if (!usage.at("gpu_ns").is_null()) use.gpu_ns = usage.at("gpu_ns").get<uint64_t>();
  use.launches = usage.at("launches").get<uint64_t>() + usage.at("graph_kernels").get<uint64_t>();
  read(usage, "copies", &use.copies);
  read(usage.at("bytes"), "host_to_device", &use.to_device);
  read(usage.at("bytes"), "device_to_host", &use.from_device);
  read(usage, "blocks", &use.blocks);
  read(usage, "threads", &use.threads);
  read_bins(usage, "lengths", &use.lengths);
  read_bins(usage, "gap_ns", &use.gap_ns);
  read_bins(usage, "part_ns", &use.part_ns);
  for (const auto& from : usage.at("devices")) {
    Use::OnDevice& device = use.devices.emplace_back();
    read(from, "device", &device.ordinal);
    read(from, "gpu_ns", &device.gpu_ns);
    read(from, "sm_ns", &device.sm_ns);
    read(from, "compared_ns", &device.compared_ns);
    read(from, "alone_ns", &device.alone_ns);
    read(from, "memory_bytes", &device.memory_bytes);
    read(from, "host_bytes", &device.host_bytes);
    use.sm_ns += device.sm_ns;
  }
  for (const auto& [why, held] : usage.at("held").items()) {
    use.held.push_back({why, held.at("ns").get<uint64_t>(), held.at("standing").get<uint64_t>()});
  }
  return use;
}

Client read_client(const nlohmann::json& from) {
  Client client;
  read(from, "pid", &client.pid);
  read(from, "claimed_pid", &client.claimed_pid);
  read(from, "namespace", &client.pid_namespace);
  read(from, "id", &client.id);
  read(from, "server", &client.server);
  read(from, "device", &client.device);
  read(from, "command", &client.command);
  read(from, "ending", &client.ending);
  read(from, "worker_silent", &client.silent);
  read_if_known(from, "stays", &client.stays);
  read(from, "domain", &client.domain);
  read(from, "active_thread_percentage", &client.active_thread_percentage);
  read(from, "quality", &client.quality);
  read_if_known(from, "group", &client.group);
  read_if_known(from, "sm_partition", &client.sm_partition);
  read(from, "residence", &client.residence);
  read(from, "host_bytes", &client.host_bytes);
  if (!from.at("usage").is_null()) client.use = read_use(from.at("usage"));
  return client;
}

Device read_device(const nlohmann::json& from) {
  Device device;
  read(from, "ordinal", &device.ordinal);
  read(from, "uuid", &device.uuid);
  read(from, "name", &device.name);
  read(from, "sms", &device.sms);
  read(from, "chunk_sms", &device.sm_step);
  read(from, "memory_bytes", &device.memory_bytes);
  read(from, "pci", &device.pci);
  read_if_known(from, "compute_capability", &device.compute_capability);
  read_if_known(from, "cuda_version", &device.cuda_version);
  if (const auto& share = from.at("share"); !share.is_null()) {
    device.share.emplace();
    read(share, "sms", &device.share->sms);
    read(share, "memory_bytes", &device.share->memory_bytes);
  }
  return device;
}

// `list`: the text, or what it was parsed to.
template <typename Row, typename List, typename Read>
Result<std::vector<Row>> read_list(const List& list, Read&& read_row) {
  std::vector<Row> rows;
  try {
    if constexpr (std::is_same_v<List, nlohmann::json>) {
      for (const auto& row : list) rows.push_back(read_row(row));
    } else {
      for (const auto& row : nlohmann::json::parse(list)) rows.push_back(read_row(row));
    }
  } catch (const nlohmann::json::exception& error) {
    return Status(
        CUDA_ERROR_INVALID_VALUE,
        std::string("the daemon's list is not as this program knows it: ") + error.what());
  }
  return rows;
}

}  // namespace

Result<std::vector<Client>> read_clients(std::string_view json) {
  return read_list<Client>(json, read_client);
}

Result<std::vector<Device>> read_devices(std::string_view json) {
  return read_list<Device>(json, read_device);
}

Result<std::vector<Client>> clients_of(const nlohmann::json& list) {
  return read_list<Client>(list, read_client);
}

Result<std::vector<Device>> devices_of(const nlohmann::json& list) {
  return read_list<Device>(list, read_device);
}

std::string name_of(const Client& client) {
  return client.pid != 0 ? std::to_string(client.pid) : "id:" + std::to_string(client.id);
}

const char* residence_text(const Client& client) {
  if (client.residence == "host") return "on the host";
  return client.residence == "held" ? "suspended" : "";
}

Result<std::string> silent_servers(std::string_view json) {
  const auto read_line = [](const nlohmann::json& from) {
    if (from.at("state").get<std::string>() != "UNRESPONSIVE") return std::string();
    return "Server " + std::to_string(from.at("pid").get<uint64_t>()) + " of user " +
           std::to_string(from.at("uid").get<uint64_t>()) +
           " does not answer: its programs are not listed\n";
  };
  Result<std::vector<std::string>> lines = read_list<std::string>(json, read_line);
  if (!lines.ok()) return lines.status();
  std::string text;
  for (const std::string& line : *lines) text += line;
  return text;
}

const Client* find_again(const std::vector<Client>& clients, const Client& client) {
  const auto found = std::ranges::find_if(clients, [&client](const Client& other) {
    return other.server == client.server && other.id == client.id;
  });
  return found == clients.end() ? nullptr : &*found;
}

Result<DaemonLink> DaemonLink::connect() {
  Result<UniqueFd> socket = wire::find_daemon().socket;
  if (!socket.ok()) return socket.status();
  DaemonLink link;
  link.socket_ = std::move(socket).value();
  return link;
}

Result<std::string> DaemonLink::ask(std::string_view command) {
  Result<wire::ControlReply> reply = wire::call_control(socket_.get(), command);
  if (!reply.ok()) return reply.status();
  return std::move(reply->text);
}

Use::OnDevice on_device(const Use& use, uint32_t ordinal) {
  const auto found = std::ranges::find(use.devices, ordinal, &Use::OnDevice::ordinal);
  return found == use.devices.end() ? Use::OnDevice{.ordinal = ordinal} : *found;
}

Result<Snapshot> DaemonLink::look() {
  Snapshot snapshot;
  Result<std::string> answer = ask("ps --json");
  if (!answer.ok()) return answer.status();
  snapshot.at_ns = now_ns();
  Result<std::vector<Client>> clients = read_clients(*answer);
  if (!clients.ok()) return clients.status();
  snapshot.clients = std::move(clients).value();
  if (devices_.empty() && !snapshot.clients.empty()) {
    answer = ask("device_query --json");
    if (!answer.ok()) return answer.status();
    Result<std::vector<Device>> devices = read_devices(*answer);
    if (!devices.ok()) return devices.status();
    devices_ = std::move(devices).value();
  }
  snapshot.devices = devices_;
  return snapshot;
}

void report_no_daemon(const Status& status) {
  if (status.code() == CUDA_ERROR_NOT_PERMITTED) {
    fprintf(stderr, "openmps: %s\n", status.message().c_str());
  } else {
    // The text of the command shell.
    printf("Cannot find MPS control daemon process\n");
  }
}

}  // namespace openmps::observe
