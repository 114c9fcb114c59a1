// SPDX-License-Identifier: Apache-2.0
// The driver's graphs of a session. See driver_graph.h.
#include "worker/graphs/driver_graph.h"

#include "worker/device/driver_check.h"

namespace openmps::worker {

DriverGraph::~DriverGraph() {
  totals_.nodes -= nodes_;
  totals_.conditions -= static_cast<uint32_t>(conditions.size());
  if (handle() != nullptr && core_.use(device_).ok()) core_.driver.cuGraphDestroy(handle());
}

Status DriverGraph::create() {
  OPENMPS_RETURN_IF_ERROR(core_.use(device_));
  return check(core_.driver.cuGraphCreate(&parts[0].handle, 0), "cuGraphCreate");
}

Status DriverGraph::add_condition(const wire::ConditionCreate& command,
                                  CUgraphConditionalHandle* made) {
  if (totals_.conditions == wire::kMaxConditions) {
    return Status(CUDA_ERROR_OUT_OF_MEMORY, "too many conditional handles");
  }
  OPENMPS_RETURN_IF_ERROR(core_.use(device_));
  // Handle, node and kernels of the bodies have to be of one context (measured).
  CUcontext context = nullptr;
  OPENMPS_RETURN_IF_ERROR(core_.kernel_context(device_, &context));
  OPENMPS_RETURN_IF_ERROR(check(core_.driver.cuGraphConditionalHandleCreate(
                                    made, handle(), context, command.initial, command.flags),
                                "cuGraphConditionalHandleCreate"));
  conditions.push_back({*made, false});
  ++totals_.conditions;
  return Status();
}

Status DriverGraph::Totals::add_nodes(uint32_t count) {
  if (count > wire::kMaxGraphNodes - nodes) {
    return Status(CUDA_ERROR_OUT_OF_MEMORY, "too many nodes of executable graphs");
  }
  nodes += count;
  return Status();
}

Status DriverGraph::count(uint32_t nodes) {
  OPENMPS_RETURN_IF_ERROR(totals_.add_nodes(nodes));
  nodes_ += nodes;
  return Status();
}

}  // namespace openmps::worker
