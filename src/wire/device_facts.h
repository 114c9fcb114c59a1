// SPDX-License-Identifier: Apache-2.0
// What a program can ask of the devices without a context: collected once by the worker, put into
// a read-only file, mapped by every client. So the ~110 attribute queries per device of the CUDA
// runtime's start cost no round trip.
#pragma once

#include <cstdint>

#include "cuda/abi.h"
#include "wire/handshake.h"

namespace openmps::wire {

inline constexpr uint32_t kMaxAttributes = 256;  // CUDA 13.0 defines some 150

struct DeviceFacts {
  char name[256];
  unsigned char uuid[16];
  char pci_bus_id[16];  // "0000:00:06.0"
  uint64_t total_memory;
  int32_t attribute[kMaxAttributes];          // by CUdevice_attribute
  uint32_t attribute_result[kMaxAttributes];  // CUresult of asking for it
  int32_t priority_least;
  int32_t priority_greatest;
  uint64_t allocation_granularity;
  // Of what a client has that is limited to a part of the SMs (cuda/sm_steps.h).
  uint32_t sm_step;
  uint32_t most_sms;
};

struct Facts {
  uint32_t magic;
  uint32_t version;
  uint32_t bytes;  // sizeof(Facts)
  uint32_t device_count;
  int32_t driver_version;  // e.g. 13000
  uint32_t software;       // 1: softgpu
  DeviceFacts device[kMaxDevices];
};

}  // namespace openmps::wire
