// SPDX-License-Identifier: Apache-2.0
// See live.h.
#include "exporter/live.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "observe/figures.h"
#include "observe/rates.h"

namespace openmps::exporter {
namespace {

using nlohmann::json;
using observe::Client;
using observe::Device;
using observe::Rates;
using observe::Use;

// Smaller shares are not to be seen in a plot.
constexpr double kLeastShare = 0.001;

std::string key_of(const Client& client) {
  return std::to_string(client.server) + "/" + std::to_string(client.id);
}

// Bytes of one command line may be no UTF-8, which JSON can't have.
std::string json_text(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

// Of each device, the client's part of its SM time: what it would have had without competition.
std::vector<double> shares_of(const Client& client, const Client* past,
                              const std::vector<Device>& devices, double seconds) {
  std::vector<double> shares;
  for (const Device& device : devices) {
    double share = 0;
    if (client.use && device.sms != 0) {
      const bool has_past = past != nullptr && past->use;
      const uint64_t before = has_past ? on_device(*past->use, device.ordinal).sm_ns : 0;
      const uint64_t now = on_device(*client.use, device.ordinal).sm_ns;
      share = observe::seconds(observe::since(now, before)) / seconds / device.sms;
    }
    shares.push_back(share);
  }
  return shares;
}

json memory_of(const Client& client) {
  json memory = json::array();
  if (!client.use) return memory;
  for (const Use::OnDevice& device : client.use->devices) {
    if (device.memory_bytes == 0) continue;
    memory.push_back({device.ordinal, device.memory_bytes - device.host_bytes, device.host_bytes});
  }
  return memory;
}

json client_of(const Rates& rates, const std::vector<double>& shares) {
  const Client& client = rates.client;
  json one = {{"key", key_of(client)},
              {"pid", client.pid},
              {"id", client.id},
              {"server", client.server},
              {"command", client.command},
              {"group", client.group},
              {"quality", client.quality},
              {"partition", client.sm_partition},
              {"domain", client.domain},
              {"state", observe::name_of(rates.state)},
              {"percentage", client.active_thread_percentage},
              {"residence", client.residence},
              {"stays", client.stays},
              {"silent", client.silent},
              {"memory", memory_of(client)}};
  if (!client.use) return one;
  one["shares"] = shares;
  one["kernels"] = rates.kernel_share;
  one["launches"] = rates.launches;
  one["copies"] = rates.copies;
  one["to_device"] = rates.to_device;
  one["from_device"] = rates.from_device;
  if (!rates.held.why.empty()) {
    one["held"] = {{"why", rates.held.why},
                   {"now", rates.held.now},
                   {"share", observe::seconds(rates.held.ns) / std::max(rates.seconds, 1e-9)}};
  }
  return one;
}

}  // namespace

json page_of(const Sample* before, const Sample& now, double at_s) {
  json page = {{"at", at_s}, {"why_not", now.why_not}};
  if (!now.why_not.empty()) return page;
  const observe::Snapshot nothing;
  const observe::Snapshot& past = before != nullptr ? before->snapshot : nothing;
  const observe::View view = compare(past, now.snapshot);
  json devices = json::array();
  for (const observe::DeviceRates& rates : view.devices) {
    devices.push_back({{"ordinal", rates.device.ordinal},
                       {"uuid", rates.device.uuid},
                       {"name", rates.device.name},
                       {"sms", rates.device.sms},
                       {"memory", rates.device.memory_bytes},
                       {"share", rates.sm_time_share},
                       {"kernels", rates.kernel_share},
                       {"used", rates.memory_bytes}});
  }
  json clients = json::array();
  for (const Rates& rates : view.clients) {
    const Client* const then = find_again(past.clients, rates.client);
    // A client that has come since has its own, shorter time.
    const double seconds = std::max(then != nullptr ? view.seconds : rates.seconds, 1e-9);
    clients.push_back(
        client_of(rates, shares_of(rates.client, then, now.snapshot.devices, seconds)));
  }
  page["devices"] = std::move(devices);
  page["clients"] = std::move(clients);
  page["groups"] = now.groups;
  page["servers"] = now.servers;
  page["namespaces"] = now.namespaces;
  page["partitions"] = now.partitions;
  page["events"] = now.events.value("events", json::array());
  return page;
}

json moment_of(const json& page) {
  json devices = json::array();
  if (!page.contains("clients")) return {{"at", page["at"]}, {"devices", devices}};
  const size_t count = page["devices"].size();
  for (size_t device = 0; device < count; ++device) {
    std::vector<std::pair<double, std::string>> shares;
    for (const json& client : page["clients"]) {
      if (!client.contains("shares")) continue;
      const double share = client["shares"][device].get<double>();
      if (share >= kLeastShare) shares.emplace_back(share, client["key"].get<std::string>());
    }
    std::ranges::sort(shares, std::greater());
    json kept = json::array();
    double rest = 0;
    for (size_t i = 0; i < shares.size(); ++i) {
      if (i < kMostShares) {
        kept.push_back({shares[i].second, shares[i].first});
      } else {
        rest += shares[i].first;
      }
    }
    devices.push_back(
        {{"ordinal", page["devices"][device]["ordinal"]}, {"shares", kept}, {"rest", rest}});
  }
  return {{"at", page["at"]}, {"devices", devices}};
}

void Live::add(std::shared_ptr<const Sample> sample) {
  const double at_s = static_cast<double>(wall_clock_ns()) * 1e-9;
  if (before_ == sample) return;
  const bool has_before = before_ != nullptr && before_->why_not.empty();
  json page = page_of(has_before ? before_.get() : nullptr, *sample, at_s);
  page["moment"] = moment_of(page);
  auto text = std::make_shared<const std::string>(json_text(page));
  before_ = std::move(sample);
  const MutexLock lock(mutex_);
  history_.push_back(page["moment"]);
  if (history_.size() > kKeptMoments) history_.pop_front();
  page_ = std::move(page);
  text_ = std::move(text);
  ++number_;
  changed_.notify_all();
}

void Live::stop() {
  const MutexLock lock(mutex_);
  stopped_ = true;
  changed_.notify_all();
}

bool Live::has_stopped() {
  const MutexLock lock(mutex_);
  return stopped_;
}

std::string Live::first(uint64_t* last) {
  const MutexLock lock(mutex_);
  *last = number_;
  return json_text({{"history", history_}, {"now", page_}});
}

std::string Live::wait(uint64_t* last, uint64_t limit_ms) {
  const MutexLock lock(mutex_);
  const uint64_t until_ns = now_ns() + limit_ms * kNsPerMs;
  while (!stopped_ && number_ == *last && changed_.wait_until(mutex_, until_ns)) {
  }
  if (stopped_ || number_ == *last) return "";
  *last = number_;
  return *text_;
}

}  // namespace openmps::exporter
