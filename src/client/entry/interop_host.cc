// SPDX-License-Identifier: Apache-2.0
// What NVIDIA's libraries learn of the session through cuGetExportTable. Any thread.
#include "client/entry/interop_host.h"

#include <cstring>

#include "api/client_impl.h"
#include "client/debug.h"
#include "client/session/context.h"
#include "client/session/enter.h"
#include "interop/export_tables.h"

namespace openmps::client {
namespace {

CUresult device(int ordinal, InteropDevice* device) {
  Session* session = nullptr;
  OPENMPS_CUDA_CHECK(enter_local(&session));
  if (!session->valid_device(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  const wire::DeviceFacts& facts = session->device(static_cast<uint32_t>(ordinal));
  memcpy(&device->uuid, facts.uuid, sizeof(device->uuid));
  device->pci_domain = facts.attribute[CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID];
  device->pci_bus = facts.attribute[CU_DEVICE_ATTRIBUTE_PCI_BUS_ID];
  device->pci_device = facts.attribute[CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID];
  return CUDA_SUCCESS;
}

CUresult primary_context(CUcontext* context, CUdevice device) {
  Session* session = nullptr;
  OPENMPS_CUDA_CHECK(enter_local(&session));
  if (!session->valid_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  *context = session->contexts.primary[device]->as<CUcontext>();
  return CUDA_SUCCESS;
}

void unknown_table(const CUuuid& id) {
  char text[2 * sizeof(id.bytes) + 1] = {};
  for (size_t i = 0; i < sizeof(id.bytes); ++i) {
    const auto byte = static_cast<unsigned char>(id.bytes[i]);
    text[2 * i] = "0123456789abcdef"[byte >> 4];
    text[2 * i + 1] = "0123456789abcdef"[byte & 0xf];
  }
  debug_line("an export table that is not known: %s", text);
}

void unknown_slot() { debug_line("a slot of an export table that is not known was called"); }

constexpr InteropHost kHost = {
    .driver_version = CUDA_VERSION,
    .device_count = impl::cuDeviceGetCount,
    .device = device,
    .primary_context = primary_context,
    .current_context = impl::cuCtxGetCurrent,
    .load_wrapper = impl::cuModuleLoadData,
    .load_fatbin = impl::cuModuleLoadData,
    .function_count = impl::cuModuleGetFunctionCount,
    .functions = impl::cuModuleEnumerateFunctions,
    .stream_id = impl::cuStreamGetId,
    .unknown_table = unknown_table,
    .unknown_slot = unknown_slot,
};

}  // namespace

void install_interop_host() { set_interop_host(&kHost); }

}  // namespace openmps::client
