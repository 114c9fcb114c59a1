// SPDX-License-Identifier: Apache-2.0
// The devices that the worker sees and its one context on each that it uses: the primary context,
// shared by all sessions. Made by main() at the start, then only read, by every thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "api/driver_table.h"
#include "cuda/sm_steps.h"
#include "cuda/status.h"
#include "wire/handshake.h"

namespace openmps::worker {

// An array with an entry for each device that the worker may have.
template <typename T>
using PerDevice = std::array<T, wire::kMaxDevices>;

struct Device {
  CUdevice handle = 0;
  CUcontext context = nullptr;  // null: the worker does not use the device
  uint64_t total_memory = 0;    // bytes
  uint32_t capability = 0;      // 10 * major + minor
  uint32_t sms = 0;
  cuda::SmSteps sm_steps;      // in which they are handed out
  int32_t least_priority = 0;  // of streams
  int32_t greatest_priority = 0;
  bool writes_64_bit_values = false;  // cuStreamWriteValue64: fences are then written by the GPU
  bool exports_memory = false;        // VMM memory may be asked for as file descriptors
  bool rdma_memory = false;           // VMM memory may be asked for that other devices can reach
};

class Devices {
 public:
  // cuInit, then retain the primary contexts of the devices to use, a bit each. Errors: those of
  // cuInit, CUDA_ERROR_NO_DEVICE.
  static Result<Devices> open(const DriverTable& driver, uint32_t use = wire::kAllDevices);

  // Of all devices, used or not, as clients number them.
  [[nodiscard]] uint32_t count() const { return static_cast<uint32_t>(devices_.size()); }
  [[nodiscard]] const Device& at(uint32_t index) const { return devices_[index]; }
  // Those that the worker uses, in order; at least one.
  [[nodiscard]] std::span<const uint32_t> used() const { return used_; }
  [[nodiscard]] bool uses(uint32_t index) const {
    return index < count() && devices_[index].context != nullptr;
  }
  // For what belongs to no device, such as host memory.
  [[nodiscard]] uint32_t home() const { return used_.front(); }

 private:
  std::vector<Device> devices_;
  std::vector<uint32_t> used_;
};

}  // namespace openmps::worker
