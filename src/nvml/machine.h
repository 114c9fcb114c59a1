// SPDX-License-Identifier: Apache-2.0
// What NVML's calls (calls.cc) ask of the machine below them. A library that exports the calls
// implements open_machine(). Any thread may use a Machine.
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
  uint32_t compute_capability = 0;  // 10 * major + minor
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
  [[nodiscard]] virtual std::unique_ptr<Faults> watch_faults(size_t device) const = 0;
};

// Called once in a process, by the first nvmlInit.
Result<std::unique_ptr<Machine>> open_machine();

}  // namespace openmps::nvml
