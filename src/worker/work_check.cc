// SPDX-License-Identifier: Apache-2.0
// See work_check.h.
#include "worker/work_check.h"

#include <algorithm>
#include <string>

#include "worker/driver_check.h"

namespace openmps::worker {

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

uint64_t pitch_of(const wire::Memset& command) {
  return wire::fill_pitch(command.width, command.element_bytes, command.height, command.pitch);
}

Status check_element(const wire::Memset& command) {
  const uint64_t element = command.element_bytes;
  if (element == 1 || element == 2 || element == 4) return Status();
  return violation("a fill with elements of " + std::to_string(element) + " bytes");
}

Status check_value(const wire::ValueOperation& operation) {
  const wire::StreamValue& value = operation.value;
  switch (operation.kind) {
    case wire::ValueKind::kBarrier: return Status();
    case wire::ValueKind::kWait:
    case wire::ValueKind::kWrite: break;
    default:
      return violation("an operation of kind " +
                       std::to_string(static_cast<uint32_t>(operation.kind)));
  }
  if ((value.width == 4 || value.width == 8) && value.address % value.width == 0) return Status();
  return violation("a stream value of " + std::to_string(value.width) + " bytes");
}

Status no_wait_in_cold_variable() {
  return Status(CUDA_ERROR_NOT_SUPPORTED, "a wait for a module's variable in the cold lane");
}

WorkRange range_of(const wire::ValueOperation& operation) {
  if (operation.kind == wire::ValueKind::kBarrier) return {};
  return {operation.value.address, operation.value.width,
          operation.kind == wire::ValueKind::kWrite};
}

CUstreamBatchMemOpParams operation_of(const wire::ValueOperation& operation, CUdeviceptr address) {
  CUstreamBatchMemOpParams made{};
  const wire::StreamValue& value = operation.value;
  const bool wide = value.width == 8;
  switch (operation.kind) {
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
