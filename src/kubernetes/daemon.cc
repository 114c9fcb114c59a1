// SPDX-License-Identifier: Apache-2.0
// See daemon.h.
#include "kubernetes/daemon.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/text.h"
#include "wire/control_call.h"
#include "wire/daemon_search.h"

namespace openmps::kubernetes {
namespace {

// The daemon answers when the server's worker is ready, which may take it 60 s and then, tried
// again, 120 s (docs/architecture.md).
constexpr int kAnswerLimitMs = 180'000;

// A daemon that is there is asked for what it has once in so long, which makes the server again if
// that has ended; sooner if the last answer was none.
constexpr uint64_t kAskNs = 60'000 * kNsPerMs;
constexpr uint64_t kAskAgainNs = 5'000 * kNsPerMs;

// The text of a field of an object; "": there is none.
std::string text_of(const nlohmann::json& object, const char* name) {
  const auto found = object.is_object() ? object.find(name) : object.end();
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

// "Error: namespace 'a' ...\n" without what is around it.
std::string words_of(std::string_view answer) {
  constexpr std::string_view kStart = "Error: ";
  if (answer.starts_with(kStart)) answer.remove_prefix(kStart.size());
  while (answer.ends_with('\n')) answer.remove_suffix(1);
  return answer.empty() ? "the daemon refuses without a word" : printable(answer);
}

Result<std::string> ask(const std::string& command) {
  const Result<UniqueFd> daemon = wire::find_daemon().socket;
  if (!daemon.ok()) return daemon.status();
  OPENMPS_RETURN_IF_ERROR(wire::send_command(daemon->get(), command));
  pollfd answer{daemon->get(), POLLIN, 0};
  int ready = 0;
  do {
    ready = poll(&answer, 1, kAnswerLimitMs);
  } while (ready < 0 && errno == EINTR);
  if (ready == 0) return Status(CUDA_ERROR_TIMEOUT, "the daemon does not answer to: " + command);
  Result<wire::ControlReply> reply = wire::receive_reply(daemon->get());
  if (!reply.ok()) {
    return Status(CUDA_ERROR_MPS_CONNECTION_FAILED, reply.status().message());
  }
  if (reply->exit_status != 0) {
    return Status(CUDA_ERROR_INVALID_VALUE, words_of(reply->text));
  }
  return std::move(reply->text);
}

Status ask_to(const std::string& command) { return ask(command).status(); }

Result<bool> has_server(const std::string& name) {
  const Result<std::string> answer = ask("server list --format=json");
  if (!answer.ok()) return answer.status();
  const auto list = nlohmann::json::parse(*answer, nullptr, false);
  if (!list.is_array()) {
    return Status(CUDA_ERROR_INVALID_VALUE, "the daemon's list of servers is none");
  }
  return std::ranges::any_of(
      list, [&name](const nlohmann::json& server) { return text_of(server, "name") == name; });
}

}  // namespace

Status Daemon::make_server() const {
  const Result<bool> there = has_server(server_);
  if (!there.ok()) return there.status();
  if (*there) return Status();
  Status made = ask_to("server create " + server_);
  if (made.ok()) return made;
  // Another program may have made it meanwhile.
  const Result<bool> now = has_server(server_);
  return now.ok() && *now ? Status() : made;
}

Result<std::vector<observe::Device>> Daemon::devices() const {
  OPENMPS_RETURN_IF_ERROR(make_server());
  const Result<std::string> answer = ask("device_query --json");
  if (!answer.ok()) return answer.status();
  return observe::read_devices(*answer);
}

Result<std::vector<observe::Share>> Daemon::namespaces() const {
  const Result<std::string> answer = ask(observe::kListSharesCommand);
  if (!answer.ok()) return answer.status();
  Result<std::vector<observe::Share>> shares = observe::read_shares(*answer);
  if (!shares.ok()) return shares.status();
  std::erase_if(*shares, [this](const observe::Share& share) { return share.server != server_; });
  return shares;
}

Result<std::string> Daemon::find(const std::string& name) const {
  const Result<std::vector<observe::Share>> shares = namespaces();
  if (!shares.ok()) return shares.status();
  const auto found = std::ranges::find(*shares, name, &observe::Share::name);
  return found == shares->end() ? std::string() : found->directory;
}

Result<std::string> Daemon::make(const Grant& grant,
                                 const std::vector<observe::Device>& node) const {
  OPENMPS_RETURN_IF_ERROR(make_server());
  Result<std::string> directory = find(grant.name);
  if (!directory.ok()) return directory.status();
  const std::string rest = grant.name + " --server=" + server_ + options_of(grant, node);
  if (!directory->empty()) {
    OPENMPS_RETURN_IF_ERROR(ask_to("namespace set " + rest));
    return directory;
  }
  if (grant.is_exclusive) OPENMPS_RETURN_IF_ERROR(make_partitions(grant, node));
  OPENMPS_RETURN_IF_ERROR(ask_to("namespace create " + rest + first_options_of(grant)));
  Result<std::string> made = find(grant.name);
  if (made.ok() && made->empty()) {
    return Status(CUDA_ERROR_INVALID_VALUE, "namespace " + grant.name + " has gone again");
  }
  return made;
}

Status Daemon::remove(const std::string& name) const {
  return ask_to("namespace delete " + name + " --server=" + server_);
}

Status Daemon::end(const std::string& name) const {
  const Result<std::string> directory = find(name);
  if (!directory.ok()) return directory.status();
  if (!directory->empty()) {
    OPENMPS_RETURN_IF_ERROR(
        ask_to("namespace delete " + name + " --server=" + server_ + " --force"));
  }
  const Result<std::vector<Partition>> all = partitions();
  if (!all.ok()) return all.status();
  for (const Partition& partition : *all) {
    if (partition.name != name) continue;
    OPENMPS_RETURN_IF_ERROR(ask_to("sm-partition delete " + name + " --server=" + server_ +
                                   " --device=" + partition.device));
  }
  return Status();
}

Result<std::vector<Daemon::Partition>> Daemon::partitions() const {
  const Result<std::string> answer =
      ask("sm-partition list --server=" + server_ + " --format=json");
  if (!answer.ok()) return answer.status();
  const auto list = nlohmann::json::parse(*answer, nullptr, false);
  if (!list.is_array()) {
    return Status(CUDA_ERROR_INVALID_VALUE, "the daemon's list of partitions is none");
  }
  std::vector<Partition> partitions;
  for (const auto& row : list) partitions.push_back({text_of(row, "device"), text_of(row, "name")});
  return partitions;
}

Status Daemon::make_partitions(const Grant& grant, const std::vector<observe::Device>& node) const {
  const Result<std::vector<Partition>> all = partitions();
  if (!all.ok()) return all.status();
  for (const observe::Device& device : node) {
    const auto part = grant.parts.find(device.uuid);
    if (part == grant.parts.end() || device.sm_step == 0) continue;
    const bool is_there = std::ranges::any_of(*all, [&](const Partition& partition) {
      return partition.name == grant.name && partition.device == device.uuid;
    });
    if (is_there) continue;
    OPENMPS_RETURN_IF_ERROR(ask_to(
        "sm-partition create " + grant.name + " --server=" + server_ + " --device=" + device.uuid +
        " --chunks=" + std::to_string(part->second.sms / device.sm_step)));
  }
  return Status();
}

DaemonWatch::Sight DaemonWatch::look() {
  if (socket_.valid()) {
    // The daemon says nothing by itself.
    pollfd there{socket_.get(), POLLIN, 0};
    if (poll(&there, 1, 0) == 0) return now_ns() < next_ns_ ? Sight::kKnown : Sight::kToBeAsked;
    socket_.reset();
  }
  Result<UniqueFd> socket = wire::find_daemon().socket;
  if (!socket.ok()) {
    reason_ = socket.status().message();
    return Sight::kAway;
  }
  socket_ = std::move(socket).value();
  return Sight::kToBeAsked;
}

void DaemonWatch::answered(bool good) { next_ns_ = now_ns() + (good ? kAskNs : kAskAgainNs); }

}  // namespace openmps::kubernetes
