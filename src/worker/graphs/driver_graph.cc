// SPDX-License-Identifier: Apache-2.0
// The driver's graphs of a session. See driver_graph.h.
#include "worker/graphs/driver_graph.h"

#include <algorithm>

#include "worker/code/module.h"
#include "worker/device/driver_check.h"
#include "worker/device/in_context.h"

namespace openmps::worker {

CUfunction GraphStep::in_main(uint32_t device) const {
  if (uses.lane != Lane::kCold) return nullptr;
  const std::shared_ptr<Function> of = code.lock();
  return of == nullptr ? nullptr : of->find_in_main(device);
}

DriverGraph::~DriverGraph() {
  totals_.nodes -= nodes_;
  totals_.conditions -= static_cast<uint32_t>(conditions.size());
  if (handle() != nullptr && core_.use(device_).ok()) core_.driver.cuGraphDestroy(handle());
}

Status DriverGraph::create() {
  OPENMPS_RETURN_IF_ERROR(core_.use(device_));
  return check(core_.driver.cuGraphCreate(&parts[0].handle, 0), "cuGraphCreate");
}

// A graph is not described for the few SMs that ranks keep: it moves there when it is launched, if
// it can. A graph that can't move would have to stay there.
Status DriverGraph::reach(const KernelHome& home) {
  const Way::Key key = key_of(home);
  if (way_->places.contains(key)) return Status();
  Way::Place place;
  place.green = home.green;
  OPENMPS_RETURN_IF_ERROR(find(key, true, &place));
  way_->places.emplace(key, std::move(place));
  return Status();
}

// A green context that has not been made yet runs its work on the SMs of the session.
Status DriverGraph::find(const Way::Key& key, bool limits_only, Way::Place* place) const {
  DeviceParts& parts = core_.parts;
  const auto& [sms, number] = key;
  if (number == 0 && !limits_only) return parts.get(device_, sms, &place->part);
  const std::shared_ptr<ClientGreen> green = place->green.lock();
  if (number != 0 && green == nullptr) return Status();
  place->in_green = green != nullptr && green->is_there();
  if (!place->in_green) return parts.get_limit(device_, sms, &place->part);
  OPENMPS_RETURN_IF_ERROR(parts.get_instead(device_, green->of, &place->part));
  place->in_green = place->part == nullptr;
  return Status();
}

Status DriverGraph::look_again(bool limits_only, Way* way) const {
  *way = {way_->places, core_.driver_priority(device_, 0)};
  for (auto& [key, place] : way->places) {
    OPENMPS_RETURN_IF_ERROR(find(key, limits_only, &place));
  }
  return Status();
}

// What a partition borrows is not beyond its limit.
bool DriverGraph::is_beyond_limit() const {
  Way limits;
  Way now;
  if (!look_again(true, &limits).ok() || !look_again(false, &now).ok()) return false;
  return std::ranges::any_of(limits.places, [this, &now](const auto& entry) {
    const auto& [key, place] = entry;
    const SmPart& part = way_->places.at(key).part;
    return place.part != nullptr && place.part != part && now.places.at(key).part != part;
  });
}

// Kernels with clusters are not asked about: the driver answers for the current context only.
bool DriverGraph::have_room(std::span<const GraphStep> steps, const Way& way) const {
  return std::ranges::all_of(steps, [&](const GraphStep& step) {
    const GreenContext* const part = part_in(way, step.home);
    if (!step.is_cooperative || part == nullptr) return true;
    CUDA_KERNEL_NODE_PARAMS node{};
    int in_cluster = 0;
    int on_each = 0;
    const DriverTable& driver = core_.driver;
    return !step.has_clusters && core_.use(device_).ok() &&
           driver.cuGraphKernelNodeGetParams_v2(step.first, &node) == CUDA_SUCCESS &&
           driver.cuFuncGetAttribute(&in_cluster, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH,
                                     node.func) == CUDA_SUCCESS &&
           in_cluster == 0 &&
           driver.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
               &on_each, node.func,
               static_cast<int>(node.blockDimX * node.blockDimY * node.blockDimZ),
               node.sharedMemBytes, CU_OCCUPANCY_DEFAULT) == CUDA_SUCCESS &&
           step.blocks <= uint64_t{part->sms} * static_cast<unsigned>(on_each);
  });
}

Status DriverGraph::add_condition(const wire::ConditionCreate& command, KernelHome home,
                                  CUgraphConditionalHandle* made) {
  if (totals_.conditions == wire::kMaxConditions) {
    return Status(CUDA_ERROR_OUT_OF_MEMORY, "too many conditional handles");
  }
  OPENMPS_RETURN_IF_ERROR(reach(home));
  OPENMPS_RETURN_IF_ERROR(core_.use(device_));
  // The handle, the node and the kernels of the bodies have to be of one context (measured).
  OPENMPS_RETURN_IF_ERROR(check(core_.driver.cuGraphConditionalHandleCreate(
                                    made, handle(), context(home), command.initial, command.flags),
                                "cuGraphConditionalHandleCreate"));
  conditions.push_back({*made, std::move(home), false});
  ++totals_.conditions;
  return Status();
}

// A node runs in the context that is current when its parameters are set (measured).
Status DriverGraph::move(std::span<const GraphStep> steps, Way way, std::vector<size_t>* moved) {
  OPENMPS_RETURN_IF_ERROR(core_.use(device_));
  const bool other_priority = way.priority != way_->priority;
  way_ = std::make_shared<Way>(std::move(way));
  for (size_t i = 0; i < steps.size(); ++i) {
    const GraphStep& step = steps[i];
    if (step.kind != wire::GraphNodeKind::kKernel) continue;
    CUfunction in_main = nullptr;
    if (step.uses.lane != Lane::kMain) {
      in_main = step.in_main(device_);
      if (in_main == nullptr) continue;
    }
    const InContext current(core_.driver, context(step.home));
    CUDA_KERNEL_NODE_PARAMS parameters{};
    OPENMPS_RETURN_IF_ERROR(
        check(core_.driver.cuGraphKernelNodeGetParams_v2(step.first, &parameters),
              "cuGraphKernelNodeGetParams"));
    if (in_main != nullptr) {
      parameters.func = in_main;
      parameters.kern = nullptr;
      moved->push_back(i);
    }
    OPENMPS_RETURN_IF_ERROR(
        check(core_.driver.cuGraphKernelNodeSetParams_v2(step.first, &parameters),
              "cuGraphKernelNodeSetParams"));
    if (!other_priority || step.has_priority) continue;
    CUlaunchAttributeValue value{};
    value.priority = way_->priority;
    OPENMPS_RETURN_IF_ERROR(check(core_.driver.cuGraphKernelNodeSetAttribute(
                                      step.first, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value),
                                  "cuGraphKernelNodeSetAttribute"));
  }
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
