// SPDX-License-Identifier: Apache-2.0
// A driver library with one device and no memory, just enough for libcudart to start on: the weak
// stubs of every symbol, the export tables under test, and the calls below. Its cuGetProcAddress
// answers as ours do. cudart_test loads it as its libcuda.so.1.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "api/proc_address.h"
#include "api/prototypes.h"
#include "api/softgpu_table.h"
#include "interop/export_tables.h"

namespace {

constexpr unsigned char kUuid[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
constexpr int kBus = 0x17;
constexpr size_t kMemory = 3ull << 30;

CUcontext primary() { return reinterpret_cast<CUcontext>(0x1000); }
thread_local CUcontext g_current = nullptr;

const openmps::InteropHost kHost = {
    .driver_version = 13000,
    .device_count = ::cuDeviceGetCount,
    .device =
        [](int, openmps::InteropDevice* device) {
          // OPENMPS_TEST_WRONG_BUS makes the integrity answer disagree with the PCI attributes.
          device->pci_bus = getenv("OPENMPS_TEST_WRONG_BUS") != nullptr ? kBus + 1 : kBus;
          memcpy(device->uuid.bytes, kUuid, sizeof(kUuid));
          return CUDA_SUCCESS;
        },
    .primary_context =
        [](CUcontext* context, CUdevice) {
          *context = primary();
          return CUDA_SUCCESS;
        },
    .current_context = ::cuCtxGetCurrent,
    .load_wrapper = nullptr,
    .load_fatbin = nullptr,
    .function_count = nullptr,
    .functions = nullptr,
    .stream_id = nullptr,
    .unknown_table = nullptr,
    .unknown_slot = nullptr,
};

}  // namespace

extern "C" {

CUresult cuInit(unsigned int) { return CUDA_SUCCESS; }
CUresult cuDriverGetVersion(int* version) {
  *version = 13000;
  return CUDA_SUCCESS;
}
CUresult cuGetProcAddress_v2(const char* name, void** function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* status) {
  uint16_t symbol = 0;
  CUdriverProcAddressQueryResult result;
  const bool found = openmps::find_proc(name, version, flags, &symbol, &result);
  *function = found ? openmps::softgpu_entry(symbol) : nullptr;
  if (status != nullptr) *status = result;
  return CUDA_SUCCESS;  // as NVIDIA's driver does, with a null pointer
}
CUresult cuGetExportTable(const void** table, const CUuuid* id) {
  openmps::set_interop_host(&kHost);
  return openmps::get_export_table(table, id);
}
CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  *mode = CU_MODULE_LAZY_LOADING;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetCount(int* count) {
  *count = 1;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  *device = ordinal;
  return ordinal == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
CUresult cuDeviceGetName(char* name, int bytes, CUdevice) {
  snprintf(name, static_cast<size_t>(bytes), "Fake device");
  return CUDA_SUCCESS;
}
CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice) {
  *bytes = kMemory;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice) {
  memcpy(uuid->bytes, kUuid, sizeof(kUuid));
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
  *value = attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? 9
           : attribute == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID             ? kBus
           : attribute == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT   ? 8
                                                                     : 0;
  return CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext* context) {
  *context = g_current;
  return CUDA_SUCCESS;
}
CUresult cuCtxSetCurrent(CUcontext context) {
  g_current = context;
  return CUDA_SUCCESS;
}
CUresult cuCtxGetDevice_v2(CUdevice* device, CUcontext) {
  *device = 0;
  return CUDA_SUCCESS;
}
CUresult cuCtxGetDevice(CUdevice* device) {
  *device = 0;
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice) {
  *context = primary();
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice) { return CUDA_SUCCESS; }
CUresult cuDevicePrimaryCtxGetState(CUdevice, unsigned int* flags, int* active) {
  *flags = 0;
  *active = 1;
  return CUDA_SUCCESS;
}
CUresult cuStreamSynchronize(CUstream stream) {
  // Tells the program which default stream its runtime was built for.
  printf("synchronised %p\n", static_cast<void*>(stream));
  return CUDA_SUCCESS;
}

OPENMPS_EXPORT extern const char openmps_library_kind[] = "softgpu";

}  // extern "C"
