// SPDX-License-Identifier: Apache-2.0
// Opening the devices. See devices.h.
#include "worker/device/devices.h"

#include <algorithm>

#include "wire/handshake.h"
#include "worker/device/driver_check.h"

namespace openmps::worker {
namespace {

bool has(const DriverTable& driver, CUdevice device, CUdevice_attribute attribute) {
  int value = 0;
  return driver.cuDeviceGetAttribute(&value, attribute, device) == CUDA_SUCCESS && value != 0;
}

// Groups of the least size that the driver makes where clusters of blocks are to find SMs that lie
// together. Errors mean that there are none.
cuda::SmSteps steps_of(const DriverTable& driver, const Device& device) {
  cuda::SmSteps steps{device.sms, 0, 0};
  if (driver.cuDeviceGetDevResource == nullptr || driver.cuDevSmResourceSplitByCount == nullptr ||
      driver.cuDevResourceGenerateDesc == nullptr || driver.cuGreenCtxCreate == nullptr ||
      driver.cuGreenCtxDestroy == nullptr || driver.cuCtxFromGreenCtx == nullptr ||
      driver.cuGreenCtxGetDevResource == nullptr || driver.cuGreenCtxStreamCreate == nullptr) {
    return steps;
  }
  CUdevResource all{};
  CUdevResource group{};
  CUdevResource rest{};
  unsigned groups = 1;
  if (driver.cuDeviceGetDevResource(device.handle, &all, CU_DEV_RESOURCE_TYPE_SM) != CUDA_SUCCESS ||
      driver.cuDevSmResourceSplitByCount(&group, &groups, &all, &rest, 0, 1) != CUDA_SUCCESS ||
      groups != 1 || group.sm.smCount == 0 ||
      driver.cuDevSmResourceSplitByCount(nullptr, &groups, &all, nullptr, 0, group.sm.smCount) !=
          CUDA_SUCCESS ||
      groups < 2) {
    return steps;
  }
  return {device.sms, group.sm.smCount, groups * group.sm.smCount};
}

Status make_context(const DriverTable& driver, Device* device) {
  OPENMPS_RETURN_IF_ERROR(check(driver.cuDevicePrimaryCtxRetain(&device->context, device->handle),
                                "cuDevicePrimaryCtxRetain"));
  OPENMPS_RETURN_IF_ERROR(check(driver.cuCtxSetCurrent(device->context), "cuCtxSetCurrent"));
  return check(
      driver.cuCtxGetStreamPriorityRange(&device->least_priority, &device->greatest_priority),
      "cuCtxGetStreamPriorityRange");
}

Status open_device(const DriverTable& driver, int ordinal, Device* device) {
  OPENMPS_RETURN_IF_ERROR(check(driver.cuDeviceGet(&device->handle, ordinal), "cuDeviceGet"));
  size_t total = 0;
  OPENMPS_RETURN_IF_ERROR(
      check(driver.cuDeviceTotalMem_v2(&total, device->handle), "cuDeviceTotalMem"));
  device->total_memory = total;
  int major = 0;
  int minor = 0;
  driver.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device->handle);
  driver.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device->handle);
  device->capability = static_cast<uint32_t>(10 * major + minor);
  int sms = 0;
  driver.cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device->handle);
  device->sms = static_cast<uint32_t>(std::max(sms, 1));
  device->sm_steps = steps_of(driver, *device);
  device->writes_64_bit_values =
      has(driver, device->handle, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS);
  device->exports_memory =
      has(driver, device->handle, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
  device->rdma_memory =
      has(driver, device->handle, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
  return Status();
}

}  // namespace

Result<Devices> Devices::open(const DriverTable& driver, uint32_t use) {
  OPENMPS_RETURN_IF_ERROR(check(driver.cuInit(0), "cuInit"));
  int count = 0;
  OPENMPS_RETURN_IF_ERROR(check(driver.cuDeviceGetCount(&count), "cuDeviceGetCount"));
  if (count <= 0) return Status(CUDA_ERROR_NO_DEVICE, "the driver shows no device");
  Devices devices;
  // More devices than the facts file holds do not exist for clients.
  for (int i = 0; i < std::min<int>(count, wire::kMaxDevices); ++i) {
    Device device;
    OPENMPS_RETURN_IF_ERROR(open_device(driver, i, &device));
    if ((use >> i & 1) != 0) {
      OPENMPS_RETURN_IF_ERROR(make_context(driver, &device));
      devices.used_.push_back(static_cast<uint32_t>(i));
    }
    devices.devices_.push_back(device);
  }
  if (devices.used_.empty()) {
    return Status(CUDA_ERROR_NO_DEVICE, "the driver does not show the worker's device");
  }
  return devices;
}

}  // namespace openmps::worker
