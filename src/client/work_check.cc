// SPDX-License-Identifier: Apache-2.0
// See work_check.h.
#include "client/work_check.h"

namespace openmps::client {
namespace {

bool is_wait(const CUstreamBatchMemOpParams& operation) {
  return operation.operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 ||
         operation.operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
}
bool is_write(const CUstreamBatchMemOpParams& operation) {
  return operation.operation == CU_STREAM_MEM_OP_WRITE_VALUE_32 ||
         operation.operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
}

CUresult check_value(const CUstreamBatchMemOpParams& operation) {
  switch (operation.operation) {
    case CU_STREAM_MEM_OP_BARRIER:
      return operation.memoryBarrier.flags <= CU_STREAM_MEMORY_BARRIER_TYPE_GPU
                 ? CUDA_SUCCESS
                 : CUDA_ERROR_INVALID_VALUE;
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES: return CUDA_ERROR_NOT_SUPPORTED;
    default: break;
  }
  if (!is_wait(operation) && !is_write(operation)) return CUDA_ERROR_INVALID_VALUE;
  const wire::StreamValue value = wire_value(operation).value;
  if (is_wait(operation) && (value.flags & CU_STREAM_WAIT_VALUE_FLUSH) != 0) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  const uint32_t most = is_wait(operation) ? uint32_t{CU_STREAM_WAIT_VALUE_NOR} : 0;
  const bool good = value.flags <= most && value.address % value.width == 0;
  return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// From the first to the last byte; false: more than there are addresses.
bool span_of(const CUDA_MEMSET_NODE_PARAMS& fill, uint64_t* row, uint64_t* bytes) {
  return !__builtin_mul_overflow(fill.width, fill.elementSize, row) &&
         !__builtin_mul_overflow(fill.height - 1, fill.pitch, bytes) &&
         !__builtin_add_overflow(*bytes, *row, bytes);
}

}  // namespace

CUresult check_fill(const CUDA_MEMSET_NODE_PARAMS& fill) {
  const uint64_t element = fill.elementSize;
  if (element != 1 && element != 2 && element != 4) return CUDA_ERROR_INVALID_VALUE;
  uint64_t row = 0;
  uint64_t bytes = 0;
  if (fill.width == 0 || fill.height == 0 || !span_of(fill, &row, &bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const bool rows = fill.height > 1;
  const bool aligned = fill.dst % element == 0 && (!rows || fill.pitch % element == 0);
  return aligned && (!rows || fill.pitch >= row) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult check_fill(const Session& session, const CUDA_MEMSET_NODE_PARAMS& fill) {
  OPENMPS_CUDA_CHECK(check_fill(fill));
  uint64_t row = 0;
  uint64_t bytes = 0;
  static_cast<void>(span_of(fill, &row, &bytes));
  const bool inside = session.pinned.in_heap(fill.dst)
                          ? session.pinned.contains(fill.dst, bytes)
                          : session.memory.contains(fill.dst, bytes, true);
  return inside ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult check_values(ValueOperations operations, unsigned int flags) {
  if (operations.size() > wire::kMaxBatch || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  for (const CUstreamBatchMemOpParams& operation : operations) {
    OPENMPS_CUDA_CHECK(check_value(operation));
  }
  return CUDA_SUCCESS;
}

CUresult check_value_places(const Session& session, ValueOperations operations) {
  for (const CUstreamBatchMemOpParams& operation : operations) {
    if (!is_wait(operation) && !is_write(operation)) continue;
    const wire::StreamValue value = wire_value(operation).value;
    const bool inside = session.memory.contains(value.address, value.width, is_write(operation)) ||
                        session.pinned.contains(value.address, value.width);
    if (!inside) return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

wire::ValueOperation wire_value(const CUstreamBatchMemOpParams& operation) {
  wire::ValueOperation made{};
  const bool wide = operation.operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 ||
                    operation.operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
  if (is_wait(operation)) {
    const auto& wait = operation.waitValue;
    made.kind = wire::ValueKind::kWait;
    made.value = {wait.address, wide ? wait.value64 : wait.value, wide ? 8u : 4u, wait.flags};
  } else if (is_write(operation)) {
    const auto& write = operation.writeValue;
    made.kind = wire::ValueKind::kWrite;
    made.value = {write.address, wide ? write.value64 : write.value, wide ? 8u : 4u, write.flags};
  } else {
    made.kind = wire::ValueKind::kBarrier;
    made.value.flags = operation.memoryBarrier.flags;
  }
  return made;
}

}  // namespace openmps::client
