// SPDX-License-Identifier: Apache-2.0
// Nodes of driver graphs. See graph_builder.h.
#include "worker/graphs/graph_builder.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "worker/device/driver_check.h"

namespace openmps::worker {

using wire::GraphNodeKind;

namespace {

Status no_body_of(wire::Variable body) {
  return violation("the body of a graph node has " + std::to_string(body.size()) + " bytes");
}
template <typename T>
Status read_struct(wire::Variable body, T* value) {
  if (body.size() != sizeof(T)) return no_body_of(body);
  memcpy(value, body.data(), sizeof(T));
  return Status();
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

// With the padding of a record in the ring.
wire::Record GraphBuilder::record_of(wire::Variable body) {
  const uint32_t bytes = wire::record_bytes(body.size()) - sizeof(wire::RecordHeader);
  body_.assign(bytes / sizeof(uint64_t), 0);
  if (!body.empty()) memcpy(body_.data(), body.data(), body.size());
  wire::Record record;
  record.payload = reinterpret_cast<const unsigned char*>(body_.data());
  record.payload_bytes = bytes;
  return record;
}

Status GraphBuilder::read_kernel(DriverGraph& graph, wire::Variable body, Modules::Reach reach,
                                 GraphStep* step, Work* work) {
  const wire::Launch* launch = nullptr;
  wire::Launch::Tail tail;
  OPENMPS_RETURN_IF_ERROR(wire::decode(record_of(body), &launch, &tail));
  Function* function = nullptr;
  // NOLINTNEXTLINE(clang-analyzer-*): success comes with a launch.
  OPENMPS_RETURN_IF_ERROR(modules_.functions().get(launch->function, &function));
  step->function = launch->function;
  step->blocks = blocks_of(*launch);
  step->threads_each = threads_of(*launch);
  const uint32_t device = function->is_kernel ? launch->stream : function->device;
  OPENMPS_RETURN_IF_ERROR(core_.check_device(device));
  if (device == graph.device()) step->code = function->weak_from_this();
  if (!Modules::is_at_hand(*function, {device})) submitter_.prepare_to_wait();
  if (!graph.reaches(step->home)) submitter_.prepare_to_wait();
  OPENMPS_RETURN_IF_ERROR(graph.reach(step->home));
  ClientGreen* const green = step->home.green.get();
  if (green != nullptr && green->device != device) {
    return Status(CUDA_ERROR_INVALID_CONTEXT, "a kernel of one device in a part of another");
  }
  const GreenContext* part = green != nullptr && green->is_there() ? green : nullptr;
  if (device == graph.device()) part = graph.part(step->home);
  KernelWork& kernel = work->what.emplace<KernelWork>();
  OPENMPS_RETURN_IF_ERROR(maker_.make(*launch, tail, *function, {device, Lane::kMain, part}, reach,
                                      &work->uses, &kernel));
  for (const CUlaunchAttribute& attribute : kernel.attributes) {
    step->is_cooperative |= attribute.id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    step->has_clusters |= attribute.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    step->has_priority |= attribute.id == CU_LAUNCH_ATTRIBUTE_PRIORITY;
  }
  return Status();
}

template <typename What, typename Command>
Status GraphBuilder::read_command(wire::Variable body, Work* work) {
  Command command;
  OPENMPS_RETURN_IF_ERROR(read_struct(body, &command));
  return maker_.make(command, &work->uses, &work->what.emplace<What>());
}

Status GraphBuilder::read_event(GraphNodeKind kind, wire::Variable body, Work* work) {
  wire::GraphEvent named;
  OPENMPS_RETURN_IF_ERROR(read_struct(body, &named));
  Event* event = nullptr;
  OPENMPS_RETURN_IF_ERROR(events_.events().get(named.event, &event));
  if (kind == GraphNodeKind::kEventWait) {
    return maker_.make(*event, &work->uses, &work->what.emplace<WaitWork>());
  }
  return maker_.make(*event, FenceValue(), &work->uses, &work->what.emplace<RecordWork>());
}

Status GraphBuilder::read_values(wire::Variable body, GraphStep* step, Work* work) {
  const size_t count = body.size() / sizeof(wire::ValueOperation);
  if (count == 0 || count > wire::kMaxBatch || body.size() % sizeof(wire::ValueOperation) != 0) {
    return no_body_of(body);
  }
  step->values.resize(count);
  memcpy(step->values.data(), body.data(), body.size());
  for (const wire::ValueOperation& operation : step->values) {
    if (memory_.constants().at(operation.value.address) == nullptr) continue;
    return Status(CUDA_ERROR_NOT_SUPPORTED, "a graph node that writes or awaits a constant");
  }
  return maker_.make(step->values, &work->uses, &work->what.emplace<ValuesWork>());
}

Status GraphBuilder::read_conditional(wire::Variable body, GraphStep* step) {
  OPENMPS_RETURN_IF_ERROR(read_struct(body, &step->conditional));
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

Status GraphBuilder::read(DriverGraph& graph, GraphNodeKind kind, wire::Variable body,
                          Modules::Reach reach, GraphStep* step, Work* work) {
  const auto read_kind = [&] {
    switch (kind) {
      case GraphNodeKind::kEmpty: return body.empty() ? Status() : no_body_of(body);
      case GraphNodeKind::kKernel: return read_kernel(graph, body, reach, step, work);
      case GraphNodeKind::kCopy: return read_command<BoxWork, wire::Memcpy3D>(body, work);
      case GraphNodeKind::kArrayCopy: return read_command<BoxWork, wire::ArrayCopy>(body, work);
      case GraphNodeKind::kFill: return read_command<FillWork, wire::Memset>(body, work);
      case GraphNodeKind::kHostCall:
        return read_command<HostCallWork, wire::HostFunction>(body, work);
      case GraphNodeKind::kEventRecord:
      case GraphNodeKind::kEventWait: return read_event(kind, body, work);
      case GraphNodeKind::kValues: return read_values(body, step, work);
      case GraphNodeKind::kConditional: return read_conditional(body, step);
      default: return violation("a graph node of kind " + std::to_string(static_cast<int>(kind)));
    }
  };
  step->kind = kind;
  OPENMPS_RETURN_IF_ERROR(read_kind());
  if (!memory_.constants().empty()) name_constants(step, work);
  step->uses = work->uses;
  return check({step, 1}, Moment::kDescription);
}

void GraphBuilder::name_constants(GraphStep* step, Work* work) const {
  const auto name = [&](size_t range, CUdeviceptr* address) {
    const WorkRange& named = work->uses.ranges[range];
    const Constant* const constant =
        named.bytes == 0 ? nullptr : memory_.constants().at(named.address);
    if (constant == nullptr) return;
    *address = constant->in_code + (named.address - constant->address);
    step->constants.push_back(constant->in_code);
  };
  if (auto* const box = std::get_if<BoxWork>(&work->what)) {
    name(0, &box->box.dstDevice);
    name(1, &box->box.srcDevice);
  } else if (auto* const fill = std::get_if<FillWork>(&work->what)) {
    name(0, &fill->fill.dst);
  }
}

Status GraphBuilder::check_range(const WorkRange& range) const {
  if (memory_.contains(range.address, range.bytes, range.writable)) return Status();
  return Status(CUDA_ERROR_INVALID_VALUE, "a graph node uses memory that is not the session's");
}

Status GraphBuilder::check(std::span<const GraphStep> steps, Moment moment) const {
  for (const GraphStep& step : steps) {
    if (step.lost) return Status(CUDA_ERROR_INVALID_HANDLE, "a graph node's kernel is unloaded");
    for (const WorkRange& range : step.uses.ranges) OPENMPS_RETURN_IF_ERROR(check_range(range));
    for (const CUdeviceptr constant : step.constants) {
      if (memory_.constants().in_code(constant) != nullptr) continue;
      return Status(CUDA_ERROR_INVALID_VALUE, "a graph node names a constant that is unloaded");
    }
    if (moment == Moment::kDescription) continue;
    for (const wire::ValueOperation& value : step.values) {
      OPENMPS_RETURN_IF_ERROR(check_range(range_of(value)));
    }
  }
  return Status();
}

// ---- The driver ---------------------------------------------------------------------------------

Status GraphBuilder::put(NodePlace place, const DriverGraph& graph, const GraphStep& step,
                         const Work& work) {
  if (std::holds_alternative<BoxWork>(work.what)) {
    for (const WorkRange& range : work.uses.ranges) memory_.open_to_copies(range, graph.device());
  }
  place.context = graph.context(step.home);
  // All nodes in the body of a conditional node are of the context of that node (measured).
  if (step.parent != 0) place.copies = graph.context(graph.parts[step.parent].home);
  place.priority = graph.way().priority;
  return put_node(core_, fences_, graph.device(), place, work);
}

Status GraphBuilder::make(DriverGraph& graph, const Work& work, std::span<const CUgraphNode> before,
                          GraphStep* step) {
  if (step->kind == GraphNodeKind::kConditional) return make_conditional(graph, before, step);
  OPENMPS_RETURN_IF_ERROR(put({.graph = graph.parts[step->parent].handle,
                               .before = before,
                               .first = &step->first,
                               .last = &step->last},
                              graph, *step, work));
  if (step->kind != GraphNodeKind::kHostCall) step->last = step->first;
  return Status();
}

Status GraphBuilder::make_conditional(DriverGraph& graph, std::span<const CUgraphNode> before,
                                      GraphStep* step) {
  const wire::GraphConditional& wanted = step->conditional;
  const auto condition =
      std::find_if(graph.conditions.begin(), graph.conditions.end(),
                   [&](const DriverGraph::Condition& c) { return c.handle == wanted.handle; });
  // Handles of the driver mean nothing to a client that they were not given to.
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
  parameters.conditional.ctx = graph.context(condition->home);
  OPENMPS_RETURN_IF_ERROR(worker::check(
      core_.driver.cuGraphAddNode_v2(&step->first, graph.parts[step->parent].handle, before.data(),
                                     nullptr, before.size(), &parameters),
      "cuGraphAddNode of a conditional node"));
  step->last = step->first;
  condition->used = true;
  for (uint32_t i = 0; i < wanted.bodies; ++i) {
    graph.parts.push_back({parameters.conditional.phGraph_out[i], depth, condition->home});
  }
  return Status();
}

// The new node and its edges.
Status GraphBuilder::connect(DriverGraph& graph, const Work& work, const Edges& edges,
                             std::span<GraphStep> steps, GraphStep* step) {
  std::vector<CUgraphNode> plain;
  for (const wire::GraphEdge& edge : edges) {
    if (is_plain(edge)) plain.push_back(steps[edge.node].last);
  }
  OPENMPS_RETURN_IF_ERROR(make(graph, work, plain, step));
  for (const wire::GraphEdge& edge : edges) {
    if (is_plain(edge)) continue;
    const CUgraphEdgeData data{edge.from_port, edge.to_port, edge.type, {}};
    OPENMPS_RETURN_IF_ERROR(worker::check(
        core_.driver.cuGraphAddDependencies_v2(graph.parts[step->parent].handle,
                                               &steps[edge.node].last, &step->first, &data, 1),
        "cuGraphAddDependencies"));
  }
  const auto ends = std::ranges::find_if(
      edges, [steps](const wire::GraphEdge& edge) { return !steps[edge.node].is_continued; });
  if (ends == edges.end()) {
    ++graph.branches;
  } else {
    steps[ends->node].is_continued = true;
  }
  return Status();
}

Status GraphBuilder::add(DriverGraph& graph, const wire::GraphNode& node, KernelHome home,
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
  step.home = std::move(home);
  Work work;
  Modules::Reach reach = Modules::Reach::kAnyLane;
  if (steps->size() < like.size()) reach = reach_of(like[steps->size()].uses.lane);
  if (graph.keeps()) reach = Modules::Reach::kMainLane;  // the graph serves every description
  OPENMPS_RETURN_IF_ERROR(read(graph, node.kind, tail.body, reach, &step, &work));
  OPENMPS_RETURN_IF_ERROR(core_.use(graph.device()));
  if (steps->size() < graph.steps.size()) {
    GraphStep& has = graph.steps[steps->size()];
    const bool same = has.kind == step.kind && has.parent == step.parent &&
                      same_edges(has.edges, edges) &&
                      memcmp(&has.conditional, &step.conditional, sizeof(step.conditional)) == 0;
    if (!same) return Status(CUDA_ERROR_NOT_SUPPORTED, "a graph with handles got another shape");
    step.first = has.first;
    step.last = has.last;
    if (step.kind != GraphNodeKind::kConditional) {
      OPENMPS_RETURN_IF_ERROR(put({.first = &step.first, .last = &step.last}, graph, step, work));
    }
    has = step;
    has.edges = std::move(edges);
  } else {
    if (graph.broken) return Status(CUDA_ERROR_NOT_SUPPORTED, "the graph could not be made before");
    if (graph.keeps()) OPENMPS_RETURN_IF_ERROR(graph.count(1));
    Status made = connect(graph, work, edges, *steps, &step);
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

Status GraphBuilder::change(CUgraphExec exec, DriverGraph& graph, const CUgraphNode* kept,
                            GraphNodeKind kind, wire::Variable body, GraphStep* step) {
  if (kind != step->kind) return violation("a graph node can't become one of another kind");
  if (kind == GraphNodeKind::kEmpty || kind == GraphNodeKind::kHostCall ||
      kind == GraphNodeKind::kConditional) {
    return violation("a graph node without parameters can't be changed");
  }
  GraphStep changed;
  changed.parent = step->parent;
  changed.home = step->home;
  changed.is_enabled = step->is_enabled;
  Work work;
  OPENMPS_RETURN_IF_ERROR(read(graph, kind, body, reach_of(step->uses.lane), &changed, &work));
  if (changed.uses.lane != step->uses.lane) {
    return Status(CUDA_ERROR_NOT_SUPPORTED, "a graph node would change its lane");
  }
  changed.first = step->first;
  changed.last = step->last;
  OPENMPS_RETURN_IF_ERROR(core_.use(graph.device()));
  OPENMPS_RETURN_IF_ERROR(put({.exec = exec, .first = &step->first}, graph, changed, work));
  if (kept != nullptr) {
    CUgraphNode node = *kept;
    OPENMPS_RETURN_IF_ERROR(put({.first = &node, .last = &node}, graph, changed, work));
  }
  *step = std::move(changed);
  return Status();
}

}  // namespace openmps::worker
