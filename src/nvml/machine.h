// SPDX-License-Identifier: Apache-2.0
// What NVML's calls (calls.cc) ask of the machine below them. A library that exports the calls
// implements open_machine(). Any thread may use a Machine. Errors that all calls have:
// CUDA_ERROR_MPS_CONNECTION_FAILED, CUDA_ERROR_MPS_RPC_FAILURE: what knew it has gone;
// CUDA_ERROR_TIMEOUT; CUDA_ERROR_NOT_PERMITTED.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cuda/devices.h"
#include "cuda/status.h"

namespace openmps::nvml {

struct Device {
  std::string name;
  std::string uuid;  // "GPU-008cbaa3-6cdc-9444-312b-2ca50d63b155"
  cuda::PciAddress pci;
  uint32_t compute_capability = 0;  // 10 * major + minor; 0: not known
  bool exclusive_process = false;   // its compute mode
};

struct Memory {
  uint64_t total_bytes = 0;
  uint64_t used_bytes = 0;
};

struct Process {
  int32_t pid = 0;
  uint64_t memory_bytes = 0;
};

// How busy a device was lately, in percent of what it can do.
struct Utilization {
  struct OfProcess {
    int32_t pid = 0;
    uint32_t percent = 0;
  };
  uint32_t percent = 0;
  std::vector<OfProcess> processes;
};

struct Versions {
  std::string driver;  // "580.65.06"; "": not known
  uint32_t cuda = 0;   // of the driver, e.g. 13000; 0: not known
};

// The faults of all processes on one device since this object was made. One thread.
class Faults {
 public:
  Faults() = default;
  virtual ~Faults() = default;
  Faults(const Faults&) = delete;
  Faults& operator=(const Faults&) = delete;
  // The Xid of the oldest one that has not been returned, if there is one.
  virtual std::optional<uint32_t> next() = 0;
};

class Machine {
 public:
  Machine() = default;
  virtual ~Machine() = default;
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  // In NVML's order, which CUDA_VISIBLE_DEVICES does not change. Constant.
  [[nodiscard]] virtual const std::vector<Device>& devices() const = 0;
  [[nodiscard]] virtual Result<Memory> memory(size_t device) const = 0;
  // Those with memory or a context on the device.
  [[nodiscard]] virtual Result<std::vector<Process>> processes(size_t device) const = 0;
  // CUDA_ERROR_NOT_SUPPORTED: the machine does not count.
  [[nodiscard]] virtual Result<Utilization> utilization(size_t device) const = 0;
  // Null: faults are not told.
  [[nodiscard]] virtual std::unique_ptr<Faults> watch_faults(size_t device) const = 0;
  [[nodiscard]] virtual Versions versions() const = 0;
};

// Called by nvmlInit until it succeeds. CUDA_ERROR_MPS_CONNECTION_FAILED: there is none, which is
// nobody's mistake. The message of any other error is for the user.
Result<std::unique_ptr<Machine>> open_machine();

}  // namespace openmps::nvml
