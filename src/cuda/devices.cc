// SPDX-License-Identifier: Apache-2.0
// See devices.h.
#include "cuda/devices.h"

#include <cstdint>
#include <cstdio>
#include <cstring>

namespace openmps::cuda {
namespace {

template <typename T>
void put(void* data, T value) {
  memcpy(data, &value, sizeof(value));
}

}  // namespace

std::optional<PciAddress> parse_pci_address(const char* text) {
  PciAddress read;
  if (sscanf(text, "%x:%x:%x", &read.domain, &read.bus, &read.device) == 3) return read;
  read.domain = 0;
  if (sscanf(text, "%x:%x", &read.bus, &read.device) == 2) return read;
  return std::nullopt;
}

void clear_pointer_attribute(CUpointer_attribute attribute, void* data) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE: put(data, 0u); return;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: put(data, int{CU_DEVICE_INVALID}); return;
    default: put(data, uint64_t{0});
  }
}

}  // namespace openmps::cuda
