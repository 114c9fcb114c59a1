// SPDX-License-Identifier: Apache-2.0
// See history.h.
#include "control/history.h"

#include <algorithm>
#include <functional>

#include "base/text.h"

namespace openmps::control {

uint64_t TotalsLine::use(wire::DeviceUse what) const {
  uint64_t sum = 0;
  for (const OnDevice& device : devices) sum += device.uses[static_cast<size_t>(what)];
  return sum;
}

void TotalsLine::add(const TotalsLine& other) {
  sessions += other.sessions;
  open += other.open;
  usage.add_counters(other.usage);
  usage.add_present(other.usage);
  for (const OnDevice& from : other.devices) {
    auto to = std::ranges::find(devices, from.uuid, &OnDevice::uuid);
    if (to == devices.end()) to = devices.insert(devices.end(), {.uuid = from.uuid});
    std::ranges::transform(to->uses, from.uses, to->uses.begin(), std::plus());
    to->memory += from.memory;
    to->on_host += from.on_host;
  }
}

TotalsLine totals_line(const std::string& server, const wire::TotalsRow& row,
                       const std::vector<Device>& devices) {
  TotalsLine line;
  line.server = server;
  line.group = printable(field_text(row.group));
  line.sessions = row.sessions;
  line.open = row.open;
  line.usage = row.usage;
  const size_t count = std::min<size_t>(devices.size(), wire::kUsageDevices);
  for (size_t i = 0; i < count; ++i) {
    const bool is_used =
        row.usage.memory[i] != 0 ||
        std::ranges::any_of(row.usage.devices[i], [](uint64_t n) { return n != 0; });
    if (!is_used) continue;
    line.devices.push_back(
        {devices[i].uuid, row.usage.devices[i], row.usage.memory[i], row.usage.on_host[i]});
  }
  line.usage.devices = {};
  line.usage.memory = {};
  line.usage.on_host = {};
  return line;
}

void History::note_totals(const std::string& server, const wire::TotalsRow& row,
                          const std::vector<Device>& devices) {
  auto& groups = told_[server];
  if (row.sessions == 0) {
    groups.erase(row.number);
  } else if (groups.contains(row.number) || groups.size() < kMostToldGroups) {
    groups[row.number] = totals_line(server, row, devices);
  }
}

void History::on_server_gone(const std::string& server) {
  const auto told = told_.find(server);
  if (told == told_.end()) return;
  for (auto& [number, line] : told->second) {
    line.sessions -= std::min<uint64_t>(line.sessions, line.open);  // their ends were not told
    line.open = 0;
    Key key(server, line.group);
    if (!ended_.contains(key) && ended_.size() >= kMostEndedGroups) key.second.clear();
    TotalsLine& sum = ended_[key];
    sum.server = server;
    sum.group = key.second;
    sum.add(line);
  }
  told_.erase(told);
}

std::vector<TotalsLine> History::totals(const std::string& server, With with) const {
  std::vector<TotalsLine> lines;
  for (const auto& [key, line] : ended_) {
    if (key.first == server) lines.push_back(line);
  }
  const auto told = told_.find(server);
  if (with == With::kEndedServersOnly || told == told_.end()) return lines;
  for (const auto& [number, line] : told->second) lines.push_back(line);
  return lines;
}

std::vector<std::string> History::servers() const {
  std::vector<std::string> names;
  for (const auto& [name, groups] : told_) names.push_back(name);
  for (const auto& [key, line] : ended_) names.push_back(key.first);
  std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

void History::note(EventLine event) {
  const auto kind = static_cast<size_t>(event.kind);
  if (kind >= wire::kEventKinds) return;
  ++counts_[kind];
  event.number = ++last_event_;
  std::deque<EventLine>& kept = events_[kind];
  if (kept.size() >= kMostEventsOfKind) kept.pop_front();
  kept.push_back(std::move(event));
}

std::vector<EventLine> History::events() const {
  std::vector<EventLine> all;
  for (const std::deque<EventLine>& kept : events_) all.insert(all.end(), kept.begin(), kept.end());
  std::ranges::sort(all, {}, &EventLine::number);
  return all;
}

}  // namespace openmps::control
