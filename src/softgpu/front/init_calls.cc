// SPDX-License-Identifier: Apache-2.0
// Start-up: cuInit, versions, cuGetProcAddress, export tables. Any thread.
#include <cstring>

#include "api/proc_address.h"
#include "api/softgpu_table.h"
#include "interop/export_tables.h"
#include "softgpu/device/lifetime/start.h"
#include "softgpu/front/activity_table.h"
#include "softgpu/front/device_facts.h"
#include "softgpu/front/front.h"

using namespace openmps;           // NOLINT: entry points live outside the namespace
using namespace openmps::softgpu;  // NOLINT: entry points live outside the namespace

namespace {

constexpr int kDriverVersion = 13000;  // CUDA 13.0

constexpr cuuint64_t kKnownProcFlags =
    CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;

// ---- softgpu's side of the export tables (interop/export_tables.h) ----

CUresult interop_device(int ordinal, InteropDevice* out) {
  return with_driver([&](Driver& driver) -> Status {
    Device* device = driver.device(ordinal);
    if (device == nullptr) return Status(CUDA_ERROR_INVALID_DEVICE, "no such device");
    PciAddress pci = device_pci_address(*device);
    out->uuid = device_uuid(driver.config, device->machine_ordinal);
    out->pci_domain = static_cast<int>(pci.domain);
    out->pci_bus = static_cast<int>(pci.bus);
    out->pci_device = static_cast<int>(pci.device);
    return Status();
  });
}

CUresult interop_primary_context(CUcontext* context, CUdevice ordinal) {
  return with_driver([&](Driver& driver) -> Status {
    Device* device = driver.device(ordinal);
    if (device == nullptr) return Status(CUDA_ERROR_INVALID_DEVICE, "no such device");
    *context = device->primary->handle();
    return Status();
  });
}

constexpr InteropHost kInteropHost = {
    .driver_version = kDriverVersion,
    .device_count = cuDeviceGetCount,
    .device = interop_device,
    .primary_context = interop_primary_context,
    .current_context = cuCtxGetCurrent,
    .load_wrapper = cuModuleLoadData,
    .load_fatbin = cuModuleLoadFatBinary,
    .function_count = cuModuleGetFunctionCount,
    .functions = cuModuleEnumerateFunctions,
    .stream_id = cuStreamGetId,
    .unknown_table = nullptr,
    .unknown_slot = nullptr,
};

}  // namespace

CUresult cuInit(unsigned int Flags) {
  if (is_exiting()) return CUDA_ERROR_DEINITIALIZED;
  if (Flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const CancellationHeld held;
  try {
    return report(start_driver());
  } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
}

CUresult cuDriverGetVersion(int* driverVersion) {
  if (is_exiting()) return CUDA_ERROR_DEINITIALIZED;
  if (driverVersion == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *driverVersion = kDriverVersion;
  return CUDA_SUCCESS;
}

CUresult cuGetProcAddress_v2(const char* symbol, void** pfn, int cudaVersion, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* symbolStatus) {
  if (is_exiting()) return CUDA_ERROR_DEINITIALIZED;
  if (symbol == nullptr || pfn == nullptr || (flags & ~kKnownProcFlags) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  uint16_t index = 0;
  CUdriverProcAddressQueryResult why = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  bool found = find_proc(symbol, cudaVersion, flags, &index, &why);
  *pfn = found ? softgpu_entry(index) : nullptr;
  if (symbolStatus != nullptr) *symbolStatus = why;
  return CUDA_SUCCESS;  // what is not there is no error: the pointer and the status say so
}

CUresult cuGetExportTable(const void** ppExportTable, const CUuuid* pExportTableId) {
  if (ppExportTable != nullptr && pExportTableId != nullptr) {
    if (const cupti::ActivityTable* table = find_activity_table(*pExportTableId)) {
      *ppExportTable = table;
      return CUDA_SUCCESS;
    }
  }
  set_interop_host(&kInteropHost);
  return get_export_table(ppExportTable, pExportTableId);
}
