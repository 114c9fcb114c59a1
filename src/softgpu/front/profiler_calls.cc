// SPDX-License-Identifier: Apache-2.0
// Calls that need a context but have nothing to do on a software GPU: profiler control,
// flushing of remote writes. Any thread.
#include "softgpu/front/front.h"

using namespace openmps;           // NOLINT: entry points live outside the namespace
using namespace openmps::softgpu;  // NOLINT: entry points live outside the namespace

CUresult cuProfilerStart() {
  return with_context([](Caller&) { return Status(); });
}

CUresult cuProfilerStop() {
  return with_context([](Caller&) { return Status(); });
}

CUresult cuFlushGPUDirectRDMAWrites(CUflushGPUDirectRDMAWritesTarget target,
                                    CUflushGPUDirectRDMAWritesScope scope) {
  return with_context([&](Caller&) -> Status {
    if (target != CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX ||
        (scope != CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER &&
         scope != CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_ALL_DEVICES)) {
      return invalid_value("no such target or scope");
    }
    return Status();
  });
}
