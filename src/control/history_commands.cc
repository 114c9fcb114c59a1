// SPDX-License-Identifier: Apache-2.0
// The commands about what has happened: figures of all clients there have been, and events.
#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "control/command_call.h"
#include "control/format.h"
#include "control/history.h"
#include "control/listing.h"

namespace openmps::control {
namespace {

using Sums = std::map<std::pair<std::string, std::string>, TotalsLine>;

void add(const std::vector<TotalsLine>& lines, Sums* sums) {
  for (const TotalsLine& line : lines) {
    TotalsLine& sum = (*sums)[{line.server, line.group}];
    sum.server = line.server;
    sum.group = line.group;
    sum.add(line);
  }
}

// A server that has answered has counted its sessions that are there; of another one it is known
// what it has said last.
std::vector<TotalsLine> all_totals(const ServerPool& servers, const ServerPool::Answers& answers) {
  const History& history = servers.history();
  Sums sums;
  std::vector<std::string> others = history.servers();
  for (const auto& [pid, answer] : answers) {
    const ServerProcess* const server = servers.find(std::to_string(pid));
    if (server == nullptr || !answer.answered) continue;
    std::erase(others, server->name());
    const std::vector<Device> devices = servers.devices_of(server->name());
    for (const wire::TotalsRow& row : answer.totals) {
      add({totals_line(server->name(), row, devices)}, &sums);
    }
    add(history.totals(server->name(), History::With::kEndedServersOnly), &sums);
  }
  for (const std::string& name : others) {
    add(history.totals(name, History::With::kLastWord), &sums);
  }
  std::vector<TotalsLine> lines;
  for (auto& [key, line] : sums) lines.push_back(std::move(line));
  return lines;
}

bool is_of_door(const Door& door, const std::string& server, const std::string& group) {
  return door.is_main() || (server == door.server && group == door.group);
}

void show_totals(const CommandCall& call) {
  if (!call.command.unexpected.empty()) {
    return call.done(usage_of(call.command, call.command.unexpected));
  }
  call.servers.ask(call.servers.all(), wire::QueryKind::kTotals,
                   [call](const ServerPool::Answers& answers) {
                     std::vector<TotalsLine> lines = all_totals(call.servers, answers);
                     std::erase_if(lines, [&call](const TotalsLine& line) {
                       return !is_of_door(call.door, line.server, line.group);
                     });
                     if (call.command.json) return call.done({format_totals_json(lines)});
                     const Result<std::string> text =
                         format_listing(totals_listing(lines), call.command.csv ? "csv" : "table");
                     call.done({text.ok() ? *text : text.status().message() + "\n"});
                   });
}

void show_events(const CommandCall& call) {
  const Command& command = call.command;
  if (!command.unexpected.empty()) return call.done(usage_of(command, command.unexpected));
  std::optional<uint64_t> most;
  if (!command.value.empty()) {
    most = parse_unsigned(command.value, UINT32_MAX);
    if (!most) return call.done(usage_of(command, command.value));
  }
  const History& history = call.servers.history();
  std::vector<EventLine> events = history.events();
  std::erase_if(events, [&call](const EventLine& event) {
    return !is_of_door(call.door, event.server, event.group);
  });
  if (most && events.size() > *most) {
    events.erase(events.begin(), events.end() - static_cast<ptrdiff_t>(*most));
  }
  if (command.json) {
    return call.done({format_events_json(
        events, call.door.is_main() ? std::optional(history.counts()) : std::nullopt)});
  }
  call.done({format_events(events)});
}

}  // namespace

std::span<const CommandInfo> history_commands() {
  static const CommandInfo kRows[] = {
      {.word = "totals",
       .arguments = "[--csv] [--json]",
       .options = {&kCsvOption, &kJsonOption},
       .right = Right::kEverybody,
       .is_for_members = true,
       .run = show_totals,
       .help = "What all clients have used so far, those that have ended among them",
       .manual =
           "For each server, namespace or group, and device: the number of clients so far, how "
           "many "
           "of them are there, GPU seconds and SM seconds (GPU time times the SMs that were busy). "
           "Clients in no group are in a line without one. Clients that have ended count, so the "
           "figures never fall while the daemon runs; a daemon that replaces a killed one knows "
           "what its servers know. The JSON form has all counters, as `ps --json` has them of one "
           "client. By a namespace's socket: its own line."},
      {.word = "events",
       .arguments = "[<number>] [--json]",
       .places = {&Command::value},
       .options = {&kJsonOption},
       .right = Right::kEverybody,
       .is_for_members = true,
       .run = show_events,
       .help = "What has happened lately: faults and whose they were, clients that moved, ended,\n"
               "or were refused",
       .manual =
           "The last events, oldest first, or the last <number> of them: workers that started or "
           "died, faults with the client whose fault it was, if that is known, and what became of "
           "the others, clients that got another worker, were terminated, put in quarantine or "
           "refused. 32 of each kind are kept. The JSON form has, in `counts`, how many there have "
           "been of each kind since the daemon has started. By a namespace's socket: events of its "
           "own clients."},
  };
  return kRows;
}

}  // namespace openmps::control
