// SPDX-License-Identifier: Apache-2.0
// What the memory of graphs costs a device. Any thread.
#include "softgpu/device/memory/graph_memory.h"
#include "softgpu/front/graph_front.h"

using namespace openmps;           // NOLINT: entry points live outside the namespace
using namespace openmps::softgpu;  // NOLINT: entry points live outside the namespace

namespace {

// body(GraphMemory&) -> Status, of a device that is.
template <typename Body>
CUresult with_graph_memory(CUdevice device, Body&& body) {
  return with_driver([&](Driver& driver) -> Status {
    if (driver.device(device) == nullptr) {
      return Status(CUDA_ERROR_INVALID_DEVICE, "no such device");
    }
    return body(driver.graph_memory);
  });
}

}  // namespace

CUresult cuDeviceGraphMemTrim(CUdevice device) {
  return with_graph_memory(device, [&](GraphMemory& memory) {
    memory.trim(device);
    return Status();
  });
}

CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void* value) {
  return with_graph_memory(device, [&](GraphMemory& memory) -> Status {
    if (value == nullptr) return no_result();
    uint64_t bytes = 0;
    OPENMPS_RETURN_IF_ERROR(memory.attribute(device, attr, &bytes));
    memcpy(value, &bytes, sizeof bytes);
    return Status();
  });
}

// Only the high-water marks can be set, and only to zero.
CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void* value) {
  return with_graph_memory(device, [&](GraphMemory& memory) -> Status {
    if (value == nullptr) return invalid_value("no value");
    cuuint64_t wanted = 0;
    memcpy(&wanted, value, sizeof wanted);
    if (wanted != 0) return invalid_value("a mark starts again at zero");
    return memory.reset(device, attr);
  });
}
