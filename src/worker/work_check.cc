// SPDX-License-Identifier: Apache-2.0
// See work_check.h.
#include "worker/work_check.h"

#include <algorithm>
#include <string>

#include "worker/driver_check.h"

namespace openmps::worker {

uint64_t span_of_box(uint64_t width, uint64_t height, uint64_t depth, uint64_t pitch,
                     uint64_t slice) {
  if (width == 0 || height == 0 || depth == 0) return 0;
  uint64_t rows = 0;
  uint64_t slices = 0;
  uint64_t span = 0;
  if (__builtin_mul_overflow(height - 1, pitch, &rows) ||
      __builtin_mul_overflow(depth - 1, slice, &slices) ||
      __builtin_add_overflow(rows, slices, &span) || __builtin_add_overflow(span, width, &span)) {
    return ~0ull;
  }
  return span;
}

Status rows_of_slice(uint64_t height, uint64_t depth, uint64_t pitch, uint64_t slice,
                     size_t* rows) {
  *rows = height;
  if (depth <= 1) return Status();
  if (pitch == 0 || slice % pitch != 0) {
    return violation("a slice of " + std::to_string(slice) + " bytes with rows of " +
                     std::to_string(pitch));
  }
  *rows = slice / pitch;
  return Status();
}

std::array<WorkRange, 2> ranges_of(const wire::Memcpy3D& command) {
  const auto span_of = [&command](uint64_t pitch, uint64_t slice) {
    return span_of_box(command.width, command.height, command.depth, pitch, slice);
  };
  return {
      {{command.destination, span_of(command.destination_pitch, command.destination_slice), true},
       {command.source, span_of(command.source_pitch, command.source_slice), false}}};
}

uint64_t pitch_of(const wire::Memset& command) {
  uint64_t row = 0;
  if (__builtin_mul_overflow(command.width, uint64_t{command.element_bytes}, &row)) row = ~0ull;
  return command.height > 1 ? command.pitch : row;
}

Status check_fill(const wire::Memset& command, WorkRange* range) {
  const uint64_t element = command.element_bytes;
  if (element != 1 && element != 2 && element != 4) {
    return violation("a fill with elements of " + std::to_string(element) + " bytes");
  }
  uint64_t row = 0;
  if (__builtin_mul_overflow(command.width, element, &row)) row = ~0ull;
  // No rows may be one to a driver.
  const uint64_t rows = std::max<uint64_t>(command.height, 1);
  *range = {command.destination, span_of_box(row, rows, 1, pitch_of(command), 0), true};
  return Status();
}

Status check_value(const wire::ValueOperation& operation) {
  const wire::StreamValue& value = operation.value;
  switch (static_cast<wire::ValueKind>(operation.kind)) {
    case wire::ValueKind::kBarrier: return Status();
    case wire::ValueKind::kWait:
    case wire::ValueKind::kWrite: break;
    default: return violation("an operation of kind " + std::to_string(operation.kind));
  }
  if ((value.width == 4 || value.width == 8) && value.address % value.width == 0) return Status();
  return violation("a stream value of " + std::to_string(value.width) + " bytes");
}

Status no_wait_in_cold_variable() {
  return Status(CUDA_ERROR_NOT_SUPPORTED, "a wait for a module's variable in the cold lane");
}

WorkRange range_of(const wire::ValueOperation& operation) {
  const auto kind = static_cast<wire::ValueKind>(operation.kind);
  if (kind == wire::ValueKind::kBarrier) return {};
  return {operation.value.address, operation.value.width, kind == wire::ValueKind::kWrite};
}

CUstreamBatchMemOpParams operation_of(const wire::ValueOperation& operation, CUdeviceptr address) {
  CUstreamBatchMemOpParams made{};
  const wire::StreamValue& value = operation.value;
  const bool wide = value.width == 8;
  switch (static_cast<wire::ValueKind>(operation.kind)) {
    case wire::ValueKind::kWrite:
      made.operation = wide ? CU_STREAM_MEM_OP_WRITE_VALUE_64 : CU_STREAM_MEM_OP_WRITE_VALUE_32;
      made.writeValue.address = address;
      made.writeValue.value64 = value.value;
      made.writeValue.flags = value.flags;
      break;
    case wire::ValueKind::kWait:
      made.operation = wide ? CU_STREAM_MEM_OP_WAIT_VALUE_64 : CU_STREAM_MEM_OP_WAIT_VALUE_32;
      made.waitValue.address = address;
      made.waitValue.value64 = value.value;
      made.waitValue.flags = value.flags;
      break;
    default:
      made.operation = CU_STREAM_MEM_OP_BARRIER;
      made.memoryBarrier.flags = value.flags;
      break;
  }
  return made;
}

}  // namespace openmps::worker
