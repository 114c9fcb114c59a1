// SPDX-License-Identifier: Apache-2.0
// NVML's functions over a Machine (machine.h). What the machine has no notion of (clocks, power,
// temperatures, NVLink, MIG, ECC) is NVML_ERROR_NOT_SUPPORTED, as on a GPU without it. Functions
// that tools ask for by name are there for that answer, too.
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string_view>

#include "base/clock.h"
#include "base/mutex.h"
#include "nvml/abi.h"
#include "nvml/machine.h"

// A handle of a device is its address in Machine::devices().
struct nvmlDevice_st : openmps::nvml::Device {};

struct nvmlEventSet_st {
  struct Watched {
    size_t device;
    std::unique_ptr<openmps::nvml::Faults> faults;
  };
  openmps::Mutex lock{openmps::LockRank::kNvmlEvents};
  std::vector<Watched> watched GUARDED_BY(lock);
};

namespace openmps::nvml {
namespace {

constexpr char kNvmlVersion[] = "13.580.65.06";  // whose interface abi.h has
constexpr unsigned kVendorNvidia = 0x10de;
constexpr uint64_t kEventPauseNs = 2 * kNsPerMs;  // NVML's own Xid events come after 11 ms and more
constexpr int kTopologySystem = 50;               // NVML_TOPOLOGY_SYSTEM: nothing nearer in common
constexpr int kP2pOk = 0;                         // NVML_P2P_STATUS_OK
constexpr int kP2pNotSupported = 5;               // NVML_P2P_STATUS_NOT_SUPPORTED
constexpr unsigned kP2pByNvlink = 2;              // NVML_P2P_CAPS_INDEX_NVLINK
constexpr unsigned kComputeModeDefault = 0;
constexpr unsigned kComputeModeExclusiveProcess = 3;

// The machine of this process, made by the first nvmlInit and kept for good.
std::atomic<const Machine*> machine{nullptr};
std::atomic<int> users{0};

// Why there is no machine, once: programs try again, and that there is none is usual.
void explain(const Status& status) {
  static std::atomic<bool> is_explained{false};
  if (status.code() == CUDA_ERROR_MPS_CONNECTION_FAILED || is_explained.exchange(true)) return;
  fprintf(stderr, "NVML: %s\n", status.message().c_str());
}

// Null: there is none.
const Machine* opened_machine() {
  if (const Machine* const there = machine.load()) return there;
  Result<std::unique_ptr<Machine>> opened = open_machine();
  if (!opened.ok()) {
    explain(opened.status());
    return nullptr;
  }
  const Machine* another = nullptr;  // that another thread has opened meanwhile
  return machine.compare_exchange_strong(another, opened->get()) ? opened->release() : another;
}

nvmlReturn_t init() {
  if (opened_machine() == nullptr) return NVML_ERROR_DRIVER_NOT_LOADED;
  ++users;
  return NVML_SUCCESS;
}

nvmlReturn_t error_of(const Status& status) {
  switch (status.code()) {
    case CUDA_ERROR_NOT_PERMITTED: return NVML_ERROR_NO_PERMISSION;
    case CUDA_ERROR_NOT_SUPPORTED: return NVML_ERROR_NOT_SUPPORTED;
    case CUDA_ERROR_TIMEOUT: return NVML_ERROR_TIMEOUT;
    case CUDA_ERROR_MPS_CONNECTION_FAILED:
    case CUDA_ERROR_MPS_RPC_FAILURE: return NVML_ERROR_DRIVER_NOT_LOADED;
    default: return NVML_ERROR_UNKNOWN;
  }
}

// call(machine) if NVML is initialised.
template <typename Call>
nvmlReturn_t with_machine(Call&& call) {
  if (users.load() <= 0) return NVML_ERROR_UNINITIALIZED;
  return call(*machine.load());
}

// call(machine, ordinal of the device).
template <typename Call>
nvmlReturn_t with_device(nvmlDevice_t handle, Call&& call) {
  return with_machine([&](const Machine& machine) -> nvmlReturn_t {
    const std::vector<Device>& devices = machine.devices();
    for (size_t i = 0; i < devices.size(); ++i) {
      if (&devices[i] == handle) return call(machine, i);
    }
    return NVML_ERROR_INVALID_ARGUMENT;
  });
}

nvmlReturn_t unsupported(nvmlDevice_t handle) {
  return with_device(handle, [](const Machine&, size_t) { return NVML_ERROR_NOT_SUPPORTED; });
}

nvmlReturn_t give_text(std::string_view text, char* to, unsigned bytes) {
  if (to == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (text.size() >= bytes) return NVML_ERROR_INSUFFICIENT_SIZE;
  memcpy(to, text.data(), text.size());
  to[text.size()] = '\0';
  return NVML_SUCCESS;
}

template <typename T>
nvmlReturn_t give(T value, T* to) {
  if (to == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *to = value;
  return NVML_SUCCESS;
}

nvmlReturn_t give_handle(const Device& device, nvmlDevice_t* to) {
  return give(static_cast<nvmlDevice_t>(const_cast<Device*>(&device)), to);
}

// The device for which that is true.
template <typename Is>
nvmlReturn_t find_device(nvmlDevice_t* to, Is&& is) {
  return with_machine([&](const Machine& machine) {
    const auto& devices = machine.devices();
    const auto found = std::find_if(devices.begin(), devices.end(), is);
    return found == devices.end() ? NVML_ERROR_NOT_FOUND : give_handle(*found, to);
  });
}

// Processes with memory or a context, as the version of the structure that `Info` is.
template <typename Info>
nvmlReturn_t list_processes(nvmlDevice_t handle, unsigned* count, Info* infos) {
  if (count == nullptr || (infos == nullptr && *count != 0)) return NVML_ERROR_INVALID_ARGUMENT;
  return with_device(handle, [&](const Machine& machine, size_t device) {
    const Result<std::vector<Process>> processes = machine.processes(device);
    if (!processes.ok()) return error_of(processes.status());
    const auto found = static_cast<unsigned>(processes->size());
    if (*count < found) {
      *count = found;
      return NVML_ERROR_INSUFFICIENT_SIZE;
    }
    *count = found;
    for (unsigned i = 0; i < found; ++i) {
      infos[i] = {};
      infos[i].pid = static_cast<unsigned>((*processes)[i].pid);
      infos[i].usedGpuMemory = (*processes)[i].memory_bytes;
      if constexpr (requires { infos[i].gpuInstanceId; }) {
        infos[i].gpuInstanceId = infos[i].computeInstanceId = kNoInstance;
      }
    }
    return NVML_SUCCESS;
  });
}

// What each process has used of the device lately: one sample, whatever the caller has seen.
nvmlReturn_t process_utilization(nvmlDevice_t handle, nvmlProcessUtilizationSample_t* samples,
                                 unsigned* count) {
  if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  return with_device(handle, [&](const Machine& machine, size_t device) {
    const Result<Utilization> utilization = machine.utilization(device);
    if (!utilization.ok()) return error_of(utilization.status());
    const auto found = static_cast<unsigned>(utilization->processes.size());
    const bool has_room = samples != nullptr && *count >= found;
    *count = found;
    if (found == 0) return NVML_ERROR_NOT_FOUND;
    if (!has_room) return NVML_ERROR_INSUFFICIENT_SIZE;
    const auto now = std::chrono::duration_cast<std::chrono::microseconds>(
        std::chrono::system_clock::now().time_since_epoch());
    for (unsigned i = 0; i < found; ++i) {
      samples[i] = {};
      samples[i].pid = static_cast<unsigned>(utilization->processes[i].pid);
      samples[i].timeStamp = static_cast<unsigned long long>(now.count());
      samples[i].smUtil = utilization->processes[i].percent;
    }
    return NVML_SUCCESS;
  });
}

// NVML_DEVICE_ARCH_VOLTA to _BLACKWELL, and _UNKNOWN, by compute capability.
unsigned architecture_of(uint32_t capability) {
  struct Row {
    uint32_t capability;
    unsigned architecture;
  };
  constexpr Row kRows[] = {{120, 10}, {100, 10}, {90, 9}, {89, 8}, {80, 7}, {75, 6}, {70, 5}};
  for (const Row& row : kRows) {
    if (capability >= row.capability) return row.architecture;
  }
  return 0xffffffff;
}

nvmlReturn_t cuda_version(int* version) {
  const Machine* const there = opened_machine();
  if (there == nullptr) return NVML_ERROR_LIBRARY_NOT_FOUND;
  const auto number = static_cast<int>(there->versions().cuda);
  return number == 0 ? NVML_ERROR_NOT_SUPPORTED : give(number, version);
}

// No device of ours draws.
nvmlReturn_t no_processes(nvmlDevice_t handle, unsigned* count) {
  if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  return with_device(handle, [&](const Machine&, size_t) {
    *count = 0;
    return NVML_SUCCESS;
  });
}

nvmlReturn_t pci_info(nvmlDevice_t handle, nvmlPciInfo_t* info, size_t bytes) {
  if (info == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  return with_device(handle, [&](const Machine& machine, size_t device) {
    const cuda::PciAddress& pci = machine.devices()[device].pci;
    nvmlPciInfo_t all{};
    snprintf(all.busIdLegacy, sizeof all.busIdLegacy, "%04X:%02X:%02X.0", pci.domain & 0xffff,
             pci.bus & 0xff, pci.device & 0xff);
    snprintf(all.busId, sizeof all.busId, "%08X:%02X:%02X.0", pci.domain, pci.bus & 0xff,
             pci.device & 0xff);
    all.domain = pci.domain;
    all.bus = pci.bus;
    all.device = pci.device;
    all.pciDeviceId = kVendorNvidia;
    memcpy(info, &all, bytes);
    return NVML_SUCCESS;
  });
}

// The next Xid of the set's devices.
bool take_event(nvmlEventSet_st& set, const Machine& machine, nvmlEventData_t* event) {
  const MutexLock guard(set.lock);
  for (nvmlEventSet_st::Watched& watched : set.watched) {
    const std::optional<uint32_t> xid = watched.faults->next();
    if (!xid) continue;
    nvmlDevice_t handle = nullptr;
    give_handle(machine.devices()[watched.device], &handle);
    *event = {handle, kEventXid, *xid, kNoInstance, kNoInstance};
    return true;
  }
  return false;
}

nvmlReturn_t wait_for_event(nvmlEventSet_t set, nvmlEventData_t* event, unsigned timeout_ms) {
  if (set == nullptr || event == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  return with_machine([&](const Machine& machine) {
    const Clock& clock = monotonic_clock();
    const uint64_t end_ns = clock.now_ns() + timeout_ms * kNsPerMs;
    while (!take_event(*set, machine, event)) {
      if (clock.now_ns() >= end_ns) return NVML_ERROR_TIMEOUT;
      clock.sleep(kEventPauseNs);
    }
    return NVML_SUCCESS;
  });
}

const char* describe(nvmlReturn_t error) {
  switch (error) {
    case NVML_SUCCESS: return "The operation was successful";
    case NVML_ERROR_UNINITIALIZED: return "NVML has not been initialized";
    case NVML_ERROR_INVALID_ARGUMENT: return "An argument is invalid";
    case NVML_ERROR_NOT_SUPPORTED: return "The device does not support this";
    case NVML_ERROR_NO_PERMISSION: return "The user has no permission for this";
    case NVML_ERROR_NOT_FOUND: return "There is no such object";
    case NVML_ERROR_INSUFFICIENT_SIZE: return "The buffer is too small";
    case NVML_ERROR_DRIVER_NOT_LOADED: return "There is no driver";
    case NVML_ERROR_TIMEOUT: return "The time is over";
    case NVML_ERROR_FUNCTION_NOT_FOUND: return "There is no such function";
    case NVML_ERROR_OPERATING_SYSTEM: return "The operating system refuses this";
    case NVML_ERROR_MEMORY: return "There is not enough memory";
    case NVML_ERROR_ARGUMENT_VERSION_MISMATCH: return "The version of a structure is not known";
    default: return "Unknown error";
  }
}

}  // namespace
}  // namespace openmps::nvml

using namespace openmps::nvml;  // NOLINT: what follows is the C interface of these functions
using openmps::Result;

#pragma GCC visibility push(default)
extern "C" {

// Start and end.

nvmlReturn_t nvmlInit_v2() { return init(); }
nvmlReturn_t nvmlInit() { return init(); }
nvmlReturn_t nvmlInitWithFlags(unsigned) { return init(); }
nvmlReturn_t nvmlShutdown() {
  for (int now = users.load(); now > 0;) {
    if (users.compare_exchange_weak(now, now - 1)) return NVML_SUCCESS;
  }
  return NVML_ERROR_UNINITIALIZED;
}
const char* nvmlErrorString(nvmlReturn_t error) { return describe(error); }

// The system.

nvmlReturn_t nvmlSystemGetDriverVersion(char* version, unsigned length) {
  return with_machine([&](const Machine& machine) {
    const std::string driver = machine.versions().driver;
    return driver.empty() ? NVML_ERROR_NOT_SUPPORTED : give_text(driver, version, length);
  });
}
nvmlReturn_t nvmlSystemGetNVMLVersion(char* version, unsigned length) {
  return give_text(kNvmlVersion, version, length);
}
nvmlReturn_t nvmlSystemGetCudaDriverVersion(int* version) { return cuda_version(version); }
nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int* version) { return cuda_version(version); }
nvmlReturn_t nvmlSystemGetProcessName(unsigned pid, char* name, unsigned length) {
  return with_machine([&](const Machine&) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/cmdline");
    std::string program;
    if (!std::getline(file, program, '\0')) return NVML_ERROR_NOT_FOUND;
    if (name == nullptr || length == 0) return NVML_ERROR_INVALID_ARGUMENT;
    return give_text(program.substr(0, length - 1), name, length);
  });
}
nvmlReturn_t nvmlSystemGetConfComputeState(void*) { return NVML_ERROR_NOT_SUPPORTED; }
nvmlReturn_t nvmlSystemGetConfComputeSettings(void*) { return NVML_ERROR_NOT_SUPPORTED; }

// Devices.

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned* count) {
  return with_machine([&](const Machine& machine) {
    return give(static_cast<unsigned>(machine.devices().size()), count);
  });
}
nvmlReturn_t nvmlDeviceGetCount(unsigned* count) { return nvmlDeviceGetCount_v2(count); }

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t* device) {
  return with_machine([&](const Machine& machine) {
    const auto& devices = machine.devices();
    return index < devices.size() ? give_handle(devices[index], device)
                                  : NVML_ERROR_INVALID_ARGUMENT;
  });
}
nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t* device) {
  return nvmlDeviceGetHandleByIndex_v2(index, device);
}
nvmlReturn_t nvmlDeviceGetHandleByUUID(const char* uuid, nvmlDevice_t* device) {
  if (uuid == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  return find_device(device, [&](const Device& one) { return one.uuid == uuid; });
}
nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char* id, nvmlDevice_t* device) {
  if (id == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  const auto address = openmps::cuda::parse_pci_address(id);
  if (!address) return NVML_ERROR_INVALID_ARGUMENT;
  return find_device(device, [&](const Device& one) { return one.pci == *address; });
}
nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char* id, nvmlDevice_t* device) {
  return nvmlDeviceGetHandleByPciBusId_v2(id, device);
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned* index) {
  return with_device(device, [&](const Machine&, size_t ordinal) {
    return give(static_cast<unsigned>(ordinal), index);
  });
}
nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned* number) {
  return nvmlDeviceGetIndex(device, number);
}
nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char* name, unsigned length) {
  return with_device(device, [&](const Machine& machine, size_t ordinal) {
    return give_text(machine.devices()[ordinal].name, name, length);
  });
}
nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char* uuid, unsigned length) {
  return with_device(device, [&](const Machine& machine, size_t ordinal) {
    return give_text(machine.devices()[ordinal].uuid, uuid, length);
  });
}
nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t* info) {
  return pci_info(device, info, sizeof *info);
}
nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t* info) {
  return pci_info(device, info, offsetof(nvmlPciInfo_t, busId));
}
nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_t* info) {
  return pci_info(device, info, offsetof(nvmlPciInfo_t, busId));
}
nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int* major, int* minor) {
  if (major == nullptr || minor == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  return with_device(device, [&](const Machine& machine, size_t ordinal) {
    const auto capability = static_cast<int>(machine.devices()[ordinal].compute_capability);
    if (capability == 0) return NVML_ERROR_NOT_SUPPORTED;
    *major = capability / 10;
    *minor = capability % 10;
    return NVML_SUCCESS;
  });
}
nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, unsigned* architecture) {
  return with_device(device, [&](const Machine& machine, size_t ordinal) {
    return give(architecture_of(machine.devices()[ordinal].compute_capability), architecture);
  });
}
nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t device, unsigned* brand) {
  return with_device(device, [&](const Machine&, size_t) {
    return give(0u, brand);  // NVML_BRAND_UNKNOWN
  });
}
nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, unsigned* mode) {
  return with_device(device, [&](const Machine& machine, size_t ordinal) {
    return give(machine.devices()[ordinal].exclusive_process ? kComputeModeExclusiveProcess
                                                             : kComputeModeDefault,
                mode);
  });
}
nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, unsigned* mode) {
  return with_device(device, [&](const Machine&, size_t) { return give(1u, mode); });
}
nvmlReturn_t nvmlDeviceGetMultiGpuBoard(nvmlDevice_t device, unsigned* several) {
  return with_device(device, [&](const Machine&, size_t) { return give(0u, several); });
}
nvmlReturn_t nvmlDeviceOnSameBoard(nvmlDevice_t one, nvmlDevice_t other, int* same) {
  return with_device(one, [&](const Machine&, size_t) {
    return with_device(other, [&](const Machine&, size_t) { return give(0, same); });
  });
}
nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned* is_one) {
  return with_device(device, [&](const Machine&, size_t) { return give(0u, is_one); });
}
nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned* count) {
  return with_device(device, [&](const Machine&, size_t) { return give(0u, count); });
}
nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned words, unsigned long* cpus) {
  if (cpus == nullptr || words == 0) return NVML_ERROR_INVALID_ARGUMENT;
  return with_device(device, [&](const Machine&, size_t) {
    cpu_set_t usable;
    if (sched_getaffinity(0, sizeof usable, &usable) != 0) return NVML_ERROR_OPERATING_SYSTEM;
    std::fill_n(cpus, words, 0ul);
    constexpr size_t kBits = CHAR_BIT * sizeof *cpus;
    for (size_t cpu = 0; cpu < std::min<size_t>(words * kBits, CPU_SETSIZE); ++cpu) {
      if (CPU_ISSET(cpu, &usable)) cpus[cpu / kBits] |= 1ul << (cpu % kBits);
    }
    return NVML_SUCCESS;
  });
}
nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t one, nvmlDevice_t other, int* level) {
  return with_device(one, [&](const Machine&, size_t) {
    return with_device(other, [&](const Machine&, size_t) { return give(kTopologySystem, level); });
  });
}
// That nothing forbids reading and writing, which NCCL asks: cuDeviceCanAccessPeer decides.
nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t one, nvmlDevice_t other, unsigned what,
                                    int* status) {
  return with_device(one, [&](const Machine&, size_t) {
    return with_device(other, [&](const Machine&, size_t) {
      return give(what == kP2pByNvlink ? kP2pNotSupported : kP2pOk, status);
    });
  });
}

// Memory and processes.

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t* info) {
  return with_device(device, [&](const Machine& machine, size_t ordinal) {
    const Result<Memory> memory = machine.memory(ordinal);
    if (!memory.ok()) return error_of(memory.status());
    const uint64_t used = std::min(memory->used_bytes, memory->total_bytes);
    return give({memory->total_bytes, memory->total_bytes - used, used}, info);
  });
}
nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t* info) {
  if (info == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  constexpr unsigned kVersion = sizeof *info | 2u << 24;
  if (info->version != kVersion) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  nvmlMemory_t memory{};
  const nvmlReturn_t result = nvmlDeviceGetMemoryInfo(device, &memory);
  if (result == NVML_SUCCESS) *info = {kVersion, memory.total, 0, memory.free, memory.used};
  return result;
}
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned* count,
                                                  nvmlProcessInfo_v1_t* infos) {
  return list_processes(device, count, infos);
}
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned* count,
                                                     nvmlProcessInfo_v2_t* infos) {
  return list_processes(device, count, infos);
}
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned* count,
                                                     nvmlProcessInfo_v2_t* infos) {
  return list_processes(device, count, infos);
}
nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses(nvmlDevice_t device, unsigned* count, void*) {
  return no_processes(device, count);
}
nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t device, unsigned* count, void*) {
  return no_processes(device, count);
}
nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned* count, void*) {
  return no_processes(device, count);
}
nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses(nvmlDevice_t device, unsigned* count, void*) {
  return no_processes(device, count);
}
nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v2(nvmlDevice_t device, unsigned* count,
                                                        void*) {
  return no_processes(device, count);
}
nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device, unsigned* count,
                                                        void*) {
  return no_processes(device, count);
}

// Utilization. How busy the memory is, is not counted.

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t* rates) {
  return with_device(device, [&](const Machine& machine, size_t ordinal) {
    const Result<Utilization> utilization = machine.utilization(ordinal);
    if (!utilization.ok()) return error_of(utilization.status());
    return give({utilization->percent, 0}, rates);
  });
}
nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
                                             nvmlProcessUtilizationSample_t* samples,
                                             unsigned* count, unsigned long long) {
  return process_utilization(device, samples, count);
}

// Events: Xid errors alone.

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t* set) {
  return with_machine([&](const Machine&) {
    if (set == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    *set = new nvmlEventSet_st;
    return NVML_SUCCESS;
  });
}
nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long* types) {
  return with_device(device, [&](const Machine& machine, size_t ordinal) {
    return give(machine.watch_faults(ordinal) == nullptr ? 0 : kEventXid, types);
  });
}
nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types,
                                      nvmlEventSet_t set) {
  if (set == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  return with_device(device, [&](const Machine& machine, size_t ordinal) {
    if ((types & ~kEventXid) != 0) return NVML_ERROR_NOT_SUPPORTED;
    std::unique_ptr<Faults> faults = machine.watch_faults(ordinal);
    if (faults == nullptr) return NVML_ERROR_NOT_SUPPORTED;
    const openmps::MutexLock guard(set->lock);
    const bool is_watched =
        std::any_of(set->watched.begin(), set->watched.end(),
                    [&](const auto& watched) { return watched.device == ordinal; });
    if (types != 0 && !is_watched) {
      set->watched.push_back({ordinal, std::move(faults)});
    }
    return NVML_SUCCESS;
  });
}
nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t* event, unsigned timeout_ms) {
  return wait_for_event(set, event, timeout_ms);
}
nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_v1_t* event, unsigned timeout_ms) {
  if (event == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  nvmlEventData_t found{};
  const nvmlReturn_t result = wait_for_event(set, &found, timeout_ms);
  if (result == NVML_SUCCESS) *event = {found.device, found.eventType, found.eventData};
  return result;
}
nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) {
  if (set == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  delete set;
  return NVML_SUCCESS;
}

// What no such machine has.

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t* values) {
  if (values == nullptr || count < 1) return NVML_ERROR_INVALID_ARGUMENT;
  return with_device(device, [&](const Machine&, size_t) {
    for (int i = 0; i < count; ++i) values[i].nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
    return NVML_SUCCESS;
  });
}
#define OPENMPS_UNSUPPORTED(name) \
  nvmlReturn_t name(nvmlDevice_t device) { return unsupported(device); }
// Further parameters are not looked at, which C's calling convention allows.
OPENMPS_UNSUPPORTED(nvmlDeviceGetAccountingBufferSize)
OPENMPS_UNSUPPORTED(nvmlDeviceGetAccountingMode)
OPENMPS_UNSUPPORTED(nvmlDeviceGetAccountingPids)
OPENMPS_UNSUPPORTED(nvmlDeviceGetAccountingStats)
OPENMPS_UNSUPPORTED(nvmlDeviceGetApplicationsClock)
OPENMPS_UNSUPPORTED(nvmlDeviceGetAttributes)
OPENMPS_UNSUPPORTED(nvmlDeviceGetAttributes_v2)
OPENMPS_UNSUPPORTED(nvmlDeviceGetAutoBoostedClocksEnabled)
OPENMPS_UNSUPPORTED(nvmlDeviceGetBAR1MemoryInfo)
OPENMPS_UNSUPPORTED(nvmlDeviceGetBoardId)
OPENMPS_UNSUPPORTED(nvmlDeviceGetBoardPartNumber)
OPENMPS_UNSUPPORTED(nvmlDeviceGetBusType)
OPENMPS_UNSUPPORTED(nvmlDeviceGetClock)
OPENMPS_UNSUPPORTED(nvmlDeviceGetClockInfo)
OPENMPS_UNSUPPORTED(nvmlDeviceGetComputeInstanceId)
OPENMPS_UNSUPPORTED(nvmlDeviceGetConfComputeMemSizeInfo)
OPENMPS_UNSUPPORTED(nvmlDeviceGetCpuAffinityWithinScope)
OPENMPS_UNSUPPORTED(nvmlDeviceGetCurrPcieLinkGeneration)
OPENMPS_UNSUPPORTED(nvmlDeviceGetCurrPcieLinkWidth)
OPENMPS_UNSUPPORTED(nvmlDeviceGetCurrentClocksEventReasons)
OPENMPS_UNSUPPORTED(nvmlDeviceGetCurrentClocksThrottleReasons)
OPENMPS_UNSUPPORTED(nvmlDeviceGetDecoderUtilization)
OPENMPS_UNSUPPORTED(nvmlDeviceGetDefaultApplicationsClock)
OPENMPS_UNSUPPORTED(nvmlDeviceGetDefaultEccMode)
OPENMPS_UNSUPPORTED(nvmlDeviceGetDetailedEccErrors)
OPENMPS_UNSUPPORTED(nvmlDeviceGetDeviceHandleFromMigDeviceHandle)
OPENMPS_UNSUPPORTED(nvmlDeviceGetDisplayActive)
OPENMPS_UNSUPPORTED(nvmlDeviceGetDisplayMode)
OPENMPS_UNSUPPORTED(nvmlDeviceGetDriverModel)
OPENMPS_UNSUPPORTED(nvmlDeviceGetDriverModel_v2)
OPENMPS_UNSUPPORTED(nvmlDeviceGetEccMode)
OPENMPS_UNSUPPORTED(nvmlDeviceGetEncoderCapacity)
OPENMPS_UNSUPPORTED(nvmlDeviceGetEncoderSessions)
OPENMPS_UNSUPPORTED(nvmlDeviceGetEncoderStats)
OPENMPS_UNSUPPORTED(nvmlDeviceGetEncoderUtilization)
OPENMPS_UNSUPPORTED(nvmlDeviceGetEnforcedPowerLimit)
OPENMPS_UNSUPPORTED(nvmlDeviceGetFanSpeed)
OPENMPS_UNSUPPORTED(nvmlDeviceGetFanSpeed_v2)
OPENMPS_UNSUPPORTED(nvmlDeviceGetGpuFabricInfo)
OPENMPS_UNSUPPORTED(nvmlDeviceGetGpuFabricInfoV)
OPENMPS_UNSUPPORTED(nvmlDeviceGetGpuInstanceId)
OPENMPS_UNSUPPORTED(nvmlDeviceGetGpuMaxPcieLinkGeneration)
OPENMPS_UNSUPPORTED(nvmlDeviceGetGpuOperationMode)
OPENMPS_UNSUPPORTED(nvmlDeviceGetGspFirmwareMode)
OPENMPS_UNSUPPORTED(nvmlDeviceGetGspFirmwareVersion)
OPENMPS_UNSUPPORTED(nvmlDeviceGetInforomImageVersion)
OPENMPS_UNSUPPORTED(nvmlDeviceGetInforomVersion)
OPENMPS_UNSUPPORTED(nvmlDeviceGetIrqNum)
OPENMPS_UNSUPPORTED(nvmlDeviceGetJpgUtilization)
OPENMPS_UNSUPPORTED(nvmlDeviceGetMaxClockInfo)
OPENMPS_UNSUPPORTED(nvmlDeviceGetMaxCustomerBoostClock)
OPENMPS_UNSUPPORTED(nvmlDeviceGetMaxPcieLinkGeneration)
OPENMPS_UNSUPPORTED(nvmlDeviceGetMaxPcieLinkWidth)
OPENMPS_UNSUPPORTED(nvmlDeviceGetMemoryAffinity)
OPENMPS_UNSUPPORTED(nvmlDeviceGetMemoryBusWidth)
OPENMPS_UNSUPPORTED(nvmlDeviceGetMemoryErrorCounter)
OPENMPS_UNSUPPORTED(nvmlDeviceGetMigDeviceHandleByIndex)
OPENMPS_UNSUPPORTED(nvmlDeviceGetMigMode)
OPENMPS_UNSUPPORTED(nvmlDeviceGetModuleId)
OPENMPS_UNSUPPORTED(nvmlDeviceGetNumFans)
OPENMPS_UNSUPPORTED(nvmlDeviceGetNumGpuCores)
OPENMPS_UNSUPPORTED(nvmlDeviceGetNumaNodeId)
OPENMPS_UNSUPPORTED(nvmlDeviceGetNvLinkCapability)
OPENMPS_UNSUPPORTED(nvmlDeviceGetNvLinkErrorCounter)
OPENMPS_UNSUPPORTED(nvmlDeviceGetNvLinkRemoteDeviceType)
OPENMPS_UNSUPPORTED(nvmlDeviceGetNvLinkRemotePciInfo)
OPENMPS_UNSUPPORTED(nvmlDeviceGetNvLinkRemotePciInfo_v2)
OPENMPS_UNSUPPORTED(nvmlDeviceGetNvLinkState)
OPENMPS_UNSUPPORTED(nvmlDeviceGetNvLinkVersion)
OPENMPS_UNSUPPORTED(nvmlDeviceGetOfaUtilization)
OPENMPS_UNSUPPORTED(nvmlDeviceGetPcieLinkMaxSpeed)
OPENMPS_UNSUPPORTED(nvmlDeviceGetPcieReplayCounter)
OPENMPS_UNSUPPORTED(nvmlDeviceGetPcieSpeed)
OPENMPS_UNSUPPORTED(nvmlDeviceGetPcieThroughput)
OPENMPS_UNSUPPORTED(nvmlDeviceGetPerformanceState)
OPENMPS_UNSUPPORTED(nvmlDeviceGetPlatformInfo)
OPENMPS_UNSUPPORTED(nvmlDeviceGetPowerManagementDefaultLimit)
OPENMPS_UNSUPPORTED(nvmlDeviceGetPowerManagementLimit)
OPENMPS_UNSUPPORTED(nvmlDeviceGetPowerManagementLimitConstraints)
OPENMPS_UNSUPPORTED(nvmlDeviceGetPowerManagementMode)
OPENMPS_UNSUPPORTED(nvmlDeviceGetPowerSource)
OPENMPS_UNSUPPORTED(nvmlDeviceGetPowerState)
OPENMPS_UNSUPPORTED(nvmlDeviceGetPowerUsage)
OPENMPS_UNSUPPORTED(nvmlDeviceGetProcessesUtilizationInfo)
OPENMPS_UNSUPPORTED(nvmlDeviceGetRemappedRows)
OPENMPS_UNSUPPORTED(nvmlDeviceGetRetiredPages)
OPENMPS_UNSUPPORTED(nvmlDeviceGetRetiredPagesPendingStatus)
OPENMPS_UNSUPPORTED(nvmlDeviceGetRetiredPages_v2)
OPENMPS_UNSUPPORTED(nvmlDeviceGetRunningProcessDetailList)
OPENMPS_UNSUPPORTED(nvmlDeviceGetSamples)
OPENMPS_UNSUPPORTED(nvmlDeviceGetSerial)
OPENMPS_UNSUPPORTED(nvmlDeviceGetSupportedClocksEventReasons)
OPENMPS_UNSUPPORTED(nvmlDeviceGetSupportedClocksThrottleReasons)
OPENMPS_UNSUPPORTED(nvmlDeviceGetSupportedGraphicsClocks)
OPENMPS_UNSUPPORTED(nvmlDeviceGetSupportedMemoryClocks)
OPENMPS_UNSUPPORTED(nvmlDeviceGetTargetFanSpeed)
OPENMPS_UNSUPPORTED(nvmlDeviceGetTemperature)
OPENMPS_UNSUPPORTED(nvmlDeviceGetTemperatureThreshold)
OPENMPS_UNSUPPORTED(nvmlDeviceGetTemperatureV)
OPENMPS_UNSUPPORTED(nvmlDeviceGetThermalSettings)
OPENMPS_UNSUPPORTED(nvmlDeviceGetTotalEccErrors)
OPENMPS_UNSUPPORTED(nvmlDeviceGetTotalEnergyConsumption)
OPENMPS_UNSUPPORTED(nvmlDeviceGetVbiosVersion)
OPENMPS_UNSUPPORTED(nvmlDeviceGetViolationStatus)
OPENMPS_UNSUPPORTED(nvmlDeviceGetVirtualizationMode)
#undef OPENMPS_UNSUPPORTED

}  // extern "C"
#pragma GCC visibility pop
