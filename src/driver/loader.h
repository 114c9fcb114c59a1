// SPDX-License-Identifier: Apache-2.0
// Loads the driver below: NVIDIA's libcuda.so.1 or softgpu, chosen by OPENMPS_DRIVER. The worker
// loads one to execute on, the client library one to pass calls through to. Called once, on the
// thread that decides; the table is read on any thread afterwards.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "api/driver_table.h"
#include "cuda/status.h"
#include "driver/search.h"

namespace openmps {

enum class DriverKind { kNvidia, kSoftgpu };

// How "auto" finds out whether a GPU works.
enum class DriverProbe {
  // cuInit and cuDeviceGetCount: certain, for a process of our own.
  kInitialise,
  // The kernel driver's device nodes: no effect on the program that we are loaded into, which may
  // still change its environment before it calls cuInit.
  kPassive,
};

// A loaded driver library. It is never unloaded: drivers have threads and
// exit handlers.
class Driver {
 public:
  Driver(DriverKind kind, std::string path, const DriverTable& table)
      : kind_(kind), path_(std::move(path)), table_(table) {}

  [[nodiscard]] DriverKind kind() const { return kind_; }
  [[nodiscard]] const std::string& path() const { return path_; }
  // Null members: symbols that this driver lacks.
  [[nodiscard]] const DriverTable& table() const { return table_; }

 private:
  DriverKind kind_;
  std::string path_;
  DriverTable table_;
};

// Both driver libraries of OpenMPS export this; NVIDIA's does not. Text: "client" or "softgpu".
inline constexpr const char* kLibraryKindSymbol = "openmps_library_kind";

// `choice` is the value of OPENMPS_DRIVER: "auto" (or empty: NVIDIA's if a GPU works, else
// softgpu), "nvidia", "softgpu", or the path of a driver library. Never loads OpenMPS' own client
// library as a driver. Errors name every path that was tried and why it was not taken:
// CUDA_ERROR_NO_DEVICE when a search ends without a driver, CUDA_ERROR_INVALID_VALUE for a choice
// that is neither a word nor a path, CUDA_ERROR_SHARED_OBJECT_INIT_FAILED for a path that is no
// usable driver. With kInitialise cuInit(0) has been called; the caller has cleared CUDA_MPS_*
// before, or NVIDIA's driver becomes a client of NVIDIA's MPS.
Result<std::unique_ptr<Driver>> load_driver(std::string_view choice, DriverProbe probe);

// Searches the given paths instead, for tests.
Result<std::unique_ptr<Driver>> load_driver(std::string_view choice, DriverProbe probe,
                                            const DriverSearch& search);

}  // namespace openmps
