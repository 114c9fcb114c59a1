// SPDX-License-Identifier: Apache-2.0
// See ps.h. The only file of this layer that includes nlohmann-json.
#include "cli/ps.h"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/text.h"
#include "base/unique_fd.h"
#include "cli/installation.h"
#include "wire/control_call.h"

namespace openmps::cli {
namespace {

constexpr size_t kShortUuid = 12;  // "GPU-008cbaa3"

// ---- Reading ------------------------------------------------------------------------------------

PsRow::Use read_use(const nlohmann::json& usage) {
  PsRow::Use use;
  use.age_ns = usage.at("age_ns").get<uint64_t>();
  if (!usage.at("gpu_ns").is_null()) use.gpu_ns = usage.at("gpu_ns").get<uint64_t>();
  if (!usage.at("sm_ns").is_null()) use.sm_ns = usage.at("sm_ns").get<uint64_t>();
  use.launches = usage.at("launches").get<uint64_t>() + usage.at("graph_kernels").get<uint64_t>();
  use.to_device = usage.at("bytes").at("host_to_device").get<uint64_t>();
  use.from_device = usage.at("bytes").at("device_to_host").get<uint64_t>();
  for (const auto& [why, held] : usage.at("held").items()) {
    use.held.push_back({why, held.at("ns").get<uint64_t>(), held.at("standing").get<uint64_t>()});
  }
  return use;
}

PsRow read_row(const nlohmann::json& client) {
  PsRow row;
  row.pid = client.at("pid").get<uint64_t>();
  row.id = client.at("id").get<uint64_t>();
  row.server = client.at("server").get<uint64_t>();
  row.device = client.at("device").get<std::string>();
  row.command = client.at("command").get<std::string>();
  row.ending = client.at("ending").get<bool>();
  if (client.contains("usage") && !client.at("usage").is_null()) {
    row.use = read_use(client.at("usage"));
  }
  return row;
}

// ---- Writing ------------------------------------------------------------------------------------

std::string line_of(const std::string& pid, const std::string& id, const std::string& server,
                    const std::string& device, const std::string& time, const std::string& share,
                    const std::string& sms, const std::string& launches, const std::string& to,
                    const std::string& from, const std::string& held, const std::string& command) {
  return format_text("%-9s %-6s %-9s %-13s %9s %6s %6s %10s %10s %10s  %-22s %s\n", pid.c_str(),
                     id.c_str(), server.c_str(), device.c_str(), time.c_str(), share.c_str(),
                     sms.c_str(), launches.c_str(), to.c_str(), from.c_str(), held.c_str(),
                     command.c_str());
}

double seconds(uint64_t ns) { return static_cast<double>(ns) / 1e9; }

// "812", "1.5k", "20.0M": at most seven characters.
std::string short_count(double n) {
  static constexpr std::pair<double, const char*> kUnits[] = {
      {1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}};
  for (const auto& [unit, letter] : kUnits) {
    if (n >= unit) return format_text("%.1f%s", n / unit, letter);
  }
  return format_text("%.0f", n);
}

std::string time_text(uint64_t ns) {
  const double s = seconds(ns);
  if (s < 1) return format_text("%.1f ms", s * 1e3);
  return s < 3600 ? format_text("%.2f s", s) : format_text("%.2f h", s / 3600);
}

uint64_t ns_of(const PsRow::Use& use, const std::string& why) {
  for (const auto& held : use.held) {
    if (held.why == why) return held.ns;
  }
  return 0;
}

uint64_t since(uint64_t now, uint64_t before) { return now > before ? now - before : 0; }

// What holds it back now, else what did for longest.
std::string held_text(const PsRow::Use& use, const PsRow::Use& before) {
  const PsRow::Use::Held* most = nullptr;
  uint64_t most_ns = 0;
  for (const auto& held : use.held) {
    const uint64_t ns = since(held.ns, ns_of(before, held.why));
    const bool more = most == nullptr ||
                      std::pair(held.standing != 0, ns) > std::pair(most->standing != 0, most_ns);
    if (!more) continue;
    most = &held;
    most_ns = ns;
  }
  if (most == nullptr || (most_ns == 0 && most->standing == 0)) return "-";
  return most->why + (most->standing != 0 ? " now, " : " ") + time_text(most_ns);
}

const PsRow* find(const std::vector<PsRow>& rows, const PsRow& wanted) {
  for (const PsRow& row : rows) {
    if (row.server == wanted.server && row.id == wanted.id) return &row;
  }
  return nullptr;
}

std::string row_text(const PsRow& row, const PsRow* before) {
  // The program without its arguments.
  const std::string command =
      row.command.substr(0, row.command.find(' ')) + (row.ending ? " (ending)" : "");
  const std::string pid = std::to_string(row.pid);
  const std::string id = std::to_string(row.id);
  const std::string server = std::to_string(row.server);
  const std::string device = row.device.substr(0, kShortUuid);
  if (!row.use) {
    return line_of(pid, id, server, device, "-", "-", "-", "-", "-", "-", "-", command);
  }
  const PsRow::Use& use = *row.use;
  const bool is_rate = before != nullptr && before->use;
  const PsRow::Use from = is_rate ? *before->use : PsRow::Use{};
  const double s = std::max(seconds(since(use.age_ns, from.age_ns)), 1e-9);
  const auto amount = [&](uint64_t now, uint64_t then, const char* unit) {
    const double n = static_cast<double>(since(now, then));
    return is_rate ? short_count(n / s) + unit + "/s" : short_count(n) + unit;
  };
  std::string time = "-";
  std::string share = "-";
  std::string sms = "-";
  if (use.gpu_ns) {
    time = time_text(*use.gpu_ns);
    share = format_text("%.0f%%", 100 * seconds(since(*use.gpu_ns, from.gpu_ns.value_or(0))) / s);
    sms = format_text("%.1f", seconds(since(use.sm_ns, from.sm_ns)) / s);
  }
  return line_of(pid, id, server, device, time, share, sms, amount(use.launches, from.launches, ""),
                 amount(use.to_device, from.to_device, "B"),
                 amount(use.from_device, from.from_device, "B"), held_text(use, from), command);
}

}  // namespace

Result<std::vector<PsRow>> read_ps(std::string_view json) {
  std::vector<PsRow> rows;
  try {
    const auto list = nlohmann::json::parse(json);
    for (const auto& client : list) rows.push_back(read_row(client));
  } catch (const nlohmann::json::exception& error) {
    return Status(
        CUDA_ERROR_INVALID_VALUE,
        std::string("the daemon's list is not as this program knows it: ") + error.what());
  }
  return rows;
}

std::string format_ps_table(const std::vector<PsRow>& rows, const std::vector<PsRow>& before) {
  if (rows.empty()) return "No program uses OpenMPS\n";
  std::string text = line_of("PID", "ID", "SERVER", "DEVICE", "GPU TIME", "GPU", "SMS", "LAUNCHES",
                             "TO GPU", "FROM GPU", "HELD BACK", "COMMAND");
  for (const PsRow& row : rows) text += row_text(row, find(before, row));
  return text;
}

int run_ps(const PsOptions& options) {
  Result<UniqueFd> socket = wire::connect_to_daemon(wire::control_socket_path(pipe_directory()));
  if (!socket.ok()) {
    if (socket.status().code() == CUDA_ERROR_NOT_PERMITTED) {
      fprintf(stderr, "openmps: %s\n", socket.status().message().c_str());
    } else {
      // As the command shell has it.
      printf("Cannot find MPS control daemon process\n");
    }
    return 1;
  }
  std::vector<PsRow> before;
  for (uint32_t look = 1;; ++look) {
    Result<wire::ControlReply> reply = wire::call_control(socket->get(), "ps --json");
    if (!reply.ok()) {
      fprintf(stderr, "openmps: %s\n", reply.status().message().c_str());
      return 1;
    }
    std::string text = reply->text;
    if (!options.json) {
      Result<std::vector<PsRow>> rows = read_ps(reply->text);
      if (!rows.ok()) {
        fprintf(stderr, "openmps: %s\n", rows.status().message().c_str());
        return 1;
      }
      text = format_ps_table(*rows, before);
      before = std::move(rows).value();
    }
    if (options.clears) fputs("\x1b[H\x1b[2J", stdout);
    fwrite(text.data(), 1, text.size(), stdout);
    fflush(stdout);
    if (options.every_s == 0 || look == options.times) return 0;
    timespec pause{};
    pause.tv_sec = static_cast<time_t>(options.every_s);
    pause.tv_nsec = static_cast<long>((options.every_s - static_cast<double>(pause.tv_sec)) * 1e9);
    nanosleep(&pause, nullptr);
  }
}

}  // namespace openmps::cli
