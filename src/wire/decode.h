// SPDX-License-Identifier: Apache-2.0
// Decoding of the ring's records: the struct of a command and the variable part behind it, with
// every length checked against the record. Called by the executor on its private copy of a record.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <type_traits>

#include "base/status.h"
#include "wire/array_commands.h"
#include "wire/commands.h"
#include "wire/graph_commands.h"
#include "wire/green_commands.h"
#include "wire/ring.h"

namespace openmps::wire {

// The structs with which commands begin. No other type can be decoded, so what the decoder's fuzz
// target tries is everything that a client can send.
template <typename... Structs>
struct CommandList {
  template <typename T>
  static constexpr bool has = (std::is_same_v<T, Structs> || ...);
};
using Commands =
    CommandList<AddressReserve, ArrayCopy, ArrayCreate, ArrayPart, BlobBegin, BlobData,
                ClusterOccupancy, ConditionCreate, ContextJoin, ContextOnly, DeviceOnly,
                DeviceResource, EventCreate, EventElapsed, EventOpen, EventRecord, Fence,
                FunctionAttribute, Generated, GetSymbol, GraphBegin, GraphEnableNode,
                GraphInstantiate, GraphLaunch, GraphNode, GraphSetNode, GraphUpdate, GreenCreate,
                HostFunction, ImageCreate, Launch, LimitValue, LinkAdd, LinkCreate, LinkRead,
                Memcpy, Memcpy3D, MemoryAccess, MemoryOpen, MemoryRange, Memset, ModuleFunctions,
                ModuleLoad, Nothing, ObjectOnly, Occupancy, PeerAccess, PhysicalCreate, PhysicalMap,
                PhysicalTicket, RangeExport, ResourceDescribe, ResourceRead, ResourceSplit,
                ShareKey, StreamBatch, StreamCreate, StreamValue, StreamWaitEvent, WakeAfter>;

// The bytes behind a command's struct.
using Variable = std::span<const unsigned char>;

// How many bytes follow the struct, from its own counts; ~0 if a count is over its limit.
inline constexpr uint64_t kTooLong = ~0ull;
template <typename T>
constexpr uint64_t variable_bytes(const T&) {
  return 0;
}
template <>
constexpr uint64_t variable_bytes(const Launch& c) {
  if (c.attribute_count > kMaxLaunchAttributes) return kTooLong;
  if (c.parameter_bytes > kMaxKernelParameterBytes) return kTooLong;
  return c.attribute_count * sizeof(CUlaunchAttribute) + c.parameter_bytes;
}
template <>
constexpr uint64_t variable_bytes(const ClusterOccupancy& c) {
  return c.attribute_count > kMaxLaunchAttributes ? kTooLong
                                                  : c.attribute_count * sizeof(CUlaunchAttribute);
}
template <>
constexpr uint64_t variable_bytes(const ModuleLoad& c) {
  if (c.option_count > CU_JIT_NUM_OPTIONS) return kTooLong;
  return c.option_count * sizeof(JitOption);
}
template <>
constexpr uint64_t variable_bytes(const LinkCreate& c) {
  return c.option_count > CU_JIT_NUM_OPTIONS ? kTooLong : c.option_count * sizeof(JitOption);
}
template <>
constexpr uint64_t variable_bytes(const LinkAdd& c) {
  if (c.option_count > CU_JIT_NUM_OPTIONS || c.name_bytes > kMaxNameBytes) return kTooLong;
  return c.name_bytes + c.option_count * sizeof(JitOption);
}
template <>
constexpr uint64_t variable_bytes(const GetSymbol& c) {
  return c.name_bytes > kMaxNameBytes ? kTooLong : c.name_bytes;
}
template <>
constexpr uint64_t variable_bytes(const Generated& c) {
  return c.bytes > kMaxRecordBytes ? kTooLong : c.bytes;
}

template <>
constexpr uint64_t variable_bytes(const ResourceDescribe& c) {
  return c.count > kMaxDescribed ? kTooLong : c.count * sizeof(CUdevResource);
}
template <>
constexpr uint64_t variable_bytes(const StreamBatch& c) {
  return c.count > kMaxBatch ? kTooLong : c.count * sizeof(ValueOperation);
}
template <>
constexpr uint64_t variable_bytes(const GraphNode& c) {
  if (c.edge_count > kMaxGraphEdges || c.body_bytes > kMaxRecordBytes) return kTooLong;
  return c.edge_count * sizeof(GraphEdge) + c.body_bytes;
}
template <>
constexpr uint64_t variable_bytes(const GraphSetNode& c) {
  return c.body_bytes > kMaxRecordBytes ? kTooLong : c.body_bytes;
}

// Point `body` and `variable` into the record's payload, which must have exactly their size, padded
// to kRecordAlignment. Error: CUDA_ERROR_MPS_RPC_FAILURE, a violation of the protocol.
template <typename T>
Status decode(const Record& record, const T** body, Variable* variable) {
  static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= kRecordAlignment);
  static_assert(Commands::has<T>, "a new command's struct belongs into the list above");
  if (record.payload_bytes < sizeof(T)) {
    return Status(CUDA_ERROR_MPS_RPC_FAILURE,
                  "a command of " + std::to_string(record.payload_bytes) + " bytes where " +
                      std::to_string(sizeof(T)) + " are needed");
  }
  *body = reinterpret_cast<const T*>(record.payload);
  const uint64_t more = variable_bytes(**body);
  if (more == kTooLong ||
      record_bytes(sizeof(T) + more) - sizeof(RecordHeader) != record.payload_bytes) {
    return Status(CUDA_ERROR_MPS_RPC_FAILURE, "the counts of a command do not fit its " +
                                                  std::to_string(record.payload_bytes) + " bytes");
  }
  *variable = Variable(record.payload + sizeof(T), more);
  return Status();
}

}  // namespace openmps::wire
