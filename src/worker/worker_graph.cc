// SPDX-License-Identifier: Apache-2.0
// The executable graphs of a session. See worker_graph.h.
#include "worker/worker_graph.h"

#include <algorithm>
#include <string>
#include <utility>

#include "worker/driver_check.h"

namespace openmps::worker {
namespace {

bool has_cold_node(std::span<const GraphStep> steps) {
  return std::any_of(steps.begin(), steps.end(),
                     [](const GraphStep& step) { return step.lane == Lane::kCold; });
}

}  // namespace

Status Graphs::find(wire::Id id, GraphExec** exec) const {
  OPENMPS_RETURN_IF_ERROR(execs_.get(id, exec));
  // NOLINTNEXTLINE(clang-analyzer-*): success comes with an object.
  if ((*exec)->handle != nullptr) return Status();
  return violation("the executable graph " + std::to_string(id) + " was not instantiated");
}

Status Graphs::find_step(wire::Id id, uint32_t node, GraphExec** exec, GraphStep** step) const {
  OPENMPS_RETURN_IF_ERROR(find(id, exec));
  // NOLINTNEXTLINE(clang-analyzer-*): success comes with an object.
  if (node >= (*exec)->graph.steps.size()) {
    return violation("an executable graph has no node " + std::to_string(node));
  }
  *step = &(*exec)->graph.steps[node];
  return Status();
}

void Graphs::drop(DescribedGraph& graph) {
  totals_.nodes -= static_cast<uint32_t>(graph.steps.size());
  totals_.bytes -= graph.bytes;
  graph = DescribedGraph();
}

void Graphs::release(GraphExec& exec) {
  if (exec.described != nullptr) drop(*exec.described);
  if (exec.handle != nullptr && core_.use(exec.graph.graph->device()).ok()) {
    core_.driver.cuGraphExecDestroy(exec.handle);
  }
  drop(exec.graph);
}

// ---- Conditional handles ------------------------------------------------------------------------

Status Graphs::create_condition(const wire::ConditionCreate& command, ReplyWriter& reply) {
  OPENMPS_RETURN_IF_ERROR(core_.check_device(command.device));
  std::shared_ptr<DriverGraph>* kept = kept_.find(command.graph);
  if (kept != nullptr && (*kept)->device() != command.device) {
    return Status(CUDA_ERROR_INVALID_CONTEXT, "a graph has conditional handles of one device");
  }
  std::shared_ptr<DriverGraph> graph = kept == nullptr ? nullptr : *kept;
  if (graph == nullptr) {
    OPENMPS_RETURN_IF_ERROR(kept_.check_free(command.graph));
    graph = std::make_shared<DriverGraph>(core_, command.device, totals_);
    OPENMPS_RETURN_IF_ERROR(graph->create());
  }
  wire::ConditionReply answer{};
  CUgraphConditionalHandle handle = 0;
  OPENMPS_RETURN_IF_ERROR(graph->add_condition(command, &handle));
  answer.handle = handle;
  reply.put(answer);
  if (kept != nullptr) return Status();
  return kept_.insert(command.graph, std::make_unique<std::shared_ptr<DriverGraph>>(graph));
}

Status Graphs::forget(wire::Id graph) {
  if (kept_.take(graph) != nullptr) return Status();
  return violation("there is no graph with conditional handles " + std::to_string(graph));
}

// ---- Descriptions -------------------------------------------------------------------------------

Status Graphs::begin(const wire::GraphBegin& command) {
  OPENMPS_RETURN_IF_ERROR(core_.check_device(command.device));
  if (execs_.find(command.exec) == nullptr) {
    OPENMPS_RETURN_IF_ERROR(execs_.insert(command.exec, std::make_unique<GraphExec>()));
  }
  GraphExec& exec = *execs_.find(command.exec);
  if (exec.described != nullptr) drop(*exec.described);
  exec.described = std::make_unique<DescribedGraph>();
  DescribedGraph& described = *exec.described;
  if (command.graph != 0) {
    std::shared_ptr<DriverGraph>* kept = nullptr;
    OPENMPS_RETURN_IF_ERROR(kept_.get(command.graph, &kept));
    described.graph = *kept;
    if (described.graph->device() != command.device) {
      described.error = Status(CUDA_ERROR_INVALID_CONTEXT, "the graph's handles are elsewhere");
    }
    return Status();
  }
  described.graph = std::make_shared<DriverGraph>(core_, command.device, totals_);
  described.error = described.graph->create();
  return is_sticky(described.error.code()) ? described.error : Status();
}

Status Graphs::node(const wire::GraphNode& command, wire::Variable variable) {
  GraphExec* exec = nullptr;
  OPENMPS_RETURN_IF_ERROR(execs_.get(command.exec, &exec));
  if (exec->described == nullptr) return violation("a graph node outside of a description");
  DescribedGraph& graph = *exec->described;
  if (!graph.error.ok()) return Status();
  const uint64_t bytes = sizeof(GraphStep) + variable.size();
  if (bytes > wire::kMaxGraphBytes - totals_.bytes) {
    graph.error =
        Status(CUDA_ERROR_OUT_OF_MEMORY, "the graphs of the session would exceed " +
                                             std::to_string(wire::kMaxGraphBytes) + " bytes");
    return Status();
  }
  graph.error = totals_.add_nodes(1);
  if (!graph.error.ok()) return Status();
  Status status = builder_.add(*graph.graph, command, variable, exec->graph.steps, &graph.steps);
  if (status.ok()) {
    totals_.bytes += bytes;
    graph.bytes += bytes;
    return Status();
  }
  --totals_.nodes;
  if (is_violation(status) || is_sticky(status.code())) return status;
  graph.error = status;
  graph.failed_node = static_cast<uint32_t>(graph.steps.size());
  return Status();
}

// CUDA does not let a copy's memory become an array, or the other way; drivers may not look.
Status Graphs::check_copies(std::span<const GraphStep> old, std::span<const GraphStep> fresh,
                            wire::GraphUpdateReply* answer) {
  const auto is_copy = [](wire::GraphNodeKind kind) {
    return kind == wire::GraphNodeKind::kCopy || kind == wire::GraphNodeKind::kArrayCopy;
  };
  for (size_t i = 0; i < std::min(old.size(), fresh.size()); ++i) {
    if (old[i].kind == fresh[i].kind || !is_copy(old[i].kind) || !is_copy(fresh[i].kind)) continue;
    *answer = {CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED, static_cast<uint32_t>(i)};
    return Status(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, "a copy with another kind of memory");
  }
  return Status();
}

// The context of a node can't change.
Status Graphs::check_lanes(std::span<const GraphStep> old, std::span<const GraphStep> fresh,
                           wire::GraphUpdateReply* answer) {
  for (size_t i = 0; i < std::min(old.size(), fresh.size()); ++i) {
    if (old[i].lane == fresh[i].lane) continue;
    *answer = {CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE, static_cast<uint32_t>(i)};
    return Status(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, "a node would change its lane");
  }
  return Status();
}

// A graph that keeps its nodes was described with all of them.
Status Graphs::check_complete(const DescribedGraph& described) {
  if (!described.graph->keeps() || described.steps.size() == described.graph->steps.size()) {
    return Status();
  }
  return Status(CUDA_ERROR_NOT_SUPPORTED, "a graph with conditional handles lost nodes");
}

Status Graphs::instantiate(const wire::GraphInstantiate& command, ReplyWriter& reply) {
  GraphExec* exec = nullptr;
  OPENMPS_RETURN_IF_ERROR(execs_.get(command.exec, &exec));
  if (exec->handle != nullptr || exec->described == nullptr) {
    return violation("there is nothing to instantiate");
  }
  DescribedGraph& graph = *exec->described;
  Status status = graph.error;
  reply.put(wire::GraphInstantiateReply{graph.failed_node, 0});
  // A launch from the device would bypass the session's stream order; an upload is a command of
  // its own here, and what is allocated is the client's affair.
  constexpr uint64_t kKept = CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
  if (status.ok() && (command.flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0) {
    status = Status(CUDA_ERROR_NOT_SUPPORTED, "graphs launched from the device");
  }
  if (status.ok()) status = check_complete(graph);
  if (status.ok()) status = core_.use(graph.graph->device());
  if (status.ok()) {
    status = check(core_.driver.cuGraphInstantiateWithFlags(&exec->handle, graph.graph->handle(),
                                                            command.flags & kKept),
                   "cuGraphInstantiate");
  }
  if (!status.ok()) {
    release(*exec);
    execs_.take(command.exec);
    return status;
  }
  exec->graph = std::move(graph);
  exec->described.reset();
  exec->is_cold = has_cold_node(exec->graph.steps);
  for (uint32_t i = 0; i < exec->graph.steps.size(); ++i) {
    const wire::GraphNodeKind kind = exec->graph.steps[i].kind;
    if (kind == wire::GraphNodeKind::kHostCall || kind == wire::GraphNodeKind::kValues) {
      exec->waits.push_back(i);
    }
  }
  return Status();
}

Status Graphs::update(const wire::GraphUpdate& command, ReplyWriter& reply) {
  GraphExec* exec = nullptr;
  OPENMPS_RETURN_IF_ERROR(find(command.exec, &exec));
  if (exec->described == nullptr) return violation("there is nothing to update from");
  const std::unique_ptr<DescribedGraph> graph = std::move(exec->described);
  Status status = graph->error;
  if (status.ok()) status = check_complete(*graph);
  wire::GraphUpdateReply answer{CU_GRAPH_EXEC_UPDATE_ERROR, graph->failed_node};
  if (status.ok()) status = check_copies(exec->graph.steps, graph->steps, &answer);
  if (status.ok()) status = check_lanes(exec->graph.steps, graph->steps, &answer);
  if (status.ok()) {
    CUgraphExecUpdateResultInfo info{};
    status = core_.use(graph->graph->device());
    if (status.ok()) {
      status = check(core_.driver.cuGraphExecUpdate_v2(exec->handle, graph->graph->handle(), &info),
                     "cuGraphExecUpdate");
      answer.result = info.result;
    }
    const auto failed =
        std::find_if(graph->steps.begin(), graph->steps.end(), [&info](const GraphStep& step) {
          return info.errorNode != nullptr &&
                 (step.first == info.errorNode || step.last == info.errorNode);
        });
    if (failed != graph->steps.end()) {
      answer.failed_node = static_cast<uint32_t>(failed - graph->steps.begin());
    }
  }
  reply.put(answer);
  if (status.ok()) {
    // The driver has paired the nodes; descriptions of the same shape have the same order.
    const size_t steps = std::min(graph->steps.size(), exec->graph.steps.size());
    for (size_t i = 0; i < steps; ++i) {
      GraphStep& step = exec->graph.steps[i];
      const CUgraphNode first = step.first;
      const CUgraphNode last = step.last;
      step = graph->steps[i];
      step.first = first;
      step.last = last;
    }
    exec->checked = ~0ull;
    exec->is_cold = has_cold_node(exec->graph.steps);
  }
  drop(*graph);
  return status;
}

// ---- Executable graphs --------------------------------------------------------------------------

Status Graphs::set_node(const wire::GraphSetNode& command, wire::Variable body) {
  GraphExec* exec = nullptr;
  GraphStep* step = nullptr;
  OPENMPS_RETURN_IF_ERROR(find_step(command.exec, command.node, &exec, &step));
  // NOLINTNEXTLINE(clang-analyzer-*): success comes with an object.
  if (command.kind == static_cast<uint32_t>(wire::GraphNodeKind::kValues)) exec->checked = ~0ull;
  return builder_.change(exec->handle, exec->graph.graph->device(),
                         static_cast<wire::GraphNodeKind>(command.kind), body, step);
}

Status Graphs::enable_node(const wire::GraphEnableNode& command) {
  GraphExec* exec = nullptr;
  GraphStep* step = nullptr;
  OPENMPS_RETURN_IF_ERROR(find_step(command.exec, command.node, &exec, &step));
  OPENMPS_RETURN_IF_ERROR(core_.use(exec->graph.graph->device()));
  // NOLINTNEXTLINE(clang-analyzer-*): success comes with a step.
  const CUgraphNode node = step->first;
  return check(core_.driver.cuGraphNodeSetEnabled(exec->handle, node, command.enabled != 0 ? 1 : 0),
               "cuGraphNodeSetEnabled");
}

// Memory may have been freed and modules unloaded since the nodes were made: running them would
// fault, for everybody.
Status Graphs::check_uses(GraphExec& exec) {
  const uint64_t now = memory_.removals();
  if (exec.checked == now) return Status();
  OPENMPS_RETURN_IF_ERROR(builder_.check(exec.graph.steps, GraphBuilder::Moment::kLaunch));
  exec.checked = now;
  return Status();
}

Status Graphs::launch(const wire::GraphLaunch& command) {
  Stream* stream = nullptr;
  GraphExec* exec = nullptr;
  OPENMPS_RETURN_IF_ERROR(streams_.get(command.stream, &stream));
  OPENMPS_RETURN_IF_ERROR(find(command.exec, &exec));
  OPENMPS_RETURN_IF_ERROR(check_uses(*exec));
  if (exec->is_cold && core_.image_objects != 0) {
    return Status(CUDA_ERROR_NOT_SUPPORTED,
                  "a graph with nodes of the cold lane beside a texture or surface object");
  }
  OPENMPS_RETURN_IF_ERROR(streams_.enter(*stream, Streams::Entry::kWork));
  if (exec->is_cold) streams_.note_cold_graph(*stream);
  if (!exec->waits.empty()) stream->listed->waits.store(true, std::memory_order_relaxed);
  std::vector<wire::StreamValue> waits;
  for (const uint32_t number : exec->waits) {
    for (const wire::ValueOperation& operation : exec->graph.steps[number].values) {
      if (operation.kind == static_cast<uint32_t>(wire::ValueKind::kWait)) {
        waits.push_back(operation.value);
      }
    }
  }
  if (waits.empty()) {
    return check(core_.driver.cuGraphLaunch(exec->handle, stream->handle), "cuGraphLaunch");
  }
  OPENMPS_RETURN_IF_ERROR(streams_.before_open_wait(*stream));
  OPENMPS_RETURN_IF_ERROR(waits_.prepare(*stream, waits.size()));
  OPENMPS_RETURN_IF_ERROR(
      check(core_.driver.cuGraphLaunch(exec->handle, stream->handle), "cuGraphLaunch"));
  return waits_.add(*stream, waits);
}

Status Graphs::upload(const wire::GraphLaunch& command) {
  Stream* stream = nullptr;
  GraphExec* exec = nullptr;
  OPENMPS_RETURN_IF_ERROR(streams_.get(command.stream, &stream));
  OPENMPS_RETURN_IF_ERROR(find(command.exec, &exec));
  OPENMPS_RETURN_IF_ERROR(streams_.enter(*stream, Streams::Entry::kWork));
  return check(core_.driver.cuGraphUpload(exec->handle, stream->handle), "cuGraphUpload");
}

Status Graphs::destroy(wire::Id id) {
  const std::unique_ptr<GraphExec> exec = execs_.take(id);
  if (exec == nullptr) return violation("there is no executable graph " + std::to_string(id));
  release(*exec);
  return Status();
}

void Graphs::lose_functions(std::span<const wire::Id> functions) {
  execs_.for_each([&](GraphExec& exec) {
    for (GraphStep& step : exec.graph.steps) {
      if (step.function == 0 ||
          std::find(functions.begin(), functions.end(), step.function) == functions.end()) {
        continue;
      }
      step.lost = true;
      exec.checked = ~0ull;
    }
  });
}

void Graphs::release_all() {
  while (const std::unique_ptr<GraphExec> exec = execs_.take_any()) release(*exec);
  kept_.clear();
}

}  // namespace openmps::worker
