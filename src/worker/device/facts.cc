// SPDX-License-Identifier: Apache-2.0
// Collecting device facts. See facts.h.
#include "worker/device/facts.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>

#include "wire/device_facts.h"
#include "worker/device/driver_check.h"

namespace openmps::worker {
namespace {

// What the hardware may do for a process that owns its context, but not for a program behind a
// worker. Programs ask before they use it, and have another way (NCCL without multicast).
constexpr CUdevice_attribute kNeverBehindAWorker[] = {
    // The program's ordinary memory is not the worker's, and page faults do not cross processes.
    CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS,
    CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS,
    CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES,
    CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST,
    CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM,
    CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS,
    // Drivers of other devices would look for the memory in the program's process. They take a
    // dma-buf (CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED) instead.
    CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED,
    // Memory of the host is the session's own pages: not the driver's to map or to hand out.
    CU_DEVICE_ATTRIBUTE_HOST_ALLOC_DMA_BUF_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HOST_NUMA_MULTINODE_IPC_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
    // Functions that are stubs (docs/api-coverage.md).
    CU_DEVICE_ATTRIBUTE_COOPERATIVE_MULTI_DEVICE_LAUNCH,
    CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_TIMELINE_SEMAPHORE_INTEROP_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_D3D12_CIG_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_VULKAN_CIG_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK,
    CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_MAXIMUM_LENGTH,
};

Status collect_device(const DriverTable& driver, const Device& device, wire::DeviceFacts* facts) {
  OPENMPS_RETURN_IF_ERROR(check(
      driver.cuDeviceGetName(facts->name, sizeof(facts->name), device.handle), "cuDeviceGetName"));
  CUuuid uuid{};
  OPENMPS_RETURN_IF_ERROR(
      check(driver.cuDeviceGetUuid_v2(&uuid, device.handle), "cuDeviceGetUuid"));
  memcpy(facts->uuid, uuid.bytes, sizeof(facts->uuid));
  OPENMPS_RETURN_IF_ERROR(
      check(driver.cuDeviceGetPCIBusId(facts->pci_bus_id, sizeof(facts->pci_bus_id), device.handle),
            "cuDeviceGetPCIBusId"));
  facts->total_memory = device.total_memory;
  for (uint32_t i = 0; i < wire::kMaxAttributes; ++i) {
    facts->attribute_result[i] = driver.cuDeviceGetAttribute(
        &facts->attribute[i], static_cast<CUdevice_attribute>(i), device.handle);
  }
  for (const CUdevice_attribute attribute : kNeverBehindAWorker) facts->attribute[attribute] = 0;
  // Sessions have VMM memory only.
  if (!device.rdma_memory) facts->attribute[CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED] = 0;

  // Of a device that the worker does not use, nobody asks for these.
  facts->priority_least = device.least_priority;
  facts->priority_greatest = device.greatest_priority;
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, device.handle};
  size_t granularity = 0;
  OPENMPS_RETURN_IF_ERROR(check(
      driver.cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
      "cuMemGetAllocationGranularity"));
  facts->allocation_granularity = granularity;
  facts->sm_step = device.sm_steps.step;
  facts->most_sms = device.sm_steps.most;
  return Status();
}

Result<UniqueFd> seal(const wire::Facts& facts) {
  UniqueFd fd(memfd_create("openmps-facts", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid() ||
      write(fd.get(), &facts, sizeof(facts)) != static_cast<ssize_t>(sizeof(facts)) ||
      fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) != 0) {
    return Status(CUDA_ERROR_OPERATING_SYSTEM,
                  std::string("making the facts file: ") + strerror(errno));
  }
  return fd;
}

}  // namespace

Result<UniqueFd> collect_facts(const DriverTable& driver, const Devices& devices, bool software) {
  auto facts = std::make_unique<wire::Facts>();
  facts->magic = wire::kMagic;
  facts->version = wire::kProtocolVersion;
  facts->bytes = sizeof(wire::Facts);
  facts->device_count = devices.count();
  facts->software = software ? 1 : 0;
  OPENMPS_RETURN_IF_ERROR(
      check(driver.cuDriverGetVersion(&facts->driver_version), "cuDriverGetVersion"));
  OPENMPS_RETURN_IF_ERROR(
      check(driver.cuCtxSetCurrent(devices.at(devices.home()).context), "cuCtxSetCurrent"));
  for (uint32_t i = 0; i < devices.count(); ++i) {
    OPENMPS_RETURN_IF_ERROR(collect_device(driver, devices.at(i), &facts->device[i]));
  }
  return seal(*facts);
}

}  // namespace openmps::worker
