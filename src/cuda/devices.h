// SPDX-License-Identifier: Apache-2.0
// What calls about devices say in forms of their own. Pure; any thread.
#pragma once

#include <optional>

#include "cuda/abi.h"

namespace openmps::cuda {

struct PciAddress {
  unsigned domain = 0;
  unsigned bus = 0;
  unsigned device = 0;

  bool operator==(const PciAddress&) const = default;
};

// "domain:bus:device.function", domain and function optional, in hexadecimal. Nothing: it is none.
[[nodiscard]] std::optional<PciAddress> parse_pci_address(const char* text);

// What calls from before CUDA 12.2 call a device says where memory is, the host included.
[[nodiscard]] inline CUmemLocation location_of(CUdevice device) {
  if (device == CU_DEVICE_CPU) return {CU_MEM_LOCATION_TYPE_HOST, 0};
  return {CU_MEM_LOCATION_TYPE_DEVICE, device};
}

// CUdevprop is a choice of attributes; `attribute(which)` is one's value.
template <typename Attribute>
[[nodiscard]] CUdevprop properties_of(Attribute attribute) {
  CUdevprop properties{};
  properties.maxThreadsPerBlock = attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  for (int i = 0; i < 3; ++i) {
    const auto along = [i](int x) { return static_cast<CUdevice_attribute>(x + i); };
    properties.maxThreadsDim[i] = attribute(along(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X));
    properties.maxGridSize[i] = attribute(along(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X));
  }
  properties.sharedMemPerBlock = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
  properties.totalConstantMemory = attribute(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY);
  properties.SIMDWidth = attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE);
  properties.memPitch = attribute(CU_DEVICE_ATTRIBUTE_MAX_PITCH);
  properties.regsPerBlock = attribute(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK);
  properties.clockRate = attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
  properties.textureAlign = attribute(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT);
  return properties;
}

// What cuPointerGetAttributes writes for memory that CUDA does not know, in the attribute's size.
void clear_pointer_attribute(CUpointer_attribute attribute, void* data);

}  // namespace openmps::cuda
