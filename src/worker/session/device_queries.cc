// SPDX-License-Identifier: Apache-2.0
// See device_queries.h.
#include "worker/session/device_queries.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <vector>

#include "worker/device/driver_check.h"

namespace openmps::worker {
namespace {

// `function` is null in drivers that are too old to have it.
template <typename... Parameters, typename... Arguments>
Status ask(const char* name, CUresult (*function)(Parameters...), Arguments... arguments) {
  return check(function != nullptr ? function(arguments...) : CUDA_ERROR_NOT_SUPPORTED, name);
}

static_assert(sizeof(CUtensorMap) == wire::kTensorMapWords * sizeof(uint64_t));
static_assert(sizeof(CUatomicOperation) == sizeof(uint32_t));

Status encode(const DriverTable& driver, const wire::TensorMapEncode& c, CUtensorMap* map) {
  const auto type = static_cast<CUtensorMapDataType>(c.type);
  const auto address = reinterpret_cast<void*>(c.address);
  const auto interleave = static_cast<CUtensorMapInterleave>(c.interleave);
  const auto swizzle = static_cast<CUtensorMapSwizzle>(c.swizzle);
  const auto promotion = static_cast<CUtensorMapL2promotion>(c.promotion);
  const auto fill = static_cast<CUtensorMapFloatOOBfill>(c.fill);
  const cuuint64_t* strides = c.without_strides != 0 ? nullptr : c.strides;
  switch (c.kind) {
    case wire::TensorMapKind::kTiled:
      return ask("cuTensorMapEncodeTiled", driver.cuTensorMapEncodeTiled, map, type, c.rank,
                 address, c.sizes, strides, c.box, c.steps, interleave, swizzle, promotion, fill);
    case wire::TensorMapKind::kIm2col:
      return ask("cuTensorMapEncodeIm2col", driver.cuTensorMapEncodeIm2col, map, type, c.rank,
                 address, c.sizes, strides, c.lower, c.upper, c.channels_per_pixel,
                 c.pixels_per_column, c.steps, interleave, swizzle, promotion, fill);
    case wire::TensorMapKind::kIm2colWide:
      return ask("cuTensorMapEncodeIm2colWide", driver.cuTensorMapEncodeIm2colWide, map, type,
                 c.rank, address, c.sizes, strides, c.lower[0], c.upper[0], c.channels_per_pixel,
                 c.pixels_per_column, c.steps, interleave,
                 static_cast<CUtensorMapIm2ColWideMode>(c.mode), swizzle, promotion, fill);
  }
  return violation("a tensor map of kind " + std::to_string(static_cast<uint32_t>(c.kind)));
}

}  // namespace

Status DeviceQueries::handle(const wire::PersistingCacheReset& command) {
  OPENMPS_RETURN_IF_ERROR(core_.use(command.device));
  return ask("cuCtxResetPersistingL2Cache", core_.driver.cuCtxResetPersistingL2Cache);
}

Status DeviceQueries::handle(const wire::PeerAccessible& command,
                             ReplyTo<wire::PeerAccessible> reply) {
  OPENMPS_RETURN_IF_ERROR(core_.use(command.device));
  int accessible = 0;
  OPENMPS_RETURN_IF_ERROR(ask("cuDeviceCanAccessPeer", core_.driver.cuDeviceCanAccessPeer,
                              &accessible, handle_of(command.device), handle_of(command.peer)));
  reply.put({accessible});
  return Status();
}

Status DeviceQueries::handle(const wire::PeerAttribute& command,
                             ReplyTo<wire::PeerAttribute> reply) {
  OPENMPS_RETURN_IF_ERROR(core_.use(command.device));
  int value = 0;
  OPENMPS_RETURN_IF_ERROR(ask("cuDeviceGetP2PAttribute", core_.driver.cuDeviceGetP2PAttribute,
                              &value, static_cast<CUdevice_P2PAttribute>(command.attribute),
                              handle_of(command.device), handle_of(command.peer)));
  reply.put({value});
  return Status();
}

Status DeviceQueries::handle(const wire::AtomicCapabilities& command,
                             const wire::AtomicCapabilities::Tail& tail,
                             ReplyTo<wire::AtomicCapabilities> reply) {
  OPENMPS_RETURN_IF_ERROR(core_.use(command.device));
  std::vector<uint32_t> capabilities(std::max<size_t>(tail.operations.size(), 1));
  const auto* operations = reinterpret_cast<const CUatomicOperation*>(tail.operations.data());
  if (command.peer == wire::kNoPeer) {
    OPENMPS_RETURN_IF_ERROR(ask("cuDeviceGetHostAtomicCapabilities",
                                core_.driver.cuDeviceGetHostAtomicCapabilities, capabilities.data(),
                                operations, command.count, handle_of(command.device)));
  } else {
    OPENMPS_RETURN_IF_ERROR(core_.check_device(command.peer));
    OPENMPS_RETURN_IF_ERROR(ask("cuDeviceGetP2PAtomicCapabilities",
                                core_.driver.cuDeviceGetP2PAtomicCapabilities, capabilities.data(),
                                operations, command.count, handle_of(command.device),
                                handle_of(command.peer)));
  }
  reply.put({}, wire::AtomicCapabilities::ReplyTail{
                    std::span(capabilities).first(tail.operations.size())});
  return Status();
}

Status DeviceQueries::handle(const wire::TextureWidth& command, ReplyTo<wire::TextureWidth> reply) {
  OPENMPS_RETURN_IF_ERROR(core_.use(command.device));
  size_t width = 0;
  OPENMPS_RETURN_IF_ERROR(ask(
      "cuDeviceGetTexture1DLinearMaxWidth", core_.driver.cuDeviceGetTexture1DLinearMaxWidth, &width,
      static_cast<CUarray_format>(command.format), command.channels, handle_of(command.device)));
  reply.put({width});
  return Status();
}

Status DeviceQueries::handle(const wire::RemoteWritesFlush& command) {
  OPENMPS_RETURN_IF_ERROR(core_.use(command.device));
  return ask("cuFlushGPUDirectRDMAWrites", core_.driver.cuFlushGPUDirectRDMAWrites,
             static_cast<CUflushGPUDirectRDMAWritesTarget>(command.target),
             static_cast<CUflushGPUDirectRDMAWritesScope>(command.scope));
}

// The driver reads one number per dimension from each array of the command, so the rank is checked.
Status DeviceQueries::handle(const wire::TensorMapEncode& command,
                             ReplyTo<wire::TensorMapEncode> reply) {
  const uint32_t least = command.kind == wire::TensorMapKind::kIm2col ? 2 : 1;
  if (command.rank < least || command.rank > wire::kMaxTensorRank) {
    return violation("a tensor of rank " + std::to_string(command.rank));
  }
  OPENMPS_RETURN_IF_ERROR(core_.use(command.device));
  CUtensorMap map{};
  OPENMPS_RETURN_IF_ERROR(encode(core_.driver, command, &map));
  reply.put(std::bit_cast<wire::TensorMapEncode::Reply>(map));
  return Status();
}

Status DeviceQueries::handle(const wire::TensorMapReplace& command,
                             ReplyTo<wire::TensorMapReplace> reply) {
  OPENMPS_RETURN_IF_ERROR(core_.use(command.device));
  CUtensorMap map;
  memcpy(&map, command.map, sizeof(map));
  OPENMPS_RETURN_IF_ERROR(ask("cuTensorMapReplaceAddress", core_.driver.cuTensorMapReplaceAddress,
                              &map, reinterpret_cast<void*>(command.address)));
  reply.put(std::bit_cast<wire::TensorMapReplace::Reply>(map));
  return Status();
}

}  // namespace openmps::worker
