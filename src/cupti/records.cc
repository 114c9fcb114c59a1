// SPDX-License-Identifier: Apache-2.0
// Members that an activity says nothing about are zero, which is CUPTI's "unknown" or "none" for
// each of them.
#include "cupti/records.h"

#include <unistd.h>

namespace openmps::cupti {
namespace {

template <typename T>
Record as_record(const T& value, size_t size = sizeof(T)) {
  static_assert(sizeof(T) <= sizeof(Record::bytes));
  Record record;
  memcpy(record.bytes, &value, sizeof value);
  record.size = size;
  return record;
}

// What kernels, copies and fills have in common.
template <typename T>
T work_record(CUpti_ActivityKind kind, const Activity& work, Span span) {
  T record{};
  record.kind = kind;
  record.start = span.start;
  record.end = span.end;
  record.deviceId = work.device;
  record.contextId = work.context;
  record.streamId = work.stream;
  record.correlationId = work.correlation;
  record.graphNodeId = work.graph_node;
  record.graphId = work.graph;
  return record;
}

enum class Place { kUnknown, kHost, kDevice, kArray };

Place place_of(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::kPageable:
    case MemoryKind::kPinned: return Place::kHost;
    case MemoryKind::kDevice:
    case MemoryKind::kManaged: return Place::kDevice;
    case MemoryKind::kArray: return Place::kArray;
    case MemoryKind::kUnknown: break;
  }
  return Place::kUnknown;
}

CUpti_ActivityMemcpyKind copy_kind(const Activity& copy) {
  if (copy.is_peer != 0) return CUPTI_ACTIVITY_MEMCPY_KIND_PTOP;
  constexpr CUpti_ActivityMemcpyKind unknown = CUPTI_ACTIVITY_MEMCPY_KIND_UNKNOWN;
  constexpr CUpti_ActivityMemcpyKind kinds[4][4] = {
      // to: unknown, host, device, array
      {unknown, unknown, unknown, unknown},
      {unknown, CUPTI_ACTIVITY_MEMCPY_KIND_HTOH, CUPTI_ACTIVITY_MEMCPY_KIND_HTOD,
       CUPTI_ACTIVITY_MEMCPY_KIND_HTOA},
      {unknown, CUPTI_ACTIVITY_MEMCPY_KIND_DTOH, CUPTI_ACTIVITY_MEMCPY_KIND_DTOD,
       CUPTI_ACTIVITY_MEMCPY_KIND_DTOA},
      {unknown, CUPTI_ACTIVITY_MEMCPY_KIND_ATOH, CUPTI_ACTIVITY_MEMCPY_KIND_ATOD,
       CUPTI_ACTIVITY_MEMCPY_KIND_ATOA},
  };
  return kinds[static_cast<int>(place_of(copy.from))][static_cast<int>(place_of(copy.to))];
}

template <typename T>
T any_copy_record(CUpti_ActivityKind kind, const Activity& copy, Span span) {
  auto record = work_record<T>(kind, copy, span);
  record.copyKind = static_cast<uint8_t>(copy_kind(copy));
  record.srcKind = static_cast<uint8_t>(copy.from);
  record.dstKind = static_cast<uint8_t>(copy.to);
  record.bytes = copy.bytes;
  record.channelType = CUPTI_CHANNEL_TYPE_ASYNC_MEMCPY;
  return record;
}

}  // namespace

size_t record_bytes(CUpti_ActivityKind kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: return kKernelRecordBytes;
    case CUPTI_ACTIVITY_KIND_MEMCPY: return sizeof(CUpti_ActivityMemcpy6);
    case CUPTI_ACTIVITY_KIND_MEMCPY2: return sizeof(CUpti_ActivityMemcpyPtoP4);
    case CUPTI_ACTIVITY_KIND_MEMSET: return sizeof(CUpti_ActivityMemset4);
    case CUPTI_ACTIVITY_KIND_DRIVER: return sizeof(CUpti_ActivityAPI);
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: return sizeof(CUpti_ActivityExternalCorrelation);
    default: return 0;
  }
}

Record kernel_record(CUpti_ActivityKind kind, const Activity& kernel, Span span, const char* name) {
  auto record = work_record<CUpti_ActivityKernel10>(kind, kernel, span);
  record.completed = span.end;
  record.registersPerThread = static_cast<uint16_t>(kernel.registers);
  record.gridX = static_cast<int32_t>(kernel.grid[0]);
  record.gridY = static_cast<int32_t>(kernel.grid[1]);
  record.gridZ = static_cast<int32_t>(kernel.grid[2]);
  record.blockX = static_cast<int32_t>(kernel.block[0]);
  record.blockY = static_cast<int32_t>(kernel.block[1]);
  record.blockZ = static_cast<int32_t>(kernel.block[2]);
  record.staticSharedMemory = static_cast<int32_t>(kernel.static_shared_bytes);
  record.dynamicSharedMemory = static_cast<int32_t>(kernel.dynamic_shared_bytes);
  record.localMemoryPerThread = kernel.local_bytes;
  record.name = name;
  record.channelType = CUPTI_CHANNEL_TYPE_COMPUTE;
  return as_record(record, kKernelRecordBytes);
}

Record copy_record(const Activity& copy, Span span) {
  auto record = any_copy_record<CUpti_ActivityMemcpy6>(CUPTI_ACTIVITY_KIND_MEMCPY, copy, span);
  record.copyCount = 1;
  return as_record(record);
}

Record peer_copy_record(const Activity& copy, Span span) {
  auto record = any_copy_record<CUpti_ActivityMemcpyPtoP4>(CUPTI_ACTIVITY_KIND_MEMCPY2, copy, span);
  record.srcDeviceId = copy.device;
  record.srcContextId = copy.context;
  record.dstDeviceId = copy.peer;
  return as_record(record);
}

Record fill_record(const Activity& fill, Span span) {
  auto record = work_record<CUpti_ActivityMemset4>(CUPTI_ACTIVITY_KIND_MEMSET, fill, span);
  record.value = fill.value;
  record.bytes = fill.bytes;
  record.memoryKind = static_cast<uint16_t>(fill.to);
  record.channelType = CUPTI_CHANNEL_TYPE_ASYNC_MEMCPY;
  return as_record(record);
}

Record call_record(const Activity& call, Span span, uint32_t thread) {
  CUpti_ActivityAPI record{};
  record.kind = CUPTI_ACTIVITY_KIND_DRIVER;
  record.cbid = static_cast<CUpti_CallbackId>(call.call);
  record.start = span.start;
  record.end = span.end;
  record.processId = static_cast<uint32_t>(getpid());
  record.threadId = thread;
  record.correlationId = call.correlation;
  record.returnValue = static_cast<uint32_t>(call.result);
  return as_record(record);
}

Record external_record(CUpti_ExternalCorrelationKind kind, uint64_t id, uint32_t correlation) {
  CUpti_ActivityExternalCorrelation record{};
  record.kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION;
  record.externalKind = kind;
  record.externalId = id;
  record.correlationId = correlation;
  return as_record(record);
}

}  // namespace openmps::cupti
