// SPDX-License-Identifier: Apache-2.0
// See stream_values.h.
#include "cuda/stream_values.h"

namespace openmps::cuda {

StreamValue read_stream_value(const CUstreamBatchMemOpParams& operation) {
  using Kind = StreamValue::Kind;
  const auto& wait = operation.waitValue;
  const auto& write = operation.writeValue;
  switch (operation.operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
      return {Kind::kWait, 4, wait.address, wait.value, wait.flags};
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      return {Kind::kWait, 8, wait.address, wait.value64, wait.flags};
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
      return {Kind::kWrite, 4, write.address, write.value, write.flags};
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      return {Kind::kWrite, 8, write.address, write.value64, write.flags};
    case CU_STREAM_MEM_OP_BARRIER:
      return {.kind = Kind::kBarrier, .flags = operation.memoryBarrier.flags};
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES: return {.kind = Kind::kFlush};
    default: return {};
  }
}

CUstreamBatchMemOpParams operation_of(const StreamValue& value) {
  CUstreamBatchMemOpParams made{};
  const bool wide = value.bytes == 8;
  switch (value.kind) {
    case StreamValue::Kind::kWait:
      made.operation = wide ? CU_STREAM_MEM_OP_WAIT_VALUE_64 : CU_STREAM_MEM_OP_WAIT_VALUE_32;
      made.waitValue.address = value.address;
      made.waitValue.value64 = value.value;
      made.waitValue.flags = value.flags;
      break;
    case StreamValue::Kind::kWrite:
      made.operation = wide ? CU_STREAM_MEM_OP_WRITE_VALUE_64 : CU_STREAM_MEM_OP_WRITE_VALUE_32;
      made.writeValue.address = value.address;
      made.writeValue.value64 = value.value;
      made.writeValue.flags = value.flags;
      break;
    default:
      made.operation = CU_STREAM_MEM_OP_BARRIER;
      made.memoryBarrier.flags = value.flags;
      break;
  }
  return made;
}

}  // namespace openmps::cuda
