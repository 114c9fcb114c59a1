// SPDX-License-Identifier: Apache-2.0
// The daemon's devices as NVML's calls see them (nvml/machine.h), for programs in a container that
// has a share and no GPU: libnvidia-ml.so.1. Loads into everything, so it has neither threads nor
// open descriptors between calls, and a child that was forked goes on as its parent. Any thread.
#include "nvml/machine.h"

#include <poll.h>
#include <sys/stat.h>

#include <cerrno>
#include <fstream>
#include <utility>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/text.h"
#include "share_nvml/share.h"
#include "wire/control_call.h"
#include "wire/daemon_search.h"

namespace openmps::share_nvml {
namespace {

// Calls within that time have one answer. A reading is two commands, so a program costs the daemon
// ten in a second at most.
constexpr uint64_t kFreshNs = 200 * kNsPerMs;
// A daemon answers in a millisecond. If it has no server yet, it starts one to learn the devices:
// a worker for eight GPUs takes some seconds.
constexpr int kAnswerMs = 30'000;
// NVIDIA's kernel module, whose version is the driver's. Containers see it, too.
constexpr const char* kDriverVersionFile = "/sys/module/nvidia/version";

// 0: not known.
uint32_t own_pid_namespace() {
  struct stat info {};
  return stat("/proc/self/ns/pid", &info) == 0 ? static_cast<uint32_t>(info.st_ino) : 0;
}

Result<std::string> ask(int socket, std::string_view command) {
  OPENMPS_RETURN_IF_ERROR(wire::send_command(socket, command));
  const Clock& clock = monotonic_clock();
  const uint64_t end_ns = clock.now_ns() + kAnswerMs * kNsPerMs;
  pollfd answered{socket, POLLIN, 0};
  int ready = 0;
  do {
    const uint64_t now_ns = clock.now_ns();
    const uint64_t left_ms = now_ns < end_ns ? (end_ns - now_ns) / kNsPerMs : 0;
    ready = poll(&answered, 1, static_cast<int>(left_ms));
  } while (ready < 0 && errno == EINTR);
  if (ready <= 0) return Status(CUDA_ERROR_TIMEOUT, "OpenMPS's daemon does not answer");
  Result<wire::ControlReply> reply = wire::receive_reply(socket);
  if (!reply.ok()) return reply.status();
  if (reply->exit_status == 0) return std::move(reply->text);
  const std::string line = reply->text.substr(0, reply->text.find('\n'));
  return Status(CUDA_ERROR_SYSTEM_NOT_READY, "OpenMPS's daemon says: " + printable(line));
}

Result<observe::Snapshot> ask_daemon() {
  const wire::DaemonSearch daemon = wire::find_daemon();
  if (!daemon.socket.ok()) return daemon.socket.status();
  const Result<std::string> devices = ask(daemon.socket->get(), "device_query --json");
  if (!devices.ok()) return devices.status();
  const Result<std::string> clients = ask(daemon.socket->get(), "ps --json");
  if (!clients.ok()) return clients.status();
  observe::Snapshot snapshot;
  snapshot.at_ns = now_ns();
  Result<std::vector<observe::Device>> read_devices = observe::read_devices(*devices);
  if (!read_devices.ok()) return read_devices.status();
  Result<std::vector<observe::Client>> read_clients = observe::read_clients(*clients);
  if (!read_clients.ok()) return read_clients.status();
  snapshot.devices = std::move(*read_devices);
  snapshot.clients = std::move(*read_clients);
  return snapshot;
}

std::string driver_version() {
  std::ifstream file(kDriverVersionFile);
  std::string version;
  std::getline(file, version);
  return version;
}

class DaemonMachine final : public nvml::Machine {
 public:
  using Reading = std::shared_ptr<const observe::Snapshot>;

  // Before all other calls, which its success allows.
  Status open() {
    const Result<Reading> first = latest();
    if (!first.ok()) return first.status();
    devices_ = devices_of(**first);
    versions_ = {driver_version(), cuda_version_of(**first)};
    return Status();
  }

  [[nodiscard]] const std::vector<nvml::Device>& devices() const override { return devices_; }
  [[nodiscard]] nvml::Versions versions() const override { return versions_; }

  [[nodiscard]] Result<nvml::Memory> memory(size_t device) const override {
    const Result<Reading> now = latest();
    return now.ok() ? memory_of(**now, devices_[device].uuid) : now.status();
  }

  [[nodiscard]] Result<std::vector<nvml::Process>> processes(size_t device) const override {
    const Result<Reading> now = latest();
    if (!now.ok()) return now.status();
    return processes_of(**now, devices_[device].uuid, own_pid_namespace());
  }

  // The first question of a program may wait for the second reading.
  [[nodiscard]] Result<nvml::Utilization> utilization(size_t device) const override {
    while (true) {
      const Result<Reading> now = latest();
      if (!now.ok()) return now.status();
      const Reading before = before_latest();
      if (before != nullptr) {
        return utilization_between(*before, **now, devices_[device].uuid, own_pid_namespace());
      }
      monotonic_clock().sleep(kFreshNs);
    }
  }

  [[nodiscard]] std::unique_ptr<nvml::Faults> watch_faults(size_t) const override {
    return nullptr;
  }

 private:
  // Not older than kFreshNs. Errors stay as long, too.
  [[nodiscard]] Result<Reading> latest() const {
    const MutexLock guard(lock_);
    const uint64_t now = now_ns();
    if (asked_ns_ == 0 || now - asked_ns_ >= kFreshNs) {
      Result<observe::Snapshot> answer = ask_daemon();
      asked_ns_ = now_ns();
      error_ = answer.ok() ? Status() : answer.status();
      if (answer.ok()) {
        readings_.add(std::make_shared<const observe::Snapshot>(std::move(*answer)));
      }
    }
    if (!error_.ok()) return error_;
    return readings_.latest();
  }

  [[nodiscard]] Reading before_latest() const {
    const MutexLock guard(lock_);
    return readings_.before();
  }

  // Constant from open() on.
  std::vector<nvml::Device> devices_;
  nvml::Versions versions_;
  mutable Mutex lock_{
      LockRank::kNvmlShare};  // also while the daemon is asked: one question serves all
  mutable Readings readings_ GUARDED_BY(lock_);
  mutable uint64_t asked_ns_ GUARDED_BY(lock_) = 0;  // 0: never
  mutable Status error_ GUARDED_BY(lock_);
};

}  // namespace
}  // namespace openmps::share_nvml

namespace openmps::nvml {

Result<std::unique_ptr<Machine>> open_machine() {
  auto machine = std::make_unique<share_nvml::DaemonMachine>();
  OPENMPS_RETURN_IF_ERROR(machine->open());
  return std::unique_ptr<Machine>(std::move(machine));
}

}  // namespace openmps::nvml
