// SPDX-License-Identifier: Apache-2.0
// See sample.h.
#include "exporter/sample.h"

#include <utility>

#include "base/clock.h"
#include "wire/daemon_search.h"

namespace openmps::exporter {

using nlohmann::json;

std::string Sample::server_name(uint64_t pid) const {
  for (const json& server : servers) {
    if (server.value("pid", uint64_t{0}) == pid) return server.value("name", "");
  }
  return std::to_string(pid);
}

std::shared_ptr<const Sample> Daemon::sample() {
  const MutexLock lock(mutex_);
  if (last_ != nullptr && now_ns() - last_->at_ns < kFreshMs * kNsPerMs) return last_;
  auto sample = std::make_shared<Sample>();
  if (Status read_all = read(sample.get()); !read_all.ok()) {
    *sample = Sample();
    sample->why_not = read_all.message();
    link_.reset();
    devices_ = nullptr;
  }
  sample->at_ns = now_ns();
  last_ = sample;
  return last_;
}

Result<wire::ControlReply> Daemon::command(std::string_view line) {
  // A connection of its own: the command may take as long as a client's work.
  wire::DaemonSearch found = wire::find_daemon();
  if (!found.socket.ok()) return found.socket.status();
  return wire::call_control(found.socket->get(), line);
}

Result<std::string> Daemon::ask(std::string_view line) {
  if (!link_) {
    Result<observe::DaemonLink> link = observe::DaemonLink::connect();
    if (!link.ok()) return link.status();
    link_ = std::move(link).value();
  }
  return link_->ask(line);
}

Result<json> Daemon::ask_json(std::string_view line) {
  const Result<std::string> text = ask(line);
  if (!text.ok()) return text.status();
  json parsed = json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (parsed.is_discarded()) {
    return Status(CUDA_ERROR_INVALID_VALUE, "the daemon's answer to " + std::string(line) +
                                                " is not as this program knows it");
  }
  return parsed;
}

Status Daemon::ask_into(std::string_view line, json* to) {
  Result<json> answer = ask_json(line);
  if (answer.ok()) *to = std::move(answer).value();
  return answer.status();
}

Status Daemon::read(Sample* sample) {
  OPENMPS_RETURN_IF_ERROR(ask_into("ps --json", &sample->clients));
  sample->snapshot.at_ns = now_ns();
  Result<std::vector<observe::Client>> rows = observe::clients_of(sample->clients);
  if (!rows.ok()) return rows.status();
  sample->snapshot.clients = std::move(rows).value();
  OPENMPS_RETURN_IF_ERROR(ask_into("get_server_list --json", &sample->servers));
  // The list of devices needs a server: without one the daemon would start one for it.
  if (devices_.empty() && !sample->servers.empty()) {
    OPENMPS_RETURN_IF_ERROR(ask_into("device_query --json", &devices_));
  }
  if (!devices_.empty()) {
    sample->devices = devices_;
    Result<std::vector<observe::Device>> devices = observe::devices_of(devices_);
    if (!devices.ok()) return devices.status();
    sample->snapshot.devices = std::move(devices).value();
  }
  OPENMPS_RETURN_IF_ERROR(ask_into("get_group_list --json", &sample->groups));
  OPENMPS_RETURN_IF_ERROR(ask_into("totals --json", &sample->totals));
  OPENMPS_RETURN_IF_ERROR(ask_into("events --json", &sample->events));
  // Only a daemon with -S has this command.
  if (Result<json> partitions = ask_json("lspart --json"); partitions.ok()) {
    sample->partitions = std::move(partitions).value();
  }
  for (const json& server : sample->servers) {
    const std::string name = server.value("name", "");
    json namespaces;
    if (!ask_into("namespace list --format=json --server=" + name, &namespaces).ok()) continue;
    for (json& one : namespaces) sample->namespaces.push_back(std::move(one));
  }
  return Status();
}

}  // namespace openmps::exporter
