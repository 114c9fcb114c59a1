// SPDX-License-Identifier: Apache-2.0
// See metrics.h.
#include "exporter/metrics.h"

#include <prometheus/text_serializer.h>
#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "base/text.h"
#include "wire/usage.h"

namespace openmps::exporter {
namespace {

using nlohmann::json;
using prometheus::MetricType;
using Labels = std::vector<prometheus::ClientMetric::Label>;

constexpr double kSeconds = 1e-9;  // of a nanosecond

// Families in the order of their first sample.
class Families {
 public:
  void gauge(std::string name, const char* help, Labels labels, double value) {
    prometheus::ClientMetric& metric =
        add(std::move(name), help, MetricType::Gauge, std::move(labels));
    metric.gauge.value = value;
  }
  void counter(std::string name, const char* help, Labels labels, double value) {
    prometheus::ClientMetric& metric =
        add(std::move(name), help, MetricType::Counter, std::move(labels));
    metric.counter.value = value;
  }
  // `counts`: of the bins of wire::time_bin_ns(). The sum is not known: the lengths are those that
  // have been learnt, not those of each kernel.
  void histogram(std::string name, const char* help, Labels labels, const json& counts) {
    prometheus::ClientMetric& metric =
        add(std::move(name), help, MetricType::Histogram, std::move(labels));
    uint64_t sum = 0;
    for (size_t bin = 0; bin < counts.size(); ++bin) {
      sum += counts[bin].get<uint64_t>();
      const bool is_last = bin + 1 == counts.size();
      metric.histogram.bucket.push_back(
          {sum, is_last ? std::numeric_limits<double>::infinity()
                        : static_cast<double>(wire::time_bin_ns(bin + 1)) * kSeconds});
    }
    metric.histogram.sample_count = sum;
    metric.histogram.sample_sum = std::numeric_limits<double>::quiet_NaN();
  }
  std::vector<prometheus::MetricFamily> take() { return std::move(families_); }

 private:
  prometheus::ClientMetric& add(std::string name, const char* help, MetricType type,
                                Labels labels) {
    const auto [place, is_new] = places_.try_emplace(name, families_.size());
    if (is_new) families_.push_back({name, help, type, {}});
    prometheus::ClientMetric& metric = families_[place->second].metric.emplace_back();
    for (auto& label : labels) label.value = printable(label.value);
    metric.label = std::move(labels);
    return metric;
  }

  std::vector<prometheus::MetricFamily> families_;
  std::map<std::string, size_t> places_;
};

Labels with(Labels labels, const char* name, std::string value) {
  labels.push_back({name, std::move(value)});
  return labels;
}

std::string text_at(const json& from, const char* key) {
  const auto found = from.find(key);
  return found == from.end() || !found->is_string() ? "" : found->get<std::string>();
}

double number_at(const json& from, const char* key) {
  const auto found = from.find(key);
  return found == from.end() || !found->is_number() ? 0 : found->get<double>();
}

// A counter of `usage` (ps --json): openmps_client_NAME of each client, openmps_group_NAME of each
// group.
struct Count {
  const char* name;
  const char* help;
  const char* key;
  bool is_detail;  // for clients
};
constexpr Count kCounts[] = {
    {"kernel_launches_total", "Launches of kernels that the driver was given.", "launches", false},
    {"graph_launches_total", "Launches of executable graphs.", "graph_launches", true},
    {"graph_kernels_total", "Kernels in launched graphs.", "graph_kernels", false},
    {"batched_launches_total", "Launches of kernels that were submitted in batches.",
     "batched_launches", true},
    {"blocks_total", "Blocks of kernels' grids.", "blocks", true},
    {"threads_total", "Threads of these blocks.", "threads", true},
    {"launches_beyond_limit_total", "Launches that may use SMs beyond the client's limit.",
     "beyond_limit", true},
    {"copies_total", "Copies of memory.", "copies", false},
    {"fills_total", "Fills of memory.", "fills", true},
};

// A time of work on a device, likewise.
struct Time {
  const char* name;
  const char* help;
  const char* key;
};
constexpr Time kTimes[] = {
    {"gpu_seconds_total", "Time in which work ran; streams that work at once add up.", "gpu_ns"},
    {"sm_seconds_total", "That time times the SMs that the work kept busy.", "sm_ns"},
    {"compared_seconds_total",
     "Time of work whose length without neighbours is known, with waits for SMs.", "compared_ns"},
    {"alone_seconds_total", "How long that work takes without neighbours.", "alone_ns"},
};

// Times and counts of a client or a group. `is_client`: openmps_client_ instead of openmps_group_.
class UseMetrics {
 public:
  UseMetrics(Families* out, const Sample& sample, bool is_client, bool has_details)
      : out_(*out), sample_(sample), is_client_(is_client), has_details_(has_details) {}

  void add(const json& usage, const Labels& labels) {
    if (!usage.is_object()) return;
    for (const Count& count : kCounts) {
      if (!is_wanted(count.is_detail)) continue;
      out_.counter(name(count.name), count.help, labels, number_at(usage, count.key));
    }
    for (const json& device : usage["devices"]) add_device(device, labels);
    add_bytes(usage, labels);
    add_held(usage["held"], labels);
    add_distributions(usage, labels);
  }

 private:
  [[nodiscard]] bool is_wanted(bool is_detail) const {
    return !is_client_ || !is_detail || has_details_;
  }

  [[nodiscard]] std::string name(const char* what) const {
    return std::string(is_client_ ? "openmps_client_" : "openmps_group_") + what;
  }

  // ps has the device's number, totals its UUID.
  [[nodiscard]] std::string ordinal_of(const json& device) const {
    const json& which = device["device"];
    if (which.is_number()) return std::to_string(which.get<uint64_t>());
    for (const observe::Device& one : sample_.snapshot.devices) {
      if (one.uuid == which) return std::to_string(one.ordinal);
    }
    return "";
  }

  void add_device(const json& device, const Labels& labels) {
    const std::string ordinal = ordinal_of(device);
    if (ordinal.empty()) return;
    const Labels here = with(labels, "device", ordinal);
    for (const Time& time : kTimes) {
      out_.counter(name(time.name), time.help, here, number_at(device, time.key) * kSeconds);
    }
    const double on_host = number_at(device, "host_bytes");
    out_.gauge(name("memory_used_bytes"), "Memory that it holds on the device.", here,
               number_at(device, "memory_bytes") - on_host);
    if (is_wanted(true)) {
      out_.gauge(name("memory_on_host_bytes"),
                 "Memory of the device whose contents are on the host now.", here, on_host);
    }
  }

  void add_bytes(const json& usage, const Labels& labels) {
    static constexpr std::pair<const char*, const char*> kDirections[] = {
        {"host_to_device", "to_device"},
        {"device_to_host", "from_device"},
        {"device_to_device", "on_device"},
        {"host_to_host", "on_host"}};
    const json& bytes = usage["bytes"];
    for (const auto& [key, direction] : kDirections) {
      const bool is_detail = direction[0] == 'o';
      if (!is_wanted(is_detail)) continue;
      out_.counter(name("copied_bytes_total"), "Bytes of copies.",
                   with(labels, "direction", direction), number_at(bytes, key));
    }
    if (!is_wanted(true)) return;
    out_.counter(name("filled_bytes_total"), "Bytes of fills.", labels, number_at(bytes, "filled"));
    for (const auto& [key, result] :
         {std::pair("images_loaded", "loaded"), std::pair("images_found", "found")}) {
      out_.counter(name("images_total"),
                   "Binaries with code for the GPU that had to be loaded, or that were there.",
                   with(labels, "result", result), number_at(usage, key));
    }
  }

  void add_held(const json& held, const Labels& labels) {
    double all = 0;
    for (const auto& [reason, one] : held.items()) {
      all += number_at(one, "ns") * kSeconds;
      if (is_client_ && number_at(one, "standing") != 0) {
        out_.gauge(name("held_streams"), "Streams whose work is held for that reason now.",
                   with(labels, "reason", reason), number_at(one, "standing"));
      }
      if (!is_wanted(true)) continue;
      const Labels why = with(labels, "reason", reason);
      out_.counter(name("held_total"), "How often work was held for that reason.", why,
                   number_at(one, "times"));
      out_.counter(name("held_reason_seconds_total"),
                   "Time for which streams had work that was held for that reason.", why,
                   number_at(one, "ns") * kSeconds);
    }
    out_.counter(name("held_seconds_total"), "Time for which streams had work that was held.",
                 labels, all);
  }

  void add_distributions(const json& usage, const Labels& labels) {
    if (!is_wanted(true)) return;
    out_.histogram(name("kernel_duration_seconds"),
                   "Kernels and launches of graphs by their learnt length; the sum is not known.",
                   labels, usage["lengths"]);
    const json& gaps = usage["gap_ns"];
    for (size_t bin = 0; bin < gaps.size(); ++bin) {
      out_.counter(name("gap_seconds_total"),
                   "Time between kernels of a client, by the least length of the gap in seconds.",
                   with(labels, "at_least",
                        format_text("%g", static_cast<double>(wire::time_bin_ns(bin)) * kSeconds)),
                   gaps[bin].get<double>() * kSeconds);
    }
    const json& parts = usage["part_ns"];
    for (size_t bin = 0; bin < parts.size(); ++bin) {
      out_.counter(name("part_seconds_total"),
                   "Time in which work ran, by the eighths of the device's SMs that it kept busy.",
                   with(labels, "eighths", std::to_string(bin + 1)),
                   parts[bin].get<double>() * kSeconds);
    }
  }

  Families& out_;
  const Sample& sample_;
  const bool is_client_;
  const bool has_details_;
};

void add_servers(const Sample& sample, Families* out) {
  for (const json& server : sample.servers) {
    const std::string name = text_at(server, "name");
    out->gauge("openmps_server_state", "1 for the state in which the server is.",
               {{"server", name}, {"state", text_at(server, "state")}}, 1);
    const auto clients = std::ranges::count_if(sample.clients, [&](const json& client) {
      return sample.server_name(client.value("server", uint64_t{0})) == name;
    });
    out->gauge("openmps_server_clients", "Clients of the server.", {{"server", name}},
               static_cast<double>(clients));
  }
}

void add_devices(const Sample& sample, Families* out) {
  for (const observe::Device& device : sample.snapshot.devices) {
    const Labels labels = {{"device", std::to_string(device.ordinal)}};
    out->gauge("openmps_device_info", "A device; uuid is that of NVML.",
               {labels[0], {"uuid", device.uuid}, {"name", device.name}}, 1);
    out->gauge("openmps_device_sms", "SMs of the device.", labels, device.sms);
    out->gauge("openmps_device_memory_bytes", "Memory of the device.", labels,
               static_cast<double>(device.memory_bytes));
    double used = 0;
    double gpu_ns = 0;
    double sm_ns = 0;
    for (const json& line : sample.totals) {
      if (!line["usage"].is_object()) continue;
      for (const json& one : line["usage"]["devices"]) {
        if (one["device"] != device.uuid) continue;
        used += number_at(one, "memory_bytes") - number_at(one, "host_bytes");
        gpu_ns += number_at(one, "gpu_ns");
        sm_ns += number_at(one, "sm_ns");
      }
    }
    out->gauge("openmps_device_memory_used_bytes", "Memory that clients hold on the device.",
               labels, used);
    out->counter("openmps_device_gpu_seconds_total",
                 "Time in which work of clients ran, of those that have ended as well.", labels,
                 gpu_ns * kSeconds);
    out->counter("openmps_device_sm_seconds_total",
                 "That time times the SMs that the work kept busy.", labels, sm_ns * kSeconds);
  }
}

// By the words of `events --json`.
void add_events(const Sample& sample, Families* out) {
  static constexpr struct {
    const char* kind;
    const char* metric;
    const char* help;
  } kEvents[] = {
      {"worker-started", "openmps_worker_starts_total", "Workers that began to serve."},
      {"worker-died", "openmps_worker_deaths_total", "Workers that ended by themselves."},
      {"fault", "openmps_faults_total", "Faults that cost a worker its contexts."},
      {"takeover", "openmps_takeovers_total", "Faults after which clients had another worker."},
      {"moved", "openmps_clients_moved_total", "Clients that got another worker."},
      {"lost", "openmps_clients_lost_total", "Clients that lost their session with a worker."},
      {"failed", "openmps_clients_failed_total", "Clients ended with an error of their own."},
      {"terminated", "openmps_clients_terminated_total", "Clients ended by command."},
      {"quarantined", "openmps_clients_quarantined_total", "Clients put in quarantine."},
      {"refused", "openmps_clients_refused_total", "Clients that were not admitted."},
  };
  if (!sample.events.contains("counts")) return;
  const json& counts = sample.events["counts"];
  for (const auto& event : kEvents) {
    out->counter(event.metric, event.help, {}, number_at(counts, event.kind));
  }
  for (const json& event : sample.events["events"]) {
    if (text_at(event, "event") != "fault") continue;
    out->gauge("openmps_fault_timestamp_seconds",
               "When one of the last faults was, with its culprit, if that is known.",
               {{"number", std::to_string(event.value("number", uint64_t{0}))},
                {"server", text_at(event, "server")},
                {"pid", std::to_string(event.value("pid", uint64_t{0}))},
                {"command", text_at(event, "command")},
                {"error", std::to_string(event.value("result", 0))}},
               number_at(event, "at_ns") * kSeconds);
  }
}

void add_totals(const Sample& sample, bool has_details, Families* out) {
  UseMetrics use(out, sample, /*is_client=*/false, has_details);
  for (const json& line : sample.totals) {
    const Labels labels = {{"server", text_at(line, "server")}, {"group", text_at(line, "group")}};
    out->counter("openmps_clients_admitted_total", "Clients that got a session.", labels,
                 number_at(line, "sessions"));
    out->gauge("openmps_group_members", "Clients of the group that are there.", labels,
               number_at(line, "open"));
    use.add(line["usage"], labels);
  }
}

void add_limits(const Sample& sample, Families* out) {
  for (const json& group : sample.groups) {
    const Labels labels = {{"server", sample.server_name(group.value("server", uint64_t{0}))},
                           {"group", text_at(group, "name")}};
    out->gauge("openmps_group_active_thread_ratio", "The group's limit by percentage, as a ratio.",
               labels, number_at(group, "active_thread_percentage") / 100);
    for (const observe::Device& device : sample.snapshot.devices) {
      double most = device.sms * number_at(group, "active_thread_percentage") / 100;
      for (const json& own : group["devices"]) {
        const double sms = number_at(own, "sm_count");
        if (own["device"] == device.ordinal && sms != 0) most = std::min(most, sms);
      }
      out->gauge("openmps_group_sm_limit", "SMs that the group may use at a time, at most.",
                 with(labels, "device", std::to_string(device.ordinal)), most);
    }
    for (const json& device : group["devices"]) {
      const Labels here =
          with(labels, "device", std::to_string(device.value("device", uint64_t{0})));
      if (const double bytes = number_at(device, "memory_limit_bytes"); bytes != 0) {
        out->gauge("openmps_group_memory_limit_bytes", "Memory that the group may hold.", here,
                   bytes);
      }
    }
  }
  for (const json& device : sample.partitions) {
    for (const json& partition : device["partitions"]) {
      out->gauge("openmps_partition_sms", "SMs of a static partition.",
                 {{"partition", text_at(partition, "name")}}, number_at(partition, "sms"));
    }
  }
}

void add_clients(const Sample& sample, const MetricsOptions& options, Families* out) {
  UseMetrics use(out, sample, /*is_client=*/true, options.has_details);
  for (const json& client : sample.clients) {
    const uint64_t pid = client.value("pid", uint64_t{0});
    const Labels labels = {{"server", sample.server_name(client.value("server", uint64_t{0}))},
                           {"client", std::to_string(client.value("id", uint64_t{0}))}};
    const Place place = options.place_of(pid);
    Labels info = labels;
    info.push_back({"pid", std::to_string(pid)});
    info.push_back({"uid", options.user_of(pid)});
    info.push_back({"command", text_at(client, "command")});
    info.push_back({"group", text_at(client, "group")});
    info.push_back({"quality", text_at(client, "quality")});
    info.push_back({"sm_partition", text_at(client, "sm_partition")});
    info.push_back({"domain", text_at(client, "domain")});
    info.push_back({"pod", place.pod});
    info.push_back({"container", place.container});
    out->gauge("openmps_client_info", "A client that is there.", std::move(info), 1);
    out->gauge("openmps_client_active_thread_ratio",
               "The client's limit by percentage, or its group's if that is less, as a ratio.",
               labels, number_at(client, "active_thread_percentage") / 100);
    const json& usage = client["usage"];
    if (!usage.is_object()) continue;
    out->gauge("openmps_client_age_seconds", "Time since the client has its session.", labels,
               number_at(usage, "age_ns") * kSeconds);
    use.add(usage, labels);
  }
}

}  // namespace

std::vector<prometheus::MetricFamily> metrics_of(const Sample& sample,
                                                 const MetricsOptions& options) {
  Families out;
  const bool is_up = sample.why_not.empty();
  out.gauge("openmps_up", "Whether the daemon answers.", {}, is_up ? 1 : 0);
  out.gauge("openmps_build_info", "The exporter's version.", {{"version", OPENMPS_VERSION}}, 1);
  if (!is_up) return out.take();
  add_servers(sample, &out);
  add_devices(sample, &out);
  add_events(sample, &out);
  add_totals(sample, options.has_details, &out);
  add_limits(sample, &out);
  add_clients(sample, options, &out);
  return out.take();
}

std::string text_of(const std::vector<prometheus::MetricFamily>& families) {
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace openmps::exporter
