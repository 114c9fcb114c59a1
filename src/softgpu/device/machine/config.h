// SPDX-License-Identifier: Apache-2.0
// What the SOFTGPU_* environment variables say about the modelled machine. Read once, by cuInit.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cuda/devices.h"
#include "cuda/status.h"
#include "softgpu/device/machine/faults.h"

namespace openmps::softgpu {

// Upper bounds of what can be configured: they size fixed tables.
inline constexpr uint32_t kMaxDevices = 16;
inline constexpr uint32_t kMaxSms = 256;

struct Config {
  uint32_t device_count = 1;           // SOFTGPU_DEVICES
  uint32_t sm_count = 8;               // SOFTGPU_SMS
  uint32_t compute_capability = 90;    // SOFTGPU_CC, "9.0" or "90": 10 * major + minor
  uint64_t memory_bytes = 8ull << 30;  // SOFTGPU_MEMORY, bytes or with suffix K, M, G
  uint64_t timeslice_ns = 2'000'000;   // SOFTGPU_TIMESLICE_US; 2 ms is the order of a GPU's default
  uint32_t hardware_queues = 128;      // SOFTGPU_QUEUES; 128 streams ran side by side on an H200
  uint32_t connections = 8;            // of a context; 0: as many as streams. See read_connections
  uint32_t stream_items = 0;           // SOFTGPU_STREAM_ITEMS; 0: as many as there is memory for
  bool loading_waits = true;           // SOFTGPU_LOADING_WAITS: as NVIDIA's driver does
  bool stream_lots = false;            // SOFTGPU_STREAM_LOTS: stream_lots.h
  bool destroying_waits = false;       // SOFTGPU_DESTROYING_WAITS: of executable graphs
  bool exclusive_process = false;      // SOFTGPU_COMPUTE_MODE, DEFAULT or EXCLUSIVE_PROCESS
  uint32_t workers = 0;                // threads that run blocks: min(cores, sm_count)
  uint64_t seed = 0;                   // SOFTGPU_SEED; not 0: one worker, seeded warp order
  FaultSettings faults;                // SOFTGPU_FAULT_LATENCY_US, SOFTGPU_FAULT
  std::string segment;                 // SOFTGPU_DEVICE: name of the shared device segment
  std::string trace_path;              // SOFTGPU_TRACE; %p becomes the process id
};

// CUDA_ERROR_INVALID_VALUE names the variable that does not make sense.
Result<Config> read_config();

inline constexpr char kDeviceName[] = "OpenMPS softgpu";

// Where the device is on the simulated PCI bus.
inline cuda::PciAddress pci_address(uint32_t ordinal) { return {0, ordinal + 1, 0}; }

// The identity of a device: unique among all simulated machines, and equal on every start.
CUuuid device_uuid(const Config& config, uint32_t ordinal);
// As nvidia-smi -L prints it (cuda::uuid_text()).
std::string device_uuid_text(const Config& config, uint32_t ordinal);

// What CUDA_VISIBLE_DEVICES leaves: ordinals of the machine, in the program's order.
// Errors: CUDA_ERROR_INVALID_DEVICE, CUDA_ERROR_NO_DEVICE (cuda/visible_devices.h).
Result<std::vector<uint32_t>> visible_devices(const Config& config);

// The segment of one device of the machine: "<segment>-<ordinal>".
std::string segment_name(const Config& config, uint32_t ordinal);

}  // namespace openmps::softgpu
