// SPDX-License-Identifier: Apache-2.0
// Nodes of driver graphs. See graph_builder.h.
#include "worker/graph_builder.h"

#include <string.h>

#include <algorithm>
#include <string>
#include <utility>

#include "worker/copy.h"
#include "worker/driver_check.h"

namespace openmps::worker {

using wire::GraphNodeKind;

namespace {

// The struct at the front of a body, which may be followed by `variable_bytes` more.
template <typename T>
Status take(wire::Variable* body, T* value) {
  if (body->size() < sizeof(T)) {
    return violation("the body of a graph node has " + std::to_string(body->size()) + " bytes");
  }
  memcpy(value, body->data(), sizeof(T));
  *body = body->subspan(sizeof(T));
  return Status();
}
Status check_rest(const wire::Variable& body, uint64_t bytes) {
  if (body.size() == bytes) return Status();
  return violation("the counts of a graph node do not fit its body");
}
template <typename T>
Status take_all(wire::Variable body, T* value) {
  OPENMPS_RETURN_IF_ERROR(take(&body, value));
  return check_rest(body, 0);
}

// CUDA's list for the bodies of conditional nodes; child graphs are flattened.
bool may_be_in_body(GraphNodeKind kind) {
  return kind == GraphNodeKind::kEmpty || kind == GraphNodeKind::kKernel ||
         kind == GraphNodeKind::kCopy || kind == GraphNodeKind::kArrayCopy ||
         kind == GraphNodeKind::kFill || kind == GraphNodeKind::kConditional;
}

bool same_edges(const std::vector<wire::GraphEdge>& a, const std::vector<wire::GraphEdge>& b) {
  return a.size() == b.size() &&
         (a.empty() || memcmp(a.data(), b.data(), a.size() * sizeof(a[0])) == 0);
}

// The context of a node can't change.
Modules::Reach reach_of(Lane lane) {
  return lane == Lane::kMain ? Modules::Reach::kMainLane : Modules::Reach::kColdLane;
}

bool is_plain(const wire::GraphEdge& edge) {
  return edge.from_port == 0 && edge.to_port == 0 && edge.type == 0;
}

}  // namespace

// ---- Bodies -------------------------------------------------------------------------------------

Status GraphBuilder::read_kernel(wire::Variable body, Modules::Reach reach, GraphStep* step,
                                 Parameters* parameters) {
  wire::Launch launch{};
  OPENMPS_RETURN_IF_ERROR(take(&body, &launch));
  const uint64_t more = wire::tail_bytes(launch);
  if (more == wire::kTooLong) return violation("a graph node with too many attributes");
  OPENMPS_RETURN_IF_ERROR(check_rest(body, more));
  Function* function = nullptr;
  OPENMPS_RETURN_IF_ERROR(modules_.functions().get(launch.function, &function));
  if (launch.parameter_bytes < function->parameter_bytes) {
    return Status(CUDA_ERROR_INVALID_VALUE, "a graph node has fewer parameters than its kernel");
  }
  step->function = launch.function;
  const uint32_t device = function->is_kernel ? launch.stream : function->device;
  OPENMPS_RETURN_IF_ERROR(core_.check_device(device));
  Located located;
  OPENMPS_RETURN_IF_ERROR(modules_.locate(*function, device, reach, &located));
  step->lane = located.lane;
  CUDA_KERNEL_NODE_PARAMS& kernel = parameters->kernel;
  kernel.func = located.handle;
  kernel.gridDimX = launch.grid[0];
  kernel.gridDimY = launch.grid[1];
  kernel.gridDimZ = launch.grid[2];
  kernel.blockDimX = launch.block[0];
  kernel.blockDimY = launch.block[1];
  kernel.blockDimZ = launch.block[2];
  kernel.sharedMemBytes = launch.shared_bytes;
  parameters->attributes.resize(launch.attribute_count);
  const size_t attribute_bytes = launch.attribute_count * sizeof(CUlaunchAttribute);
  if (attribute_bytes != 0) memcpy(parameters->attributes.data(), body.data(), attribute_bytes);
  for (CUlaunchAttribute& attribute : parameters->attributes) {
    OPENMPS_RETURN_IF_ERROR(launches_.translate(&attribute));
  }
  if ((launch.flags & wire::kLaunchCooperative) != 0) {
    CUlaunchAttribute& cooperative = parameters->attributes.emplace_back();
    cooperative.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    cooperative.value.cooperative = 1;
  }
  parameters->parameter_bytes = launch.parameter_bytes;
  if (launch.parameter_bytes == 0) return Status();
  parameters->extra[0] = CU_LAUNCH_PARAM_BUFFER_POINTER;
  parameters->extra[1] = const_cast<unsigned char*>(body.data() + attribute_bytes);
  parameters->extra[2] = CU_LAUNCH_PARAM_BUFFER_SIZE;
  parameters->extra[3] = &parameters->parameter_bytes;
  parameters->extra[4] = CU_LAUNCH_PARAM_END;
  kernel.extra = parameters->extra;
  return Status();
}

Status GraphBuilder::read_copy(wire::Variable body, GraphStep* step, Parameters* parameters) {
  wire::Memcpy3D command{};
  OPENMPS_RETURN_IF_ERROR(take_all(body, &command));
  step->ranges = ranges_of(command);
  CUDA_MEMCPY3D& copy = parameters->copy;
  copy.WidthInBytes = command.width;
  copy.Height = command.height;
  copy.Depth = command.depth;
  // Rows without others behind them need no pitch, however long they are.
  if (command.height > 1 || command.depth > 1) {
    copy.srcPitch = command.source_pitch;
    copy.dstPitch = command.destination_pitch;
  }
  OPENMPS_RETURN_IF_ERROR(rows_of_slice(command.height, command.depth, command.source_pitch,
                                        command.source_slice, &copy.srcHeight));
  OPENMPS_RETURN_IF_ERROR(rows_of_slice(command.height, command.depth, command.destination_pitch,
                                        command.destination_slice, &copy.dstHeight));
  if (is_host(command.source)) {
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = reinterpret_cast<const void*>(command.source);
  } else {
    copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = command.source;
  }
  if (is_host(command.destination)) {
    copy.dstMemoryType = CU_MEMORYTYPE_HOST;
    copy.dstHost = reinterpret_cast<void*>(command.destination);
  } else {
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = command.destination;
  }
  return Status();
}

Status GraphBuilder::read_array_copy(wire::Variable body, GraphStep* step, Parameters* parameters) {
  wire::ArrayCopy command{};
  OPENMPS_RETURN_IF_ERROR(take_all(body, &command));
  CUDA_MEMCPY3D& copy = parameters->copy;
  OPENMPS_RETURN_IF_ERROR(arrays_.describe(command, &copy, &step->arrays));
  step->ranges = ranges_of(command);
  // A node's memory is of one kind.
  if (copy.srcMemoryType == CU_MEMORYTYPE_UNIFIED) {
    const bool host = is_host(command.source.address);
    copy.srcMemoryType = host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    copy.srcHost = host ? reinterpret_cast<const void*>(command.source.address) : nullptr;
  }
  if (copy.dstMemoryType == CU_MEMORYTYPE_UNIFIED) {
    const bool host = is_host(command.destination.address);
    copy.dstMemoryType = host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    copy.dstHost = host ? reinterpret_cast<void*>(command.destination.address) : nullptr;
  }
  return Status();
}

Status GraphBuilder::read_fill(wire::Variable body, GraphStep* step, Parameters* parameters) {
  wire::Memset command{};
  OPENMPS_RETURN_IF_ERROR(take_all(body, &command));
  OPENMPS_RETURN_IF_ERROR(check_element(command));
  step->ranges = ranges_of(command);
  step->lane = memory_.lane_of(command.destination);
  parameters->fill = {core_.device_address(command.destination),
                      pitch_of(command),
                      command.value,
                      command.element_bytes,
                      command.width,
                      command.height};
  return Status();
}

Status GraphBuilder::read_host_call(wire::Variable body, uint32_t device, Parameters* parameters) {
  OPENMPS_RETURN_IF_ERROR(take_all(body, &parameters->host));
  if (parameters->host.slot >= wire::kCallbackSlots) {
    return violation("there is no callback slot " + std::to_string(parameters->host.slot));
  }
  // The wait must not find the last run's answer: it is taken back at once.
  const CUdeviceptr done = core_.device_address(&core_.view.callback(parameters->host.slot).done);
  const wire::ValueOperation wait{{done, 1, 4, CU_STREAM_WAIT_VALUE_EQ}, wire::ValueKind::kWait};
  const wire::ValueOperation reset{{done, 0, 4, CU_STREAM_WRITE_VALUE_DEFAULT},
                                   wire::ValueKind::kWrite};
  parameters->operations = {operation_of(wait, done), operation_of(reset, done)};
  parameters->batch = {core_.devices.at(device).context, 2, parameters->operations.data(), 0};
  return Status();
}

Status GraphBuilder::read_event(wire::Variable body, GraphStep* step) {
  wire::GraphEvent named;
  OPENMPS_RETURN_IF_ERROR(take_all(body, &named));
  Event* event = nullptr;
  OPENMPS_RETURN_IF_ERROR(events_.events().get(named.event, &event));
  return events_.share(*event, &step->event);
}

Status GraphBuilder::read_values(wire::Variable body, uint32_t device, GraphStep* step,
                                 Parameters* parameters) {
  const size_t count = body.size() / sizeof(wire::ValueOperation);
  OPENMPS_RETURN_IF_ERROR(check_rest(body, count * sizeof(wire::ValueOperation)));
  if (count == 0 || count > wire::kMaxBatch) {
    return violation(std::to_string(count) + " values in a graph node");
  }
  step->values.resize(count);
  memcpy(step->values.data(), body.data(), body.size());
  for (const wire::ValueOperation& value : step->values) {
    OPENMPS_RETURN_IF_ERROR(check_value(value));
    parameters->operations.push_back(
        operation_of(value, core_.device_address(value.value.address)));
  }
  const bool cold = std::any_of(step->values.begin(), step->values.end(), [this](const auto& v) {
    return memory_.lane_of(v.value.address) == Lane::kCold;
  });
  const bool waits = std::any_of(step->values.begin(), step->values.end(),
                                 [](const auto& v) { return v.kind == wire::ValueKind::kWait; });
  if (cold && waits) return no_wait_in_cold_variable();
  step->lane = cold ? Lane::kCold : Lane::kMain;
  parameters->batch = {core_.context(device, step->lane), static_cast<unsigned>(count),
                       parameters->operations.data(), 0};
  return Status();
}

Status GraphBuilder::read_conditional(wire::Variable body, GraphStep* step) {
  OPENMPS_RETURN_IF_ERROR(take_all(body, &step->conditional));
  const wire::GraphConditional& conditional = step->conditional;
  const bool one = conditional.bodies == 1;
  bool good = false;
  switch (conditional.type) {
    case CU_GRAPH_COND_TYPE_IF: good = one || conditional.bodies == 2; break;
    case CU_GRAPH_COND_TYPE_WHILE: good = one; break;
    case CU_GRAPH_COND_TYPE_SWITCH:
      good = conditional.bodies >= 1 && conditional.bodies <= wire::kMaxConditionalBodies;
      break;
    default: break;
  }
  if (good) return Status();
  return violation("a conditional node of type " + std::to_string(conditional.type) + " with " +
                   std::to_string(conditional.bodies) + " bodies");
}

Status GraphBuilder::read(uint32_t device, GraphNodeKind kind, wire::Variable body,
                          Modules::Reach reach, GraphStep* step, Parameters* parameters) {
  step->kind = kind;
  switch (kind) {
    case GraphNodeKind::kEmpty: OPENMPS_RETURN_IF_ERROR(check_rest(body, 0)); break;
    case GraphNodeKind::kKernel:
      OPENMPS_RETURN_IF_ERROR(read_kernel(body, reach, step, parameters));
      break;
    case GraphNodeKind::kCopy: OPENMPS_RETURN_IF_ERROR(read_copy(body, step, parameters)); break;
    case GraphNodeKind::kArrayCopy:
      OPENMPS_RETURN_IF_ERROR(read_array_copy(body, step, parameters));
      break;
    case GraphNodeKind::kFill: OPENMPS_RETURN_IF_ERROR(read_fill(body, step, parameters)); break;
    case GraphNodeKind::kHostCall:
      OPENMPS_RETURN_IF_ERROR(read_host_call(body, device, parameters));
      break;
    case GraphNodeKind::kEventRecord:
    case GraphNodeKind::kEventWait: OPENMPS_RETURN_IF_ERROR(read_event(body, step)); break;
    case GraphNodeKind::kValues:
      OPENMPS_RETURN_IF_ERROR(read_values(body, device, step, parameters));
      break;
    case GraphNodeKind::kConditional: OPENMPS_RETURN_IF_ERROR(read_conditional(body, step)); break;
    default: return violation("a graph node of kind " + std::to_string(static_cast<int>(kind)));
  }
  return check({step, 1}, Moment::kDescription);
}

Status GraphBuilder::check_range(const WorkRange& range) const {
  if (memory_.contains(range.address, range.bytes, range.writable)) return Status();
  return Status(CUDA_ERROR_INVALID_VALUE, "a graph node uses memory that is not the session's");
}

void GraphBuilder::open_to_copies(const GraphStep& step, uint32_t device) {
  if (step.kind != GraphNodeKind::kCopy && step.kind != GraphNodeKind::kArrayCopy) return;
  for (const WorkRange& range : step.ranges) memory_.open_to_copies(range, device);
}

Status GraphBuilder::check(std::span<const GraphStep> steps, Moment moment) const {
  for (const GraphStep& step : steps) {
    if (step.lost) return Status(CUDA_ERROR_INVALID_HANDLE, "a graph node's kernel is unloaded");
    for (const WorkRange& range : step.ranges) OPENMPS_RETURN_IF_ERROR(check_range(range));
    if (moment == Moment::kDescription) continue;
    for (const wire::ValueOperation& value : step.values) {
      OPENMPS_RETURN_IF_ERROR(check_range(range_of(value)));
    }
  }
  return Status();
}

// ---- The driver ---------------------------------------------------------------------------------

Status GraphBuilder::set_attributes(const Parameters& parameters, CUgraphNode node) {
  for (const CUlaunchAttribute& attribute : parameters.attributes) {
    OPENMPS_RETURN_IF_ERROR(worker::check(
        core_.driver.cuGraphKernelNodeSetAttribute(node, attribute.id, &attribute.value),
        "cuGraphKernelNodeSetAttribute"));
  }
  return Status();
}

Status GraphBuilder::make(DriverGraph& in, const Parameters& parameters,
                          std::span<const CUgraphNode> before, GraphStep* step) {
  const DriverTable& driver = core_.driver;
  const CUgraph graph = in.parts[step->parent].handle;
  const CUcontext context = core_.context(in.device(), step->lane);
  const CUgraphNode* from = before.data();
  const size_t count = before.size();
  CUgraphNode* node = &step->first;
  CUresult result = CUDA_SUCCESS;
  open_to_copies(*step, in.device());
  switch (step->kind) {
    case GraphNodeKind::kKernel:
      result = driver.cuGraphAddKernelNode_v2(node, graph, from, count, &parameters.kernel);
      break;
    case GraphNodeKind::kCopy:
    case GraphNodeKind::kArrayCopy:
      result = driver.cuGraphAddMemcpyNode(node, graph, from, count, &parameters.copy, context);
      break;
    case GraphNodeKind::kFill:
      result = driver.cuGraphAddMemsetNode(node, graph, from, count, &parameters.fill, context);
      break;
    case GraphNodeKind::kHostCall: {
      const CUDA_HOST_NODE_PARAMS post = fences_.posting(parameters.host.slot);
      result = driver.cuGraphAddHostNode(node, graph, from, count, &post);
      break;
    }
    case GraphNodeKind::kEventRecord:
      result = driver.cuGraphAddEventRecordNode(node, graph, from, count, step->event->handle);
      break;
    case GraphNodeKind::kEventWait:
      result = driver.cuGraphAddEventWaitNode(node, graph, from, count, step->event->handle);
      break;
    case GraphNodeKind::kValues:
      result = driver.cuGraphAddBatchMemOpNode(node, graph, from, count, &parameters.batch);
      break;
    case GraphNodeKind::kConditional: return make_conditional(in, before, step);
    default: result = driver.cuGraphAddEmptyNode(node, graph, from, count); break;
  }
  OPENMPS_RETURN_IF_ERROR(worker::check(result, "cuGraphAddNode"));
  step->last = step->first;
  if (step->kind == GraphNodeKind::kKernel) return set_attributes(parameters, step->first);
  if (step->kind != GraphNodeKind::kHostCall) return Status();
  return worker::check(
      driver.cuGraphAddBatchMemOpNode(&step->last, graph, &step->first, 1, &parameters.batch),
      "cuGraphAddBatchMemOpNode of a host function");
}

Status GraphBuilder::make_conditional(DriverGraph& graph, std::span<const CUgraphNode> before,
                                      GraphStep* step) {
  const wire::GraphConditional& wanted = step->conditional;
  const auto condition =
      std::find_if(graph.conditions.begin(), graph.conditions.end(),
                   [&](const DriverGraph::Condition& c) { return c.handle == wanted.handle; });
  // The driver's handles mean nothing to whom they were not given.
  if (condition == graph.conditions.end() || condition->used) {
    return violation("a conditional node with a handle that is not its graph's");
  }
  const uint32_t depth = graph.parts[step->parent].depth + 1;
  if (depth > wire::kMaxConditionalDepth) {
    return Status(CUDA_ERROR_NOT_SUPPORTED, "conditional nodes are nested too deep");
  }
  OPENMPS_RETURN_IF_ERROR(graph.count(wanted.bodies));
  CUgraphNodeParams parameters{};
  parameters.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
  parameters.conditional.handle = wanted.handle;
  parameters.conditional.type = static_cast<CUgraphConditionalNodeType>(wanted.type);
  parameters.conditional.size = wanted.bodies;
  parameters.conditional.ctx = core_.devices.at(graph.device()).context;
  OPENMPS_RETURN_IF_ERROR(worker::check(
      core_.driver.cuGraphAddNode_v2(&step->first, graph.parts[step->parent].handle, before.data(),
                                     nullptr, before.size(), &parameters),
      "cuGraphAddNode of a conditional node"));
  step->last = step->first;
  condition->used = true;
  for (uint32_t i = 0; i < wanted.bodies; ++i) {
    graph.parts.push_back({parameters.conditional.phGraph_out[i], depth});
  }
  return Status();
}

// The new node and its edges.
Status GraphBuilder::connect(DriverGraph& graph, const Parameters& parameters, const Edges& edges,
                             std::span<const GraphStep> steps, GraphStep* step) {
  std::vector<CUgraphNode> plain;
  for (const wire::GraphEdge& edge : edges) {
    if (is_plain(edge)) plain.push_back(steps[edge.node].last);
  }
  OPENMPS_RETURN_IF_ERROR(make(graph, parameters, plain, step));
  for (const wire::GraphEdge& edge : edges) {
    if (is_plain(edge)) continue;
    const CUgraphEdgeData data{edge.from_port, edge.to_port, edge.type, {}};
    OPENMPS_RETURN_IF_ERROR(worker::check(
        core_.driver.cuGraphAddDependencies_v2(graph.parts[step->parent].handle,
                                               &steps[edge.node].last, &step->first, &data, 1),
        "cuGraphAddDependencies"));
  }
  return Status();
}

Status GraphBuilder::add(DriverGraph& graph, const wire::GraphNode& node,
                         const wire::GraphNode::Tail& tail, std::span<const GraphStep> like,
                         std::vector<GraphStep>* steps) {
  std::vector<wire::GraphEdge> edges(tail.edges.begin(), tail.edges.end());
  for (const wire::GraphEdge& edge : edges) {
    if (edge.node >= steps->size() || (*steps)[edge.node].parent != node.parent) {
      return violation("a graph node behind node " + std::to_string(edge.node));
    }
  }
  if (node.parent >= graph.parts.size() || (node.parent != 0 && !may_be_in_body(node.kind))) {
    return violation("a graph node in the body " + std::to_string(node.parent));
  }
  GraphStep step;
  step.parent = node.parent;
  Parameters parameters;
  Modules::Reach reach = Modules::Reach::kAnyLane;
  if (steps->size() < like.size()) reach = reach_of(like[steps->size()].lane);
  if (graph.keeps()) reach = Modules::Reach::kMainLane;  // for every description
  OPENMPS_RETURN_IF_ERROR(read(graph.device(), node.kind, tail.body, reach, &step, &parameters));
  OPENMPS_RETURN_IF_ERROR(core_.use(graph.device()));
  if (steps->size() < graph.steps.size()) {
    GraphStep& has = graph.steps[steps->size()];
    const bool same = has.kind == step.kind && has.parent == step.parent &&
                      same_edges(has.edges, edges) &&
                      memcmp(&has.conditional, &step.conditional, sizeof(step.conditional)) == 0;
    if (!same) return Status(CUDA_ERROR_NOT_SUPPORTED, "a graph with handles got another shape");
    step.first = has.first;
    step.last = has.last;
    OPENMPS_RETURN_IF_ERROR(refresh(parameters, step));
    has = step;
    has.edges = std::move(edges);
  } else {
    if (graph.broken) return Status(CUDA_ERROR_NOT_SUPPORTED, "the graph could not be made before");
    if (graph.keeps()) OPENMPS_RETURN_IF_ERROR(graph.count(1));
    Status made = connect(graph, parameters, edges, *steps, &step);
    graph.broken = !made.ok() && step.first != nullptr;
    OPENMPS_RETURN_IF_ERROR(made);
    if (graph.keeps()) {
      graph.steps.push_back(step);
      graph.steps.back().edges = std::move(edges);
    }
  }
  steps->push_back(std::move(step));
  return Status();
}

// A node that the driver's graph has already gets new parameters.
Status GraphBuilder::refresh(const Parameters& parameters, const GraphStep& step) {
  const DriverTable& driver = core_.driver;
  const CUgraphNode node = step.first;
  CUresult result = CUDA_SUCCESS;
  switch (step.kind) {
    case GraphNodeKind::kKernel:
      OPENMPS_RETURN_IF_ERROR(
          worker::check(driver.cuGraphKernelNodeSetParams_v2(node, &parameters.kernel),
                        "cuGraphKernelNodeSetParams"));
      return set_attributes(parameters, node);
    case GraphNodeKind::kCopy:
    case GraphNodeKind::kArrayCopy:
      result = driver.cuGraphMemcpyNodeSetParams(node, &parameters.copy);
      break;
    case GraphNodeKind::kFill:
      result = driver.cuGraphMemsetNodeSetParams(node, &parameters.fill);
      break;
    case GraphNodeKind::kHostCall: {
      const CUDA_HOST_NODE_PARAMS post = fences_.posting(parameters.host.slot);
      OPENMPS_RETURN_IF_ERROR(
          worker::check(driver.cuGraphHostNodeSetParams(node, &post), "cuGraphHostNodeSetParams"));
      result = driver.cuGraphBatchMemOpNodeSetParams(step.last, &parameters.batch);
      break;
    }
    case GraphNodeKind::kEventRecord:
      result = driver.cuGraphEventRecordNodeSetEvent(node, step.event->handle);
      break;
    case GraphNodeKind::kEventWait:
      result = driver.cuGraphEventWaitNodeSetEvent(node, step.event->handle);
      break;
    case GraphNodeKind::kValues:
      result = driver.cuGraphBatchMemOpNodeSetParams(node, &parameters.batch);
      break;
    default: break;
  }
  return worker::check(result, "cuGraphNodeSetParams");
}

Status GraphBuilder::change(CUgraphExec exec, uint32_t device, GraphNodeKind kind,
                            wire::Variable body, GraphStep* step) {
  if (kind != step->kind) return violation("a graph node can't become one of another kind");
  GraphStep changed;
  Parameters parameters;
  OPENMPS_RETURN_IF_ERROR(read(device, kind, body, reach_of(step->lane), &changed, &parameters));
  if (changed.lane != step->lane) {
    return Status(CUDA_ERROR_NOT_SUPPORTED, "a graph node would change its lane");
  }
  changed.first = step->first;
  changed.last = step->last;
  OPENMPS_RETURN_IF_ERROR(core_.use(device));
  const DriverTable& driver = core_.driver;
  const CUcontext context = core_.context(device, changed.lane);
  const CUgraphNode node = step->first;
  CUresult result = CUDA_ERROR_INVALID_VALUE;
  open_to_copies(changed, device);
  switch (kind) {
    case GraphNodeKind::kKernel:
      result = driver.cuGraphExecKernelNodeSetParams_v2(exec, node, &parameters.kernel);
      break;
    case GraphNodeKind::kCopy:
    case GraphNodeKind::kArrayCopy:
      result = driver.cuGraphExecMemcpyNodeSetParams(exec, node, &parameters.copy, context);
      break;
    case GraphNodeKind::kFill:
      result = driver.cuGraphExecMemsetNodeSetParams(exec, node, &parameters.fill, context);
      break;
    case GraphNodeKind::kEventRecord:
      result = driver.cuGraphExecEventRecordNodeSetEvent(exec, node, changed.event->handle);
      break;
    case GraphNodeKind::kEventWait:
      result = driver.cuGraphExecEventWaitNodeSetEvent(exec, node, changed.event->handle);
      break;
    case GraphNodeKind::kValues:
      result = driver.cuGraphExecBatchMemOpNodeSetParams(exec, node, &parameters.batch);
      break;
    default: return violation("a graph node without parameters can't be changed");
  }
  OPENMPS_RETURN_IF_ERROR(worker::check(result, "cuGraphExecNodeSetParams"));
  *step = std::move(changed);
  return Status();
}

}  // namespace openmps::worker
