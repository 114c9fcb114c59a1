// SPDX-License-Identifier: Apache-2.0
// See xid_monitor.h.
#include "worker/process/xid_monitor.h"

#include <dlfcn.h>
#include <pthread.h>

#include <cstdio>
#include <utility>

#include "nvml/abi.h"

namespace openmps::worker {
namespace {

// How long the thread waits for an event at most: the end of the worker waits for it.
constexpr unsigned kWaitMs = 200;
std::string uuid_of(const DriverTable& driver, CUdevice device) {
  CUuuid uuid{};
  if (driver.cuDeviceGetUuid_v2(&uuid, device) != CUDA_SUCCESS) return {};
  std::string text = "GPU";
  for (int i = 0; i < 16; ++i) {
    char digits[4];
    snprintf(digits, sizeof(digits), "%02x", static_cast<unsigned char>(uuid.bytes[i]));
    if (i == 0 || (i >= 4 && i <= 10 && i % 2 == 0)) text += "-";
    text += digits;
  }
  return text;
}

}  // namespace

CUresult fault_of_xid(uint64_t xid) {
  switch (xid) {
    case 31: return CUDA_ERROR_ILLEGAL_ADDRESS;
    case 13:
    case 43: return CUDA_ERROR_LAUNCH_FAILED;
    default: return CUDA_SUCCESS;
  }
}

struct XidMonitor::Nvml {
  void* library = nullptr;
  std::vector<std::pair<uint32_t, nvmlDevice_t>> devices;  // by the worker's number
  nvmlEventSet_t events = nullptr;
  nvmlReturn_t (*wait)(nvmlEventSet_t, nvmlEventData_t*, unsigned) = nullptr;

  template <typename Function>
  bool find(const char* name, Function** function) const {
    *function = reinterpret_cast<Function*>(dlsym(library, name));
    return *function != nullptr;
  }
};

XidMonitor::XidMonitor() : nvml_(std::make_unique<Nvml>()) {}

std::unique_ptr<XidMonitor> XidMonitor::open(const DriverTable& driver, const Devices& devices,
                                             const std::string& path, std::string* why) {
  std::unique_ptr<XidMonitor> monitor(new XidMonitor);
  Nvml& nvml = *monitor->nvml_;
  const std::string beside = path.substr(0, path.rfind('/') + 1) + "libnvidia-ml.so.1";
  for (const std::string& name : {beside, std::string("libnvidia-ml.so.1")}) {
    if (nvml.library == nullptr) nvml.library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  }
  nvmlReturn_t (*init)() = nullptr;
  nvmlReturn_t (*by_uuid)(const char*, nvmlDevice_t*) = nullptr;
  nvmlReturn_t (*make_events)(nvmlEventSet_t*) = nullptr;
  nvmlReturn_t (*watch)(nvmlDevice_t, unsigned long long, nvmlEventSet_t) = nullptr;
  const auto fail = [&](const char* reason) {
    *why = reason;
    return nullptr;
  };
  if (nvml.library == nullptr) return fail("libnvidia-ml.so.1 is not there");
  if (!nvml.find("nvmlInit_v2", &init) || !nvml.find("nvmlDeviceGetHandleByUUID", &by_uuid) ||
      !nvml.find("nvmlEventSetCreate", &make_events) ||
      !nvml.find("nvmlDeviceRegisterEvents", &watch) ||
      !nvml.find("nvmlEventSetWait_v2", &nvml.wait)) {
    return fail("libnvidia-ml.so.1 has no events");
  }
  if (init() != NVML_SUCCESS || make_events(&nvml.events) != NVML_SUCCESS) {
    return fail("NVML does not start");
  }
  for (const uint32_t i : devices.used()) {
    nvmlDevice_t device = nullptr;
    const std::string uuid = uuid_of(driver, devices.at(i).handle);
    if (by_uuid(uuid.c_str(), &device) != NVML_SUCCESS ||
        watch(device, nvml::kEventXid, nvml.events) != NVML_SUCCESS) {
      return fail("NVML does not watch the devices");
    }
    nvml.devices.emplace_back(i, device);
  }
  return monitor;
}

XidMonitor::~XidMonitor() {
  stop_.store(true);
  if (thread_.joinable()) thread_.join();
}

void XidMonitor::start(OnXid on_xid) {
  on_xid_ = std::move(on_xid);
  thread_ = std::thread([this] { run(); });
}

void XidMonitor::run() {
  pthread_setname_np(pthread_self(), "xid");
  while (!stop_.load()) {
    nvmlEventData_t event{};
    const nvmlReturn_t result = nvml_->wait(nvml_->events, &event, kWaitMs);
    if (result == NVML_ERROR_TIMEOUT) continue;
    if (result != NVML_SUCCESS) return;  // the GPU is lost: the driver says more
    for (const auto& [number, device] : nvml_->devices) {
      if (device == event.device) on_xid_(number, event.eventData);
    }
  }
}

}  // namespace openmps::worker
