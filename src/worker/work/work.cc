// SPDX-License-Identifier: Apache-2.0
// See work.h.
#include "worker/work/work.h"

namespace openmps::worker {

CUstreamBatchMemOpParams operation_of(wire::ValueKind kind, const wire::StreamValue& value,
                                      CUdeviceptr address) {
  CUstreamBatchMemOpParams made{};
  const bool wide = value.width == 8;
  switch (kind) {
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

size_t ValuesWork::waits_behind() const {
  for (size_t i = 1; i < operations.size(); ++i) {
    if (operations[i].kind == wire::ValueKind::kWait &&
        operations[i - 1].kind != wire::ValueKind::kWait) {
      return i;
    }
  }
  return 0;
}

ValuesWork ValuesWork::part(size_t from, size_t count) const {
  ValuesWork made;
  made.operations = operations.subspan(from, count);
  made.batch = batch.subspan(from, count);
  for (const wire::ValueOperation& operation : made.operations) {
    if (operation.kind == wire::ValueKind::kWait) ++made.waits;
  }
  return made;
}

}  // namespace openmps::worker
