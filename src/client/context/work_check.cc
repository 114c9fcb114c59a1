// SPDX-License-Identifier: Apache-2.0
// See work_check.h.
#include "client/context/work_check.h"

#include "client/check.h"
#include "cuda/box.h"
#include "cuda/stream_values.h"

namespace openmps::client {
namespace {

using cuda::StreamValue;

CUresult check_value(const CUstreamBatchMemOpParams& operation) {
  const StreamValue value = cuda::read_stream_value(operation);
  uint32_t most = 0;
  switch (value.kind) {
    case StreamValue::Kind::kBarrier: most = CU_STREAM_MEMORY_BARRIER_TYPE_GPU; break;
    case StreamValue::Kind::kWait:
      if ((value.flags & CU_STREAM_WAIT_VALUE_FLUSH) != 0) return CUDA_ERROR_NOT_SUPPORTED;
      most = CU_STREAM_WAIT_VALUE_NOR;
      break;
    case StreamValue::Kind::kWrite: break;
    case StreamValue::Kind::kFlush: return CUDA_ERROR_NOT_SUPPORTED;
    case StreamValue::Kind::kUnknown: return CUDA_ERROR_INVALID_VALUE;
  }
  const bool good = value.flags <= most && value.address % value.bytes == 0;
  return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

uint64_t span_of(const CUDA_MEMSET_NODE_PARAMS& fill) {
  return cuda::span_of_box(cuda::bytes_of_row(fill.width, fill.elementSize), fill.height, 1,
                           fill.pitch, 0);
}

}  // namespace

CUresult check_fill(const CUDA_MEMSET_NODE_PARAMS& fill) {
  const uint64_t element = fill.elementSize;
  if (element != 1 && element != 2 && element != 4) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t bytes = span_of(fill);
  if (bytes == 0 || bytes == cuda::kTooManyBytes) return CUDA_ERROR_INVALID_VALUE;
  const bool rows = fill.height > 1;
  const bool aligned = fill.dst % element == 0 && (!rows || fill.pitch % element == 0);
  return aligned && (!rows || fill.pitch >= fill.width * element) ? CUDA_SUCCESS
                                                                  : CUDA_ERROR_INVALID_VALUE;
}

CUresult check_fill(const Places& places, const CUDA_MEMSET_NODE_PARAMS& fill) {
  OPENMPS_CUDA_CHECK(check_fill(fill));
  return places.contains(fill.dst, span_of(fill), true) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

wire::Memset fill_command(const CUDA_MEMSET_NODE_PARAMS& fill, wire::Id target) {
  return {target, fill.elementSize, fill.dst, fill.pitch, fill.width, fill.height, fill.value};
}

CUresult check_values(ValueOperations operations, unsigned int flags) {
  if (operations.size() > wire::kMaxBatch || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  for (const CUstreamBatchMemOpParams& operation : operations) {
    OPENMPS_CUDA_CHECK(check_value(operation));
  }
  return CUDA_SUCCESS;
}

CUresult check_value_places(const Places& places, ValueOperations operations) {
  for (const CUstreamBatchMemOpParams& operation : operations) {
    const StreamValue value = cuda::read_stream_value(operation);
    if (value.kind == StreamValue::Kind::kBarrier) continue;
    const bool writes = value.kind == StreamValue::Kind::kWrite;
    if (!places.contains(value.address, value.bytes, writes)) return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

wire::ValueOperation wire_value(const CUstreamBatchMemOpParams& operation) {
  const StreamValue value = cuda::read_stream_value(operation);
  const auto kind = value.kind == StreamValue::Kind::kWait    ? wire::ValueKind::kWait
                    : value.kind == StreamValue::Kind::kWrite ? wire::ValueKind::kWrite
                                                              : wire::ValueKind::kBarrier;
  wire::ValueOperation made{};
  made.kind = kind;
  made.value.flags = value.flags;
  if (kind == wire::ValueKind::kBarrier) return made;
  made.value.width = value.bytes;
  made.value.address = value.address;
  made.value.value = value.value;
  return made;
}

}  // namespace openmps::client
