// SPDX-License-Identifier: Apache-2.0
// cuDevice*: answered from the facts that came with the welcome, but for what only the driver
// knows. Implementations behind the generated entry points, on the program's threads.

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <optional>

#include "api/client_handlers.h"
#include "client/session/enter.h"
#include "cuda/devices.h"
#include "wire/commands/device.h"

namespace openmps::client {
namespace {

// `peer` null: between the device and the host.
CUresult atomic_capabilities(unsigned int* capabilities, const CUatomicOperation* operations,
                             unsigned int count, CUdevice device, const CUdevice* peer) {
  if (count > wire::kMaxAtomicOperations ||
      (count != 0 && (capabilities == nullptr || operations == nullptr))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Session* session = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session));
  if (!session->valid_device(device) || (peer != nullptr && !session->valid_device(*peer))) {
    return CUDA_ERROR_INVALID_DEVICE;
  }
  const wire::AtomicCapabilities command{
      .device = session->devices[static_cast<uint32_t>(device)],
      .peer = peer != nullptr ? session->devices[static_cast<uint32_t>(*peer)] : wire::kNoPeer};
  static_assert(sizeof(*operations) == sizeof(uint32_t));
  wire::ReplyOf<wire::AtomicCapabilities> reply;
  OPENMPS_CUDA_CHECK(session->channel.call(
      command, {{reinterpret_cast<const uint32_t*>(operations), count}}, &reply));
  if (reply->count != count) return CUDA_ERROR_MPS_RPC_FAILURE;
  std::copy_n(reply.tail().capabilities.begin(), count, capabilities);
  return CUDA_SUCCESS;
}

// What the client does in its own way. What it cannot do is absent from the facts already.
int attribute_of_session(CUdevice_attribute attribute, int value) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED: return 1;
    case CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES:
      return CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    default: return value;
  }
}

}  // namespace

namespace impl {

CUresult cuDeviceGet(Session& session, CUdevice* device, int ordinal) {
  if (!session.valid_device(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(Session& session, char* name, int len, uint32_t dev) {
  const wire::DeviceFacts& facts = session.device(dev);
  if (len <= 0) return CUDA_ERROR_INVALID_VALUE;
  snprintf(name, static_cast<size_t>(len), "%.*s", static_cast<int>(sizeof(facts.name)) - 1,
           facts.name);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(Session& session, CUuuid* uuid, uint32_t dev) {
  memcpy(uuid, session.device(dev).uuid, sizeof(*uuid));
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetLuid(char*, unsigned int*, CUdevice) {
  return CUDA_ERROR_NOT_SUPPORTED;  // Windows only, as with the real driver
}

CUresult cuDeviceTotalMem_v2(Session& session, size_t* bytes, uint32_t dev) {
  const wire::DeviceFacts& facts = session.device(dev);
  const uint64_t limit = session.memory_limit[session.devices[dev]];
  *bytes = limit != 0 ? std::min(limit, facts.total_memory) : facts.total_memory;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(Session& session, int* pi, CUdevice_attribute attrib, uint32_t dev) {
  const wire::DeviceFacts& facts = session.device(dev);
  const auto index = static_cast<uint32_t>(attrib);
  if (index >= wire::kMaxAttributes) return CUDA_ERROR_INVALID_VALUE;
  if (facts.attribute_result[index] != CUDA_SUCCESS) {
    return static_cast<CUresult>(facts.attribute_result[index]);
  }
  *pi = attribute_of_session(attrib, facts.attribute[index]);
  Context* current = nullptr;
  if (attrib == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT &&
      session.contexts.current(&current) == CUDA_SUCCESS && current->device == dev) {
    *pi = static_cast<int>(session.contexts.sms(*current));  // as MPS has it
  }
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetProperties(Session& session, CUdevprop* prop, uint32_t dev) {
  const wire::DeviceFacts& facts = session.device(dev);
  *prop =
      cuda::properties_of([&facts](CUdevice_attribute which) { return facts.attribute[which]; });
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetByPCIBusId(Session& session, CUdevice* dev, const char* pciBusId) {
  const std::optional<cuda::PciAddress> wanted = cuda::parse_pci_address(pciBusId);
  if (!wanted) return CUDA_ERROR_INVALID_VALUE;
  for (uint32_t ordinal = 0; ordinal < session.device_count(); ++ordinal) {
    const int32_t* value = session.device(ordinal).attribute;
    const cuda::PciAddress own{static_cast<unsigned>(value[CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID]),
                               static_cast<unsigned>(value[CU_DEVICE_ATTRIBUTE_PCI_BUS_ID]),
                               static_cast<unsigned>(value[CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID])};
    if (own == *wanted) {
      *dev = static_cast<CUdevice>(ordinal);
      return CUDA_SUCCESS;
    }
  }
  return CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetPCIBusId(Session& session, char* pciBusId, int len, uint32_t dev) {
  const wire::DeviceFacts& facts = session.device(dev);
  constexpr int kLeast = sizeof "0000:00:00.0";
  if (len < kLeast) return CUDA_ERROR_INVALID_VALUE;
  snprintf(pciBusId, static_cast<size_t>(len), "%.*s",
           static_cast<int>(sizeof(facts.pci_bus_id)) - 1, facts.pci_bus_id);
  return CUDA_SUCCESS;
}

// ---- What only the driver knows -----------------------------------------------------------------

CUresult cuDeviceCanAccessPeer(Session& session, int* canAccessPeer, uint32_t dev,
                               uint32_t peerDev) {
  wire::PeerAccessible::Reply reply;
  OPENMPS_CUDA_CHECK(session.channel.call(
      wire::PeerAccessible{session.devices[dev], session.devices[peerDev]}, &reply));
  *canAccessPeer = reply.accessible;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAttribute(Session& session, int* value, CUdevice_P2PAttribute attrib,
                                 uint32_t srcDevice, uint32_t dstDevice) {
  wire::PeerAttribute::Reply reply;
  const wire::PeerAttribute command{.device = session.devices[srcDevice],
                                    .peer = session.devices[dstDevice],
                                    .attribute = static_cast<uint32_t>(attrib)};
  OPENMPS_CUDA_CHECK(session.channel.call(command, &reply));
  *value = reply.value;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetTexture1DLinearMaxWidth(Session& session, size_t* maxWidthInElements,
                                            CUarray_format format, unsigned int numChannels,
                                            uint32_t dev) {
  wire::TextureWidth::Reply reply;
  const wire::TextureWidth command{.device = session.devices[dev],
                                   .format = static_cast<uint32_t>(format),
                                   .channels = numChannels};
  OPENMPS_CUDA_CHECK(session.channel.call(command, &reply));
  *maxWidthInElements = reply.width;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetHostAtomicCapabilities(unsigned int* capabilities,
                                           const CUatomicOperation* operations, unsigned int count,
                                           CUdevice dev) {
  return atomic_capabilities(capabilities, operations, count, dev, nullptr);
}

CUresult cuDeviceGetP2PAtomicCapabilities(unsigned int* capabilities,
                                          const CUatomicOperation* operations, unsigned int count,
                                          CUdevice srcDevice, CUdevice dstDevice) {
  return atomic_capabilities(capabilities, operations, count, srcDevice, &dstDevice);
}

CUresult cuFlushGPUDirectRDMAWrites(Session& session, Context& context,
                                    CUflushGPUDirectRDMAWritesTarget target,
                                    CUflushGPUDirectRDMAWritesScope scope) {
  return session.channel.call(wire::RemoteWritesFlush{
      context.wire_device, static_cast<uint32_t>(target), static_cast<uint32_t>(scope)});
}

}  // namespace impl
}  // namespace openmps::client
