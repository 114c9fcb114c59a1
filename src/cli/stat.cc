// SPDX-License-Identifier: Apache-2.0
// See stat.h.
#include "cli/stat.h"

#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/table.h"
#include "observe/figures.h"

namespace openmps::cli {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const observe::DeviceRates& rates) {
  const observe::Device& device = rates.device;
  return {{"device", device.ordinal},
          {"uuid", device.uuid},
          {"name", device.name},
          {"sms", device.sms},
          {"memory_bytes", device.memory_bytes},
          {"sm_share", rates.sm_time_share},
          {"kernel_share", rates.kernel_share},
          {"memory_used_bytes", rates.memory_bytes},
          {"clients", rates.clients}};
}

Json text_or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

Json json_of(const observe::Rates& rates) {
  const observe::Client& client = rates.client;
  Json json = {{"pid", client.pid},
               {"id", client.id},
               {"server", client.server},
               {"device", client.device},
               {"command", client.command},
               {"state", name_of(rates.state)},
               {"active_thread_percentage", client.active_thread_percentage},
               {"quality", client.quality},
               {"group", text_or_null(client.group)},
               {"sm_partition", text_or_null(client.sm_partition)},
               {"residence", client.residence}};
  if (!client.use) {
    json["rates"] = nullptr;
    return json;
  }
  const auto timed = [&rates](double value) { return rates.timed ? Json(value) : Json(nullptr); };
  Json held = nullptr;
  if (!rates.held.why.empty()) {
    held = {{"why", rates.held.why},
            {"share", static_cast<double>(rates.held.ns) / 1e9 / rates.seconds},
            {"now", rates.held.now}};
  }
  json["rates"] = {{"seconds", rates.seconds},
                   {"sm_share", timed(rates.sm_time_share)},
                   {"sms", timed(rates.sms)},
                   {"kernel_share", timed(rates.kernel_share)},
                   {"launches_per_s", rates.launches},
                   {"copies_per_s", rates.copies},
                   {"to_device_bytes_per_s", rates.to_device},
                   {"from_device_bytes_per_s", rates.from_device},
                   {"memory_bytes", rates.memory_bytes},
                   {"host_bytes", rates.host_bytes},
                   {"held", held}};
  return json;
}

double unix_seconds() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

}  // namespace

std::string format_stat_json(const observe::View& view, double at_s) {
  Json devices = Json::array();
  for (const observe::DeviceRates& device : view.devices) devices.push_back(json_of(device));
  Json clients = Json::array();
  for (const observe::Rates& client : view.clients) clients.push_back(json_of(client));
  const Json all = {{"time_s", at_s},
                    {"seconds", view.seconds},
                    {"devices", std::move(devices)},
                    {"clients", std::move(clients)}};
  return all.dump() + "\n";
}

std::string format_stat_text(const observe::View& view) {
  if (view.clients.empty() && view.devices.empty()) return "No program uses OpenMPS\n";
  std::string text;
  for (const std::string& line : device_lines(view, kAnyWidth)) text += line + "\n";
  const Table table(kAnyWidth);
  text += table.heading() + "\n";
  for (const observe::Rates& rates : view.clients) text += table.row(rates) + "\n";
  return text;
}

int run_stat(const StatOptions& options) {
  Result<observe::DaemonLink> daemon = observe::DaemonLink::connect();
  if (!daemon.ok()) {
    observe::report_no_daemon(daemon.status());
    return 1;
  }
  Result<observe::Snapshot> before = daemon->look();
  for (uint32_t done = 0; before.ok(); ++done) {
    if (options.count != 0 && done == options.count) return 0;
    observe::pause_for(options.interval_s);
    Result<observe::Snapshot> now = daemon->look();
    if (now.ok()) {
      const observe::View view =
          select(observe::compare(*before, *now), options.order, options.filter);
      const std::string text =
          options.json ? format_stat_json(view, unix_seconds()) : format_stat_text(view);
      fwrite(text.data(), 1, text.size(), stdout);
      if (fflush(stdout) != 0) return 1;  // the reader has gone
    }
    before = std::move(now);
  }
  fprintf(stderr, "openmps: %s\n", before.status().message().c_str());
  return 1;
}

}  // namespace openmps::cli
