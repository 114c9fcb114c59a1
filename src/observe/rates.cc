// SPDX-License-Identifier: Apache-2.0
// See rates.h.
#include "observe/rates.h"

#include <algorithm>
#include <array>
#include <utility>

#include "observe/figures.h"

namespace openmps::observe {
namespace {

constexpr double kNs = 1e-9;
// A smaller share is a remainder of earlier work.
constexpr double kSomeShare = 0.001;

uint64_t held_ns(const Use& use, const std::string& why) {
  const auto found = std::ranges::find(use.held, why, &Use::Held::why);
  return found == use.held.end() ? 0 : found->ns;
}

State state_of(const Rates& rates) {
  if (rates.client.ending) return State::kEnding;
  if (rates.client.residence == "held") return State::kSuspended;
  if (rates.launches > 0 || rates.copies > 0 || rates.kernel_share >= kSomeShare) {
    return State::kActive;
  }
  if (!rates.held.now) {
    return rates.client.residence == "host" ? State::kOnHost : State::kIdle;
  }
  // The program is ahead of the device: a kernel of it runs that is longer than the interval.
  return rates.held.why == "window" ? State::kActive : State::kWaiting;
}

// SM-time of the device in seconds that the client would have had without competition for SMs.
double sm_seconds(const Use::OnDevice& now, const Use& before) {
  return seconds(since(now.sm_ns, on_device(before, now.ordinal).sm_ns));
}

DeviceRates* find(View* view, uint32_t ordinal) {
  const auto found = std::ranges::find_if(view->devices, [ordinal](const DeviceRates& rates) {
    return rates.device.ordinal == ordinal;
  });
  return found == view->devices.end() ? nullptr : &*found;
}

const Use& use_of(const Client* client) {
  static const Use kNothing;
  return client != nullptr && client->use ? *client->use : kNothing;
}

// Both snapshots have their own time of a client that is not new.
double seconds_of(const Use& use, const Use& before, const View& view) {
  return before.age_ns == 0 ? view.seconds
                            : std::max(seconds(since(use.age_ns, before.age_ns)), kNs);
}

void add_to_devices(const Use& use, const Use& before, View* view) {
  const double passed = seconds_of(use, before, *view);
  for (const Use::OnDevice& now : use.devices) {
    DeviceRates* line = find(view, now.ordinal);
    if (line == nullptr) continue;
    line->sm_time_share += sm_seconds(now, before) / passed / std::max(line->device.sms, 1u);
    line->kernel_share +=
        seconds(since(now.gpu_ns, on_device(before, now.ordinal).gpu_ns)) / passed;
    line->memory_bytes += since(now.memory_bytes, now.host_bytes);
    ++line->clients;
  }
}

// If the clients together wanted more SM-time than the device has, each had a part in proportion.
void add_sms(const Use& use, const Use& before, View* view, Rates* rates) {
  double of_sms = 0;
  for (const Use::OnDevice& now : use.devices) {
    const DeviceRates* line = find(view, now.ordinal);
    if (line == nullptr) continue;
    of_sms += line->device.sms;
    rates->sms += sm_seconds(now, before) / rates->seconds / std::max(line->sm_time_share, 1.0);
  }
  rates->sm_time_share = of_sms == 0 ? 0 : rates->sms / of_sms;
}

Rates rates_of(const Client& client, const Use& then, View* view) {
  Rates rates;
  rates.client = client;
  rates.seconds = view->seconds;
  if (client.use) {
    const Use& now = *client.use;
    rates.seconds = std::max(seconds(since(now.age_ns, then.age_ns)), kNs);
    const auto per_second = [&rates](uint64_t a, uint64_t b) {
      return static_cast<double>(since(a, b)) / rates.seconds;
    };
    rates.timed = now.gpu_ns.has_value();
    rates.kernel_share = kNs * per_second(now.gpu_ns.value_or(0), then.gpu_ns.value_or(0));
    rates.launches = per_second(now.launches, then.launches);
    rates.copies = per_second(now.copies, then.copies);
    rates.to_device = per_second(now.to_device, then.to_device);
    rates.from_device = per_second(now.from_device, then.from_device);
    for (const Use::OnDevice& device : now.devices) {
      rates.memory_bytes += since(device.memory_bytes, device.host_bytes);
      rates.host_bytes += device.host_bytes;
    }
    rates.held = most_held(now, then);
    add_sms(now, then, view, &rates);
  }
  rates.state = state_of(rates);
  return rates;
}

// Orders by the compared values, then by PID.
int compare_by(Column column, const Rates& a, const Rates& b) {
  const auto order = [](const auto& x, const auto& y) { return x < y ? -1 : (y < x ? 1 : 0); };
  switch (column) {
    case Column::kPid: return 0;
    case Column::kPercentage:
      return order(a.client.active_thread_percentage, b.client.active_thread_percentage);
    case Column::kQuality: return order(a.client.quality, b.client.quality);
    case Column::kGroup: return order(a.client.group, b.client.group);
    case Column::kState: return order(a.state, b.state);
    case Column::kSms:
      return order(std::pair(a.sm_time_share, a.kernel_share),
                   std::pair(b.sm_time_share, b.kernel_share));
    case Column::kKernels: return order(a.kernel_share, b.kernel_share);
    case Column::kMemory: return order(a.memory_bytes, b.memory_bytes);
    case Column::kOnHost: return order(a.host_bytes, b.host_bytes);
    case Column::kLaunches: return order(a.launches, b.launches);
    case Column::kToDevice: return order(a.to_device, b.to_device);
    case Column::kFromDevice: return order(a.from_device, b.from_device);
    case Column::kHeld:
      return order(std::pair(a.held.now, a.held.ns), std::pair(b.held.now, b.held.ns));
    case Column::kCommand: return order(a.client.command, b.client.command);
  }
  return 0;
}

constexpr std::array<const char*, kColumns> kHeadings = {
    "pid", "part",    "quality",  "group", "state",  "sm%",       "kern%",
    "mem", "on host", "launch/s", "to/s",  "from/s", "held back", "command"};

}  // namespace

Held most_held(const Use& use, const Use& before) {
  Held most;
  for (const Use::Held& held : use.held) {
    const uint64_t ns = since(held.ns, held_ns(before, held.why));
    const bool now = held.held_now != 0;
    if (ns == 0 && !now) continue;
    if (most.why.empty() || std::pair(now, ns) > std::pair(most.now, most.ns)) {
      most = {held.why, ns, now};
    }
  }
  return most;
}

std::string held_text(const Held& held) {
  if (held.why.empty()) return "-";
  return held.why + (held.now ? " now, " : " ") + time_text(held.ns);
}

const char* name_of(State state) {
  static constexpr const char* kNames[] = {"idle",    "active",    "waiting",
                                           "on host", "suspended", "ending"};
  return kNames[static_cast<size_t>(state)];
}

View compare(const Snapshot& before, const Snapshot& now) {
  View view;
  view.seconds = std::max(seconds(since(now.at_ns, before.at_ns)), kNs);
  for (const Device& device : now.devices) view.devices.push_back({.device = device});
  const auto past = [&before](const Client& client) -> const Use& {
    return use_of(find_again(before.clients, client));
  };
  for (const Client& client : now.clients) {
    if (client.use) add_to_devices(*client.use, past(client), &view);
  }
  for (const Client& client : now.clients) {
    view.clients.push_back(rates_of(client, past(client), &view));
  }
  for (DeviceRates& device : view.devices) {
    device.sm_time_share = std::min(device.sm_time_share, 1.0);
  }
  return view;
}

const char* heading_of(Column column) { return kHeadings[static_cast<size_t>(column)]; }

std::optional<Column> column_of(std::string_view name) {
  const auto found = std::ranges::find(kHeadings, name);
  if (found == kHeadings.end()) return std::nullopt;
  return static_cast<Column>(found - kHeadings.begin());
}

bool ascends_by_nature(Column column) {
  return column == Column::kPid || column == Column::kQuality || column == Column::kGroup ||
         column == Column::kCommand;
}

void sort_clients(std::vector<Rates>* clients, const Order& order) {
  std::ranges::stable_sort(*clients, [&order](const Rates& a, const Rates& b) {
    const int by = compare_by(order.by, a, b);
    if (by != 0) return order.ascending ? by < 0 : by > 0;
    const bool last_first = order.by == Column::kPid && !order.ascending;
    return last_first ? a.client.pid > b.client.pid : a.client.pid < b.client.pid;
  });
}

bool matches(const Client& client, std::string_view text) {
  return text.empty() || name_of(client) == text ||
         client.command.find(text) != std::string::npos ||
         client.group.find(text) != std::string::npos;
}

View select(View view, const Order& order, std::string_view text) {
  std::erase_if(view.clients, [text](const Rates& rates) { return !matches(rates.client, text); });
  sort_clients(&view.clients, order);
  return view;
}

}  // namespace openmps::observe
