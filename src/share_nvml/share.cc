// SPDX-License-Identifier: Apache-2.0
// See share.h.
#include "share_nvml/share.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "base/text.h"
#include "observe/figures.h"

namespace openmps::share_nvml {
namespace {

constexpr double kWhole = 100;  // percent

// "9.0": the two numbers. Nothing: it is not like that.
std::optional<std::pair<uint32_t, uint32_t>> parse_version(std::string_view text) {
  const size_t dot = text.find('.');
  if (dot == std::string_view::npos) return std::nullopt;
  constexpr uint64_t kMost = 999;
  const std::optional<uint64_t> major = parse_unsigned(text.substr(0, dot), kMost);
  const std::optional<uint64_t> minor = parse_unsigned(text.substr(dot + 1), kMost);
  if (!major || !minor) return std::nullopt;
  return std::pair(static_cast<uint32_t>(*major), static_cast<uint32_t>(*minor));
}

Result<const observe::Device*> find(const observe::Snapshot& snapshot, std::string_view uuid) {
  const auto found = std::ranges::find(snapshot.devices, uuid, &observe::Device::uuid);
  if (found != snapshot.devices.end()) return &*found;
  return Status(CUDA_ERROR_INVALID_DEVICE, "the daemon does not have that device any more");
}

uint32_t percent_of(double busy_sms, uint32_t sms) {
  const double percent = kWhole * busy_sms / std::max(sms, 1u);
  return static_cast<uint32_t>(std::lround(std::clamp(percent, 0.0, kWhole)));
}

// How many SMs were busy with its work, on average since `before`, or if it was not there then,
// since it has come.
double busy_sms(const observe::Use& now, const observe::Client* before, uint32_t ordinal) {
  static const observe::Use kNothing;
  const observe::Use& then = before != nullptr && before->use ? *before->use : kNothing;
  const uint64_t passed_ns = observe::since(now.age_ns, then.age_ns);
  const uint64_t sm_ns =
      observe::since(on_device(now, ordinal).sm_ns, on_device(then, ordinal).sm_ns);
  return passed_ns == 0 ? 0 : static_cast<double>(sm_ns) / static_cast<double>(passed_ns);
}

// The PID of a program that runs, in the PID namespace with that inode; 0: it has none there.
int32_t pid_in(const observe::Client& client, uint32_t pid_namespace) {
  const bool is_there = !client.ending && pid_namespace != 0 &&
                        client.pid_namespace == pid_namespace && client.claimed_pid <= INT32_MAX;
  return is_there ? static_cast<int32_t>(client.claimed_pid) : 0;
}

bool uses(const observe::Client& client, const observe::Device& device) {
  const bool has_used = client.use && std::ranges::find(client.use->devices, device.ordinal,
                                                        &observe::Use::OnDevice::ordinal) !=
                                          client.use->devices.end();
  return has_used || client.device == device.uuid;
}

}  // namespace

std::vector<nvml::Device> devices_of(const observe::Snapshot& snapshot) {
  std::vector<nvml::Device> devices;
  for (const observe::Device& from : snapshot.devices) {
    nvml::Device& device = devices.emplace_back();
    device.name = from.name;
    device.uuid = from.uuid;
    device.pci = cuda::parse_pci_address(from.pci.c_str()).value_or(cuda::PciAddress{});
    if (const auto version = parse_version(from.compute_capability)) {
      device.compute_capability = 10 * version->first + version->second;
    }
  }
  return devices;
}

uint32_t cuda_version_of(const observe::Snapshot& snapshot) {
  if (snapshot.devices.empty()) return 0;
  const auto version = parse_version(snapshot.devices.front().cuda_version);
  return version ? 1000 * version->first + 10 * version->second : 0;
}

Result<nvml::Memory> memory_of(const observe::Snapshot& snapshot, std::string_view uuid) {
  const Result<const observe::Device*> found = find(snapshot, uuid);
  if (!found.ok()) return found.status();
  const observe::Device& device = **found;
  nvml::Memory memory{device.share ? device.share->memory_bytes : device.memory_bytes, 0};
  for (const observe::Client& client : snapshot.clients) {
    if (client.use) memory.used_bytes += on_device(*client.use, device.ordinal).memory_bytes;
  }
  // What members share by cuIpcOpenMemHandle is in the figures of each.
  memory.used_bytes = std::min(memory.used_bytes, memory.total_bytes);
  return memory;
}

Result<std::vector<nvml::Process>> processes_of(const observe::Snapshot& snapshot,
                                                std::string_view uuid, uint32_t pid_namespace) {
  const Result<const observe::Device*> found = find(snapshot, uuid);
  if (!found.ok()) return found.status();
  const observe::Device& device = **found;
  std::map<int32_t, uint64_t> bytes;
  for (const observe::Client& client : snapshot.clients) {
    const int32_t pid = pid_in(client, pid_namespace);
    if (pid == 0 || !uses(client, device)) continue;
    bytes[pid] += client.use ? on_device(*client.use, device.ordinal).memory_bytes : 0;
  }
  std::vector<nvml::Process> processes;
  for (const auto& [pid, held] : bytes) processes.push_back({pid, held});
  return processes;
}

Result<nvml::Utilization> utilization_between(const observe::Snapshot& before,
                                              const observe::Snapshot& now, std::string_view uuid,
                                              uint32_t pid_namespace) {
  const Result<const observe::Device*> found = find(now, uuid);
  if (!found.ok()) return found.status();
  const observe::Device& device = **found;
  const uint32_t sms = device.share ? device.share->sms : device.sms;
  double all = 0;
  std::map<int32_t, double> busy;
  for (const observe::Client& client : now.clients) {
    if (!client.use) continue;
    if (!client.use->gpu_ns) return Status(CUDA_ERROR_NOT_SUPPORTED, "times are not measured");
    const double of_client =
        busy_sms(*client.use, find_again(before.clients, client), device.ordinal);
    all += of_client;
    const int32_t pid = pid_in(client, pid_namespace);
    if (pid != 0 && uses(client, device)) busy[pid] += of_client;
  }
  nvml::Utilization utilization{percent_of(all, sms), {}};
  for (const auto& [pid, of_process] : busy) {
    utilization.processes.push_back({pid, percent_of(of_process, sms)});
  }
  return utilization;
}

void Readings::add(std::shared_ptr<const observe::Snapshot> reading) {
  const uint64_t now = reading->at_ns;
  readings_.push_back(std::move(reading));
  const auto age = [now](const auto& one) { return observe::since(now, one->at_ns); };
  while (age(readings_.front()) > kOldestNs) readings_.pop_front();
  while (readings_.size() > 2 && age(readings_[1]) >= kSampleNs) readings_.pop_front();
}

std::shared_ptr<const observe::Snapshot> Readings::latest() const {
  return readings_.empty() ? nullptr : readings_.back();
}

std::shared_ptr<const observe::Snapshot> Readings::before() const {
  return readings_.size() < 2 ? nullptr : readings_.front();
}

}  // namespace openmps::share_nvml
