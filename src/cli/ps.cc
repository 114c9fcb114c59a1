// SPDX-License-Identifier: Apache-2.0
// See ps.h.
#include "cli/ps.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "observe/figures.h"
#include "observe/rates.h"
#include "wire/handshake.h"

namespace openmps::cli {
namespace {

constexpr size_t kShortUuid = 12;  // "GPU-008cbaa3"

std::string line_of(const std::string& pid, const std::string& id, const std::string& server,
                    const std::string& device, const std::string& time, const std::string& share,
                    const std::string& sms, const std::string& launches, const std::string& to,
                    const std::string& from, const std::string& held, const std::string& survives,
                    const std::string& group, const std::string& command) {
  return format_text("%-9s %-6s %-9s %-13s %9s %6s %6s %10s %10s %10s  %-22s %-9s %-12s %s\n",
                     pid.c_str(), id.c_str(), server.c_str(), device.c_str(), time.c_str(),
                     share.c_str(), sms.c_str(), launches.c_str(), to.c_str(), from.c_str(),
                     held.c_str(), survives.c_str(), group.c_str(), command.c_str());
}

std::string row_text(const observe::Client& row, const observe::Client* before) {
  std::string command = observe::program_of(row.command) + (row.silent ? " (worker does not answer)"
                                                            : row.ending ? " (ending)"
                                                                         : "");
  const std::string residence = residence_text(row);
  if (!residence.empty()) command += " (" + residence + ")";
  if (row.pid == 0) {
    command += " (PID " + std::to_string(row.claimed_pid) + " by its own word)";
  }
  const std::string pid = name_of(row);
  const std::string id = std::to_string(row.id);
  const std::string server = std::to_string(row.server);
  const std::string device = row.device.substr(0, kShortUuid);
  const std::string group = observe::group_text(row.group);
  const std::string survives = row.stays.empty() ? "yes" : "no";
  if (!row.use) {
    return line_of(pid, id, server, device, "-", "-", "-", "-", "-", "-", "-", survives, group,
                   command);
  }
  const observe::Use& use = *row.use;
  const bool is_rate = before != nullptr && before->use;
  const observe::Use from = is_rate ? *before->use : observe::Use();
  const double s = std::max(observe::seconds(observe::since(use.age_ns, from.age_ns)), 1e-9);
  const auto amount = [&](uint64_t now, uint64_t then, const char* unit) {
    const double n = static_cast<double>(observe::since(now, then));
    return is_rate ? observe::short_count(n / s) + unit + "/s" : observe::short_count(n) + unit;
  };
  std::string time = "-";
  std::string share = "-";
  std::string sms = "-";
  if (use.gpu_ns) {
    time = observe::time_text(*use.gpu_ns);
    share = observe::percent(
        observe::seconds(observe::since(*use.gpu_ns, from.gpu_ns.value_or(0))) / s);
    sms = format_text("%.1f", observe::seconds(observe::since(use.sm_ns, from.sm_ns)) / s);
  }
  return line_of(pid, id, server, device, time, share, sms, amount(use.launches, from.launches, ""),
                 amount(use.to_device, from.to_device, "B"),
                 amount(use.from_device, from.from_device, "B"),
                 observe::held_text(observe::most_held(use, from)), survives, group, command);
}

int failure(const Status& status) {
  fprintf(stderr, "openmps: %s\n", status.message().c_str());
  return 1;
}

}  // namespace

std::string format_ps_table(const std::vector<observe::Client>& clients,
                            const std::vector<observe::Client>& before) {
  if (clients.empty()) return "No program uses OpenMPS\n";
  std::string text = line_of("PID", "ID", "SERVER", "DEVICE", "GPU TIME", "GPU", "SMS", "LAUNCHES",
                             "TO GPU", "FROM GPU", "HELD BACK", "SURVIVES", "GROUP", "COMMAND");
  for (const observe::Client& client : clients) {
    text += row_text(client, find_again(before, client));
  }
  for (const observe::Client& client : clients) {
    if (client.stays.empty()) continue;
    text += name_of(client) + " would not survive a fault of another: " + client.stays + "\n";
  }
  for (const observe::Client& client : clients) {
    if (client.host_bytes == 0 && client.residence == "device") continue;
    text += name_of(client) + " has " + observe::memory_text(client.host_bytes) + " on the host";
    text += client.residence == "held" ? ", and its GPU work waits for openmps resume\n" : "\n";
  }
  std::map<std::string, std::string> domains;
  for (const observe::Client& client : clients) {
    if (client.domain != wire::kCommonDomain) domains[client.domain] += " " + name_of(client);
  }
  for (const auto& [domain, names] : domains) {
    text += "In domain " + domain + ", with a worker of its own:" + names + "\n";
  }
  if (std::ranges::find(clients, uint64_t{0}, &observe::Client::pid) != clients.end()) {
    text +=
        "Programs named id:... have no PID here: they are in a PID namespace that the daemon can't "
        "see, and rules by cgroup do not fit them\n";
  }
  return text;
}

int run_ps(const PsOptions& options) {
  Result<observe::DaemonLink> daemon = observe::DaemonLink::connect();
  if (!daemon.ok()) {
    observe::report_no_daemon(daemon.status());
    return 1;
  }
  std::vector<observe::Client> before;
  for (uint32_t look = 1;; ++look) {
    Result<std::string> text = daemon->ask("ps --json");
    if (!text.ok()) return failure(text.status());
    if (!options.json) {
      Result<std::vector<observe::Client>> clients = observe::read_clients(*text);
      if (!clients.ok()) return failure(clients.status());
      Result<std::string> servers = daemon->ask("get_server_list --json");
      if (!servers.ok()) return failure(servers.status());
      // By a namespace's socket there is no list, and nothing to say of other servers.
      const bool is_list = servers->starts_with('[');
      if (is_list) servers = observe::silent_servers(*servers);
      if (!servers.ok()) return failure(servers.status());
      *text = format_ps_table(*clients, before) + (is_list ? *servers : "");
      before = std::move(clients).value();
    }
    if (options.clears) fputs("\x1b[H\x1b[2J", stdout);
    fwrite(text->data(), 1, text->size(), stdout);
    fflush(stdout);
    if (options.every_s == 0 || look == options.times) return 0;
    observe::pause_for(options.every_s);
  }
}

}  // namespace openmps::cli
