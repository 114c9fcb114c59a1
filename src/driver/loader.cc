// SPDX-License-Identifier: Apache-2.0
// dlopen, identification and symbol table of driver libraries; see loader.h.
#include "driver/loader.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstring>

namespace openmps {
namespace {

using DriverResult = Result<std::unique_ptr<Driver>>;

constexpr const char* kLibraryName = "libcuda.so.1";

// What was tried and why it was not taken, for the message of the last resort.
class Attempts {
 public:
  void add(const std::string& path, const std::string& why) {
    text_ += (text_.empty() ? "" : "; ") + path + ": " + why;
  }
  [[nodiscard]] std::string text() const { return text_.empty() ? "no path to try" : text_; }

 private:
  std::string text_;
};

std::string last_dl_error() {
  const char* error = dlerror();
  return error != nullptr ? error : "unknown error of dlopen";
}

void fill(void* library, DriverTable* table) {
#define OPENMPS_LOOK_UP(symbol) \
  table->symbol = reinterpret_cast<decltype(table->symbol)>(dlsym(library, #symbol));
  OPENMPS_DRIVER_SYMBOLS(OPENMPS_LOOK_UP)
#undef OPENMPS_LOOK_UP
}

// Opens one file. Null with an entry in `attempts` if it is missing, broken, or our own client.
std::unique_ptr<Driver> open_library(const std::string& path, Attempts* attempts) {
  if (::access(path.c_str(), F_OK) != 0) {
    attempts->add(path, "not found");
    return nullptr;
  }
  // Local: its symbols must not take the place of anybody's. Now: a broken library fails here.
  void* library = dlopen(path.c_str(), RTLD_LOCAL | RTLD_NOW);
  if (library == nullptr) {
    attempts->add(path, last_dl_error());
    return nullptr;
  }
  const auto* kind = static_cast<const char*>(dlsym(library, kLibraryKindSymbol));
  const bool is_client = kind != nullptr && strcmp(kind, "client") == 0;
  DriverTable table = {};
  if (!is_client) fill(library, &table);
  if (is_client || table.cuInit == nullptr || table.cuDeviceGetCount == nullptr ||
      table.cuDriverGetVersion == nullptr) {
    attempts->add(path, is_client ? "OpenMPS' own client library" : "not a CUDA driver");
    dlclose(library);
    return nullptr;
  }
  return std::make_unique<Driver>(kind != nullptr ? DriverKind::kSoftgpu : DriverKind::kNvidia,
                                  path, table);
}

// Whether the driver has a device to offer; says why not.
bool has_device(const Driver& driver, Attempts* attempts) {
  if (CUresult result = driver.table().cuInit(0); result != CUDA_SUCCESS) {
    attempts->add(driver.path(), "cuInit failed with " + std::to_string(result));
    return false;
  }
  int count = 0;
  const CUresult result = driver.table().cuDeviceGetCount(&count);
  if (result != CUDA_SUCCESS || count == 0) {
    attempts->add(driver.path(), result != CUDA_SUCCESS
                                     ? "cuDeviceGetCount failed with " + std::to_string(result)
                                     : "no device");
    return false;
  }
  return true;
}

std::unique_ptr<Driver> find_nvidia(DriverProbe probe, const DriverSearch& search,
                                    Attempts* attempts) {
  for (const std::string& directory : search.nvidia_directories) {
    const std::string path = directory + "/" + kLibraryName;
    // Most directories hold no driver: one line for each would bury the reason that matters.
    if (::access(path.c_str(), F_OK) != 0) continue;
    std::unique_ptr<Driver> driver = open_library(path, attempts);
    if (driver == nullptr) continue;
    if (driver->kind() != DriverKind::kNvidia) {
      attempts->add(path, "softgpu, not NVIDIA's driver");
      continue;
    }
    if (probe == DriverProbe::kPassive || has_device(*driver, attempts)) return driver;
  }
  std::string searched;
  for (const std::string& directory : search.nvidia_directories) {
    searched += (searched.empty() ? "" : ":") + directory;
  }
  attempts->add("NVIDIA's libcuda.so.1", "no usable one in " + searched);
  return nullptr;
}

std::unique_ptr<Driver> find_softgpu(DriverProbe probe, const DriverSearch& search,
                                     Attempts* attempts) {
  for (const std::string& path : search.softgpu_paths) {
    std::unique_ptr<Driver> driver = open_library(path, attempts);
    if (driver == nullptr) continue;
    if (driver->kind() != DriverKind::kSoftgpu) {
      attempts->add(path, "not softgpu");
      continue;
    }
    if (probe == DriverProbe::kPassive || has_device(*driver, attempts)) return driver;
  }
  return nullptr;
}

DriverResult found_or(std::unique_ptr<Driver> driver, const std::string& what,
                      const Attempts& attempts) {
  if (driver != nullptr) return driver;
  return Status(CUDA_ERROR_NO_DEVICE, what + ": " + attempts.text());
}

}  // namespace

DriverResult load_driver(std::string_view choice, DriverProbe probe, const DriverSearch& search) {
  Attempts attempts;
  if (choice.find('/') != std::string_view::npos) {
    std::unique_ptr<Driver> driver = open_library(std::string(choice), &attempts);
    if (driver != nullptr && (probe == DriverProbe::kPassive || has_device(*driver, &attempts))) {
      return driver;
    }
    return Status(CUDA_ERROR_SHARED_OBJECT_INIT_FAILED,
                  "the driver that OPENMPS_DRIVER names is unusable: " + attempts.text());
  }
  if (choice == "nvidia") {
    return found_or(find_nvidia(probe, search, &attempts), "no driver of NVIDIA", attempts);
  }
  if (choice == "softgpu") {
    return found_or(find_softgpu(probe, search, &attempts), "no softgpu", attempts);
  }
  if (!choice.empty() && choice != "auto") {
    return Status(CUDA_ERROR_INVALID_VALUE, "OPENMPS_DRIVER is '" + std::string(choice) +
                                                "', not auto, nvidia, softgpu or a path");
  }
  std::unique_ptr<Driver> driver;
  if (probe == DriverProbe::kPassive && !search.gpu_present) {
    attempts.add("NVIDIA's libcuda.so.1", "not tried, no GPU device node");
  } else {
    driver = find_nvidia(probe, search, &attempts);
  }
  if (driver == nullptr) driver = find_softgpu(probe, search, &attempts);
  return found_or(std::move(driver), "no driver", attempts);
}

DriverResult load_driver(std::string_view choice, DriverProbe probe) {
  return load_driver(choice, probe, default_driver_search());
}

}  // namespace openmps
