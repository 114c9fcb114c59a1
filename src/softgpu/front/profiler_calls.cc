// SPDX-License-Identifier: Apache-2.0
// Calls that need a context but have nothing to do on a software GPU: profiler control, graph
// memory (graphs allocate none), flushing of remote writes. Any thread.
#include <cstring>

#include "softgpu/front/front.h"

using namespace openmps;           // NOLINT: entry points live outside the namespace
using namespace openmps::softgpu;  // NOLINT: the same

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
         scope != CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_ALL_DEVICES))
      return invalid_value("no such target or scope");
    return Status();
  });
}

CUresult cuDeviceGraphMemTrim(CUdevice device) {
  return with_driver([&](Driver& driver) -> Status {
    return driver.device(device) != nullptr ? Status()
                                            : Status(CUDA_ERROR_INVALID_DEVICE, "no such device");
  });
}

CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void* value) {
  return with_driver([&](Driver& driver) -> Status {
    if (driver.device(device) == nullptr)
      return Status(CUDA_ERROR_INVALID_DEVICE, "no such device");
    if (value == nullptr || attr < CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT ||
        attr > CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)
      return invalid_value("no such attribute, or no place for the result");
    memset(value, 0, sizeof(cuuint64_t));
    return Status();
  });
}

CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void* value) {
  return with_driver([&](Driver& driver) -> Status {
    if (driver.device(device) == nullptr)
      return Status(CUDA_ERROR_INVALID_DEVICE, "no such device");
    // Only the high-water marks can be set, and only to zero, which they are.
    cuuint64_t wanted = 1;
    if (value != nullptr) memcpy(&wanted, value, sizeof wanted);
    bool mark =
        attr == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH || attr == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH;
    return mark && wanted == 0 ? Status() : invalid_value("the attribute can't be set");
  });
}
