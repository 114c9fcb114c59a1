// SPDX-License-Identifier: Apache-2.0
// Devices: count, name, identity, attributes. Any thread.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <optional>

#include "cuda/arrays.h"
#include "softgpu/device/machine/sm.h"
#include "softgpu/front/device_facts.h"
#include "softgpu/front/front.h"

using namespace openmps;           // NOLINT: entry points live outside the namespace
using namespace openmps::softgpu;  // NOLINT: entry points live outside the namespace

namespace {

// A call about one device that gives something: body(Driver&, Device&) -> Status. The place for the
// result is looked at before the device.
template <typename Body>
CUresult with_device(CUdevice ordinal, const void* out, Body&& body) {
  return with_driver([&](Driver& driver) -> Status {
    if (out == nullptr) return no_result();
    Device* device = driver.device(ordinal);
    if (device == nullptr) return Status(CUDA_ERROR_INVALID_DEVICE, "no such device");
    return body(driver, *device);
  });
}

}  // namespace

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  return with_device(ordinal, device, [&](Driver&, Device&) -> Status {
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
  return with_device(dev, name, [&](Driver&, Device&) -> Status {
    if (len <= 0) return invalid_value("no place for the name");
    snprintf(name, static_cast<size_t>(len), "%s", kDeviceName);
    return Status();
  });
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice dev) {
  return with_device(dev, uuid, [&](Driver& driver, Device& device) -> Status {
    *uuid = device_uuid(driver.config, device.machine_ordinal);
    return Status();
  });
}

CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice dev) {
  return with_device(dev, bytes, [&](Driver&, Device& device) -> Status {
    uint64_t free_bytes = 0;
    uint64_t total_bytes = 0;
    device.segment->memory_info(&free_bytes, &total_bytes);
    *bytes = total_bytes;
    return Status();
  });
}

CUresult cuDeviceGetAttribute(int* pi, CUdevice_attribute attrib, CUdevice dev) {
  return with_device(dev, pi, [&](Driver& driver, Device& device) -> Status {
    if (!device_attribute(driver, device, attrib, pi)) return invalid_value("no such attribute");
    return Status();
  });
}

CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice dev) {
  return with_device(dev, major, [&](Driver& driver, Device&) -> Status {
    if (minor == nullptr) return no_result();
    *major = static_cast<int>(driver.config.compute_capability / 10);
    *minor = static_cast<int>(driver.config.compute_capability % 10);
    return Status();
  });
}

CUresult cuDeviceGetProperties(CUdevprop* prop, CUdevice dev) {
  return with_device(dev, prop, [&](Driver& driver, Device& device) -> Status {
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
  return with_device(dev, pciBusId, [&](Driver&, Device& device) -> Status {
    constexpr int kLeast = sizeof "0000:00:00.0";
    if (len < kLeast) return invalid_value("no place for a PCI bus id");
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
  return with_device(dev, canAccessPeer, [&](Driver& driver, Device&) -> Status {
    if (driver.device(peerDev) == nullptr) return Status(CUDA_ERROR_INVALID_DEVICE, "no such peer");
    *canAccessPeer = dev != peerDev;  // all memory is the host's: every device reaches it
    return Status();
  });
}

CUresult cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute attrib, CUdevice srcDevice,
                                 CUdevice dstDevice) {
  return with_device(srcDevice, value, [&](Driver& driver, Device&) -> Status {
    if (srcDevice == dstDevice || driver.device(dstDevice) == nullptr) {
      return Status(CUDA_ERROR_INVALID_DEVICE, "not two devices");
    }
    if (attrib < CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK ||
        attrib > CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED) {
      return invalid_value("no such attribute");
    }
    *value = attrib == CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED ||
             attrib == CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED;
    return Status();
  });
}

CUresult cuDeviceGetExecAffinitySupport(int* pi, CUexecAffinityType, CUdevice dev) {
  return with_device(dev, pi, [&](Driver&, Device&) -> Status {
    *pi = 0;  // whatever the type is
    return Status();
  });
}

CUresult cuDeviceGetTexture1DLinearMaxWidth(size_t* maxWidthInElements, CUarray_format format,
                                            unsigned int numChannels, CUdevice dev) {
  return with_device(dev, maxWidthInElements, [&](Driver&, Device&) -> Status {
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
