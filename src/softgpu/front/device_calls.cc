// SPDX-License-Identifier: Apache-2.0
// Devices: count, name, identity, attributes. Any thread.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <optional>

#include "cuda/arrays.h"
#include "softgpu/device/sm.h"
#include "softgpu/front/device_facts.h"
#include "softgpu/front/front.h"

using namespace openmps;           // NOLINT: entry points live outside the namespace
using namespace openmps::softgpu;  // NOLINT: the same

namespace {

constexpr char kDeviceName[] = "OpenMPS softgpu";

// A call about one device: body(Driver&, Device&) -> Status.
template <typename Body>
CUresult with_device(CUdevice ordinal, Body&& body) {
  return with_driver([&](Driver& driver) -> Status {
    Device* device = driver.device(ordinal);
    if (device == nullptr) return Status(CUDA_ERROR_INVALID_DEVICE, "no such device");
    return body(driver, *device);
  });
}

}  // namespace

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  return with_device(ordinal, [&](Driver&, Device&) -> Status {
    if (device == nullptr) return no_result();
    *device = ordinal;
    return Status();
  });
}

CUresult cuDeviceGetCount(int* count) {
  return with_driver([&](Driver& driver) -> Status {
    if (count == nullptr) return no_result();
    *count = static_cast<int>(driver.devices.size());
    return Status();
  });
}

CUresult cuDeviceGetName(char* name, int len, CUdevice dev) {
  return with_device(dev, [&](Driver&, Device&) -> Status {
    if (name == nullptr || len <= 0) return invalid_value("no place for the name");
    snprintf(name, static_cast<size_t>(len), "%s", kDeviceName);
    return Status();
  });
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice dev) {
  return with_device(dev, [&](Driver& driver, Device& device) -> Status {
    if (uuid == nullptr) return no_result();
    *uuid = device_uuid(driver, device);
    return Status();
  });
}

CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice dev) {
  return with_device(dev, [&](Driver&, Device& device) -> Status {
    if (bytes == nullptr) return no_result();
    uint64_t free_bytes = 0;
    uint64_t total_bytes = 0;
    device.segment->memory_info(&free_bytes, &total_bytes);
    *bytes = total_bytes;
    return Status();
  });
}

CUresult cuDeviceGetAttribute(int* pi, CUdevice_attribute attrib, CUdevice dev) {
  return with_device(dev, [&](Driver& driver, Device& device) -> Status {
    if (pi == nullptr) return no_result();
    if (!device_attribute(driver, device, attrib, pi)) return invalid_value("no such attribute");
    return Status();
  });
}

CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice dev) {
  return with_device(dev, [&](Driver& driver, Device&) -> Status {
    if (major == nullptr || minor == nullptr) return no_result();
    *major = static_cast<int>(driver.config.compute_capability / 10);
    *minor = static_cast<int>(driver.config.compute_capability % 10);
    return Status();
  });
}

CUresult cuDeviceGetProperties(CUdevprop* prop, CUdevice dev) {
  return with_device(dev, [&](Driver& driver, Device& device) -> Status {
    if (prop == nullptr) return no_result();
    auto fact = [&](CUdevice_attribute attribute) {
      int value = 0;
      device_attribute(driver, device, attribute, &value);
      return value;
    };
    *prop = cuda::properties_of(fact);
    return Status();
  });
}

CUresult cuDeviceGetPCIBusId(char* pciBusId, int len, CUdevice dev) {
  return with_device(dev, [&](Driver&, Device& device) -> Status {
    if (pciBusId == nullptr || len <= 0) return no_result();
    PciAddress pci = device_pci_address(device);
    snprintf(pciBusId, static_cast<size_t>(len), "%04X:%02X:%02X.0", pci.domain, pci.bus,
             pci.device);
    return Status();
  });
}

CUresult cuDeviceGetByPCIBusId(CUdevice* dev, const char* pciBusId) {
  return with_driver([&](Driver& driver) -> Status {
    if (dev == nullptr || pciBusId == nullptr) return invalid_value("a null argument");
    const std::optional<PciAddress> wanted = cuda::parse_pci_address(pciBusId);
    if (!wanted) return invalid_value("not a PCI bus id");
    for (const Device& device : driver.devices) {
      if (device_pci_address(device) != *wanted) continue;
      *dev = device.ordinal;
      return Status();
    }
    return Status(CUDA_ERROR_INVALID_DEVICE, "no device has that bus id");
  });
}

CUresult cuDeviceCanAccessPeer(int* canAccessPeer, CUdevice dev, CUdevice peerDev) {
  return with_device(dev, [&](Driver& driver, Device&) -> Status {
    if (canAccessPeer == nullptr) return no_result();
    if (driver.device(peerDev) == nullptr) return Status(CUDA_ERROR_INVALID_DEVICE, "no such peer");
    *canAccessPeer = dev != peerDev;  // all memory is the host's: every device reaches it
    return Status();
  });
}

CUresult cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute attrib, CUdevice srcDevice,
                                 CUdevice dstDevice) {
  return with_device(srcDevice, [&](Driver& driver, Device&) -> Status {
    if (srcDevice == dstDevice || driver.device(dstDevice) == nullptr) {
      return Status(CUDA_ERROR_INVALID_DEVICE, "not two devices");
    }
    if (value == nullptr || attrib < CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK ||
        attrib > CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED) {
      return invalid_value("no such attribute, or no place for the result");
    }
    *value = attrib == CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED ||
             attrib == CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED;
    return Status();
  });
}

CUresult cuDeviceGetExecAffinitySupport(int* pi, CUexecAffinityType type, CUdevice dev) {
  return with_device(dev, [&](Driver&, Device&) -> Status {
    if (pi == nullptr || type != CU_EXEC_AFFINITY_TYPE_SM_COUNT) {
      return invalid_value("no such affinity");
    }
    *pi = 0;
    return Status();
  });
}

CUresult cuDeviceGetTexture1DLinearMaxWidth(size_t* maxWidthInElements, CUarray_format format,
                                            unsigned int numChannels, CUdevice dev) {
  return with_device(dev, [&](Driver&, Device&) -> Status {
    if (maxWidthInElements == nullptr) return no_result();
    const std::optional<cuda::Channel> channel = cuda::channel_of(format);
    if (!channel || (numChannels != 1 && numChannels != 2 && numChannels != 4)) {
      return invalid_value("no format of textures");
    }
    // As an H200: 2^30 elements, 4 GiB.
    *maxWidthInElements =
        std::min(uint64_t{1} << 30, (uint64_t{1} << 32) / (channel->bytes * numChannels));
    return Status();
  });
}
