// SPDX-License-Identifier: Apache-2.0
// NVML compared with the driver: devices, memory, processes, and the Xid event of a kernel's fault
// in another process. On a GPU this runs with NVIDIA's NVML. Run by run_e2e.py, and in containers
// with NVML of their share, which tells of no faults. usage: drv_nvml [share]
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <string_view>
#include <thread>

#include "driver.h"
#include "in_child.h"
#include "nvml/abi.h"

namespace {

constexpr size_t kBytes = 32 << 20;
constexpr unsigned kLimitMs = 10'000;

void* g_library = nullptr;

template <typename... Parameters, typename... Arguments>
nvmlReturn_t call(nvmlReturn_t (*)(Parameters...), const char* name, Arguments... arguments) {
  auto* function = reinterpret_cast<nvmlReturn_t (*)(Parameters...)>(dlsym(g_library, name));
  if (function == nullptr) {
    e2e::expect(false, "there is no %s", name);
    exit(e2e::finish());
  }
  return function(arguments...);
}

// Looks up a function by its name, with the types of its parameters.
#define NVML(name, types, ...) \
  call(static_cast<nvmlReturn_t(*) types>(nullptr), #name __VA_OPT__(, ) __VA_ARGS__)

void expect_success(const char* what, nvmlReturn_t result) {
  if (result != NVML_SUCCESS) e2e::expect(false, "%s: %d", what, static_cast<int>(result));
}

nvmlDevice_t device_of(const char* uuid) {
  nvmlDevice_t device = nullptr;
  expect_success("handle by UUID",
                 NVML(nvmlDeviceGetHandleByUUID, (const char*, nvmlDevice_t*), uuid, &device));
  return device;
}

std::string uuid_text(CUdevice device) {
  CUuuid uuid{};
  CHECK_CU(cuDeviceGetUuid_v2(&uuid, device));
  std::string text = "GPU";
  for (int i = 0; i < 16; i++) {
    char digits[4];
    snprintf(digits, sizeof digits, "%02x", static_cast<unsigned char>(uuid.bytes[i]));
    if (i == 0 || (i >= 4 && i <= 10 && i % 2 == 0)) text += "-";
    text += digits;
  }
  return text;
}

void devices(CUdevice device, nvmlDevice_t handle) {
  char name[96];
  char wanted[96];
  CHECK_CU(cuDeviceGetName(wanted, sizeof wanted, device));
  expect_success("name", NVML(nvmlDeviceGetName, (nvmlDevice_t, char*, unsigned), handle, name,
                              unsigned{sizeof name}));
  e2e::expect(std::string(name) == wanted, "one name for both libraries");
  int major = 0;
  int minor = 0;
  int wanted_major = 0;
  CHECK_CU(
      cuDeviceGetAttribute(&wanted_major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device));
  expect_success("capability", NVML(nvmlDeviceGetCudaComputeCapability, (nvmlDevice_t, int*, int*),
                                    handle, &major, &minor));
  e2e::expect(major == wanted_major, "one compute capability");
  nvmlPciInfo_t pci{};
  expect_success("PCI",
                 NVML(nvmlDeviceGetPciInfo_v3, (nvmlDevice_t, nvmlPciInfo_t*), handle, &pci));
  int bus = 0;
  CHECK_CU(cuDeviceGetAttribute(&bus, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, device));
  e2e::expect(static_cast<int>(pci.bus) == bus, "one PCI address");
  nvmlDevice_t same = nullptr;
  expect_success("by PCI", NVML(nvmlDeviceGetHandleByPciBusId_v2, (const char*, nvmlDevice_t*),
                                static_cast<const char*>(pci.busId), &same));
  e2e::expect(same == handle, "a device has one handle");
  char tight[4];
  e2e::expect(NVML(nvmlDeviceGetName, (nvmlDevice_t, char*, unsigned), handle, tight,
                   unsigned{sizeof tight}) == NVML_ERROR_INSUFFICIENT_SIZE,
              "a name does not go beyond its buffer");
}

nvmlMemory_v2_t memory_of(nvmlDevice_t handle) {
  nvmlMemory_v2_t memory{};
  memory.version = sizeof memory | 2u << 24;
  expect_success("memory", NVML(nvmlDeviceGetMemoryInfo_v2, (nvmlDevice_t, nvmlMemory_v2_t*),
                                handle, &memory));
  return memory;
}

void memory(nvmlDevice_t handle) {
  const nvmlMemory_v2_t before = memory_of(handle);
  const e2e::Buffer<unsigned char> buffer(kBytes);
  nvmlMemory_v2_t after = memory_of(handle);
  // NVML of a share may answer what was right 0.2 s ago.
  const auto limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(kLimitMs);
  while (after.used < before.used + kBytes && std::chrono::steady_clock::now() < limit) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    after = memory_of(handle);
  }
  e2e::expect(after.used >= before.used + kBytes, "memory in use grows");
  e2e::expect(after.total == before.total && after.used + after.free <= after.total,
              "the total does not");
  unsigned count = 0;
  const nvmlReturn_t asked =
      NVML(nvmlDeviceGetComputeRunningProcesses_v3,
           (nvmlDevice_t, unsigned*, nvmlProcessInfo_v2_t*), handle, &count, nullptr);
  // The PID is not compared, since NVML may report that of another PID namespace.
  e2e::expect(asked == NVML_ERROR_INSUFFICIENT_SIZE && count >= 1, "a process is listed");
  nvmlMemory_v2_t old{};
  old.version = 7;
  const nvmlReturn_t refused =
      NVML(nvmlDeviceGetMemoryInfo_v2, (nvmlDevice_t, nvmlMemory_v2_t*), handle, &old);
  printf("# an unknown version of a structure: %d\n", static_cast<int>(refused));
  e2e::expect(refused != NVML_SUCCESS, "an unknown version of a structure is refused");
}

// The total is the driver's, too, and the process is listed with its PID in this container.
void share(nvmlDevice_t handle) {
  size_t free = 0;
  size_t total = 0;
  CHECK_CU(cuMemGetInfo_v2(&free, &total));
  e2e::expect(memory_of(handle).total == total, "the share's memory is what the driver says");
  constexpr unsigned kMost = 16;
  nvmlProcessInfo_v2_t processes[kMost];
  unsigned count = kMost;
  expect_success("processes",
                 NVML(nvmlDeviceGetComputeRunningProcesses_v3,
                      (nvmlDevice_t, unsigned*, nvmlProcessInfo_v2_t*), handle, &count, processes));
  const auto is_this = [](const nvmlProcessInfo_v2_t& process) {
    return process.pid == static_cast<unsigned>(getpid());
  };
  e2e::expect(std::count_if(processes, processes + count, is_this) == 1, "this process is listed");
  unsigned long long events = 1;
  expect_success("events", NVML(nvmlDeviceGetSupportedEventTypes,
                                (nvmlDevice_t, unsigned long long*), handle, &events));
  e2e::expect(events == 0, "faults are not told");
}

// Makes a kernel fault, which ends the calling thread's context.
void fault() {
  const e2e::Session session;
  CHECK_CU(e2e::try_launch(session.function("store_at"), 1, 1, 0, nullptr, uint64_t{8}, 1u));
  _exit(cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS ? 0 : 1);
}

void faults(const char* uuid) {
  const nvmlDevice_t handle = device_of(uuid);
  nvmlEventSet_t set = nullptr;
  expect_success("set", NVML(nvmlEventSetCreate, (nvmlEventSet_t*), &set));
  expect_success("register",
                 NVML(nvmlDeviceRegisterEvents, (nvmlDevice_t, unsigned long long, nvmlEventSet_t),
                      handle, 8ull, set));
  nvmlEventData_t event{};
  e2e::expect(NVML(nvmlEventSetWait_v2, (nvmlEventSet_t, nvmlEventData_t*, unsigned), set, &event,
                   1u) == NVML_ERROR_TIMEOUT,
              "nothing before");
  e2e::in_child(fault);
  expect_success("event", NVML(nvmlEventSetWait_v2, (nvmlEventSet_t, nvmlEventData_t*, unsigned),
                               set, &event, kLimitMs));
  e2e::expect(event.device == handle && event.eventType == 8 && event.eventData == 31,
              "Xid 31 of another process's wild write");
  expect_success("free", NVML(nvmlEventSetFree, (nvmlEventSet_t), set));
}

}  // namespace

int main(int argc, char** argv) {
  const bool is_share = argc > 1 && std::string_view(argv[1]) == "share";
  g_library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
  if (!e2e::expect(g_library != nullptr, "NVML's library")) return e2e::finish();
  unsigned count = 0;
  e2e::expect(NVML(nvmlDeviceGetCount_v2, (unsigned*), &count) == NVML_ERROR_UNINITIALIZED,
              "nothing is answered before the start");
  expect_success("init", NVML(nvmlInit_v2, ()));
  expect_success("count", NVML(nvmlDeviceGetCount_v2, (unsigned*), &count));
  nvmlDevice_t first = nullptr;
  expect_success("handle",
                 NVML(nvmlDeviceGetHandleByIndex_v2, (unsigned, nvmlDevice_t*), 0u, &first));
  char uuid[96];
  expect_success("UUID", NVML(nvmlDeviceGetUUID, (nvmlDevice_t, char*, unsigned), first, uuid,
                              unsigned{sizeof uuid}));
  if (!is_share) faults(uuid);  // before this process has a context, since it forks

  const e2e::Session session;
  int driver_count = 0;
  CHECK_CU(cuDeviceGetCount(&driver_count));
  e2e::expect(count >= static_cast<unsigned>(driver_count), "as many devices as the driver has");
  const nvmlDevice_t handle = device_of(uuid_text(session.device).c_str());
  devices(session.device, handle);
  memory(handle);
  if (is_share) share(handle);
  e2e::expect(NVML(nvmlDeviceGetHandleByIndex_v2, (unsigned, nvmlDevice_t*), 1000u, &first) ==
                  NVML_ERROR_INVALID_ARGUMENT,
              "there is no device 1000");
  expect_success("shutdown", NVML(nvmlShutdown, ()));
  return e2e::finish();
}
