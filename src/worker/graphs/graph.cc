// SPDX-License-Identifier: Apache-2.0
// The executable graphs of a session. See graph.h.
#include "worker/graphs/graph.h"

#include <algorithm>
#include <string>
#include <utility>

#include "worker/device/driver_check.h"
#include "worker/device/log.h"

namespace openmps::worker {
namespace {

// Between two looks at where the code of an executable graph is. A look asks for every kernel.
constexpr uint64_t kCodeLookNs = 20'000'000;
constexpr uint64_t kStaysCold = ~0ull;  // when to look again: never

bool can_leave_cold(const DescribedGraph& graph) {
  const uint32_t device = graph.graph->device();
  return std::ranges::any_of(
      graph.steps, [device](const GraphStep& step) { return step.in_main(device) != nullptr; });
}

}  // namespace

DescribedGraph::~DescribedGraph() {
  totals.nodes -= static_cast<uint32_t>(steps.size());
  totals.bytes -= bytes;
}

GraphExec::~GraphExec() {
  if (ended != nullptr) core.driver.cuEventDestroy_v2(ended);
  if (handle == nullptr) return;
  core.release_graph(graph->graph->device(), handle, graph->steps.size(), graph->graph->kept_way(),
                     slots);
}

CUgraphExec GraphExec::current() {
  const bool may_move =
      ended != nullptr || seen_changes != core.parts.changes() || (is_cold && may_leave_cold());
  if (may_move) [[unlikely]] {
    // The graph is about to be updated from a description for the SMs that it has now.
    if (described != nullptr) return handle;
    marks_end = has_run && ended == nullptr && !core.releases.has_ended_all();
    if (marks_end) return handle;  // the next launch follows the changes
    follow_changes();
    const bool is_beyond_limit = graph->graph->is_beyond_limit() ||
                                 (is_cold && core.parts.is_limited(graph->graph->device()));
    counts[static_cast<size_t>(wire::UsageCount::kBeyondLimit)] = is_beyond_limit ? 1 : 0;
  }
  return handle;
}

Status GraphExec::launch(CUstream stream) {
  const DriverTable& driver = core.driver;
  const CUgraphExec exec = current();
  if (ended != nullptr) {
    OPENMPS_RETURN_IF_ERROR(
        check(driver.cuStreamWaitEvent(stream, ended, 0), "cuStreamWaitEvent on a graph"));
    driver.cuEventDestroy_v2(
        std::exchange(ended, nullptr));  // the streams that wait for the event still do
  }
  OPENMPS_RETURN_IF_ERROR(check(driver.cuGraphLaunch(exec, stream), "cuGraphLaunch"));
  has_run = true;
  if (!std::exchange(marks_end, false)) return Status();
  CUevent end = nullptr;
  OPENMPS_RETURN_IF_ERROR(
      check(driver.cuEventCreate(&end, CU_EVENT_DISABLE_TIMING), "cuEventCreate"));
  const Status recorded = check(driver.cuEventRecord(end, stream), "cuEventRecord on a graph");
  if (recorded.ok()) {
    ended = end;
  } else {
    driver.cuEventDestroy_v2(end);
  }
  return recorded;
}

bool GraphExec::may_leave_cold() {
  const uint64_t now = now_ns();
  if (now < next_look_ns) return false;
  next_look_ns = now + kCodeLookNs;
  return can_leave_cold(*graph);
}

void GraphExec::tell_that_it_stays() {
  if (has_told_that_it_stays || !graph->graph->is_beyond_limit()) return;
  has_told_that_it_stays = true;
  log("An executable graph with conditional nodes stays on the SMs that it was made for");
}

void GraphExec::follow_changes() {
  seen_changes = core.parts.changes();
  DescribedGraph* const from = source();
  const uint32_t device = graph->graph->device();
  if (from == nullptr) return tell_that_it_stays();
  if (from->steps.size() != graph->steps.size()) return;
  const DriverGraph::Way before = from->graph->way();
  const std::shared_ptr<const void> kept = graph->graph->kept_way();
  DriverGraph::Way now;
  const bool limits_only = std::ranges::any_of(from->steps, &GraphStep::is_cooperative);
  if (!from->graph->look_again(limits_only, &now).ok()) return;
  if (now != before && !from->graph->have_room(from->steps, now)) {
    log("An executable graph stays on the SMs that it was made for: a cooperative kernel of it "
        "does not fit on those that its program has now");
    now = before;
  }
  const bool leaves_cold = is_cold && next_look_ns != kStaysCold && can_leave_cold(*from);
  if (now == before && !leaves_cold) return;
  std::vector<size_t> moved;
  CUgraphExec made = nullptr;
  StreamSlot taken = core.take_slots({device}, from->graph->branches);
  Status status = core.use(device);
  if (status.ok()) status = from->graph->move(from->steps, now, &moved);
  if (status.ok()) {
    status = check(core.driver.cuGraphInstantiateWithFlags(&made, from->graph->handle(), flags),
                   "cuGraphInstantiate");
  }
  for (size_t i = 0; i < from->steps.size() && status.ok(); ++i) {
    if (graph->steps[i].is_enabled) continue;
    status = check(core.driver.cuGraphNodeSetEnabled(made, from->steps[i].first, 0),
                   "cuGraphNodeSetEnabled");
  }
  if (!status.ok()) {
    log("An executable graph stays on the SMs that it was made for: " + status.message());
    if (made != nullptr) {
      core.release_graph(device, made, from->steps.size(), from->graph->kept_way(), taken);
    }
    if (leaves_cold) next_look_ns = kStaysCold;
    static_cast<void>(from->graph->move(from->steps, before, &moved).ok());
    return;
  }
  for (const size_t i : moved) from->steps[i].uses.lane = Lane::kMain;
  std::shared_ptr<DescribedGraph> old;
  if (updated != nullptr) {
    for (size_t i = 0; i < updated->steps.size(); ++i) {
      updated->steps[i].is_enabled = graph->steps[i].is_enabled;
    }
    old = std::move(graph);
    graph = std::move(updated);
  }
  is_cold = std::ranges::any_of(
      graph->steps, [](const GraphStep& step) { return step.uses.lane == Lane::kCold; });
  const CUgraphExec left = std::exchange(handle, made);
  const uint64_t nodes = graph->steps.size();
  std::swap(slots, taken);
  // Launches of the old handle may still run.
  core.releases.add_behind_work({wire::ReturnKind::kCode},
                                [this_core = &core, device, left, nodes, old, kept, taken] {
                                  this_core->release_graph(device, left, nodes, kept, taken);
                                });
}

// Nodes in bodies of conditional nodes are not counted: only the device knows how often they run.
void GraphExec::note_steps() {
  using wire::UsageCount;
  const auto add = [this](UsageCount what, uint64_t n) { counts[static_cast<size_t>(what)] += n; };
  const uint64_t beyond = counts[static_cast<size_t>(UsageCount::kBeyondLimit)];
  counts = {};
  add(UsageCount::kBeyondLimit, beyond);
  add(UsageCount::kGraphs, 1);
  checked = ~0ull;
  is_cold = may_wait = names_events = names_constants = false;
  waits.clear();
  cost = {.kernels = 0};
  uint64_t all_sms = 0;
  for (const GraphStep& step : graph->steps) {
    is_cold |= step.uses.lane == Lane::kCold;
    may_wait |= step.kind == wire::GraphNodeKind::kHostCall || !step.values.empty();
    names_constants |= !step.constants.empty();
    names_events |= step.kind == wire::GraphNodeKind::kEventRecord ||
                    step.kind == wire::GraphNodeKind::kEventWait;
    for (const wire::ValueOperation& operation : step.values) {
      if (operation.kind == wire::ValueKind::kWait) waits.push_back(operation.value);
    }
    if (step.parent != 0 || !step.is_enabled) continue;
    if (step.kind == wire::GraphNodeKind::kKernel) {
      ++cost.kernels;
      all_sms += step.uses.cost.sms;
      cost.sms_needed = std::max(cost.sms_needed, step.uses.cost.sms_needed);
      cost.needs_all_sms |= step.uses.cost.needs_all_sms;
      add(UsageCount::kBlocks, step.blocks);
      add(UsageCount::kThreads, step.blocks * step.threads_each);
    }
    if (step.uses.moves == UsageCount::kNumber) continue;
    add(step.kind == wire::GraphNodeKind::kFill ? UsageCount::kFills : UsageCount::kCopies, 1);
    add(step.uses.moves, step.uses.moved_bytes);
  }
  add(UsageCount::kGraphKernels, cost.kernels);
  if (cost.kernels != 0) cost.sms = static_cast<uint32_t>(all_sms / cost.kernels);
}

Status Graphs::check_made(const GraphExec& exec) {
  if (exec.handle != nullptr) return Status();
  return violation("an executable graph that was not instantiated");
}

Status Graphs::find_step(GraphExec& exec, uint32_t node, GraphStep** step) {
  OPENMPS_RETURN_IF_ERROR(check_made(exec));
  if (node >= exec.graph->steps.size()) {
    return violation("an executable graph has no node " + std::to_string(node));
  }
  *step = &exec.graph->steps[node];
  return Status();
}

// ---- Conditional handles ------------------------------------------------------------------------

Status Graphs::handle(const wire::ConditionCreate& command, ClientGreen* green,
                      ReplyTo<wire::ConditionCreate> reply) {
  std::shared_ptr<DriverGraph>* kept = kept_.find(command.graph);
  if (kept != nullptr && (*kept)->device() != command.device) {
    return Status(CUDA_ERROR_INVALID_CONTEXT, "a graph has conditional handles of one device");
  }
  if (green != nullptr && green->device != command.device) {
    return violation("a conditional handle in a green context of device " +
                     std::to_string(green->device));
  }
  std::shared_ptr<DriverGraph> graph = kept == nullptr ? nullptr : *kept;
  if (graph == nullptr) {
    graph = std::make_shared<DriverGraph>(core_, command.device, totals_);
    OPENMPS_RETURN_IF_ERROR(graph->create());
  }
  KernelHome home(command.sms, green);
  if (!graph->reaches(home)) submitter_.prepare_to_wait();
  CUgraphConditionalHandle handle = 0;
  OPENMPS_RETURN_IF_ERROR(graph->add_condition(command, std::move(home), &handle));
  reply.put({handle});
  if (kept != nullptr) return Status();
  return kept_.insert(command.graph, std::make_unique<std::shared_ptr<DriverGraph>>(graph));
}

Status Graphs::handle(const wire::GraphForget& command) { return kept_.end(command.graph); }

// ---- Descriptions -------------------------------------------------------------------------------

Status Graphs::handle(const wire::GraphBegin& command, const std::shared_ptr<DriverGraph>* kept) {
  if (execs_.find(command.exec) == nullptr) {
    OPENMPS_RETURN_IF_ERROR(execs_.insert(command.exec, std::make_shared<GraphExec>(core_)));
  }
  GraphExec& exec = *execs_.find(command.exec);
  exec.described.reset();
  std::shared_ptr<DriverGraph> graph = kept != nullptr ? *kept : nullptr;
  if (graph == nullptr) {
    const DriverGraph* like = exec.graph != nullptr ? exec.graph->graph.get() : nullptr;
    graph = like != nullptr && like->device() == command.device
                ? std::make_shared<DriverGraph>(core_, *like, totals_)
                : std::make_shared<DriverGraph>(core_, command.device, totals_);
  }
  exec.described = std::make_unique<DescribedGraph>(std::move(graph), totals_);
  DescribedGraph& described = *exec.described;
  if (kept == nullptr) {
    described.error = described.graph->create();
    return is_sticky(described.error.code()) ? described.error : Status();
  }
  if (described.graph->device() != command.device) {
    described.error = Status(CUDA_ERROR_INVALID_CONTEXT, "the graph's handles are elsewhere");
  }
  return Status();
}

Status Graphs::handle(const wire::GraphNode& command, GraphExec& exec, ClientGreen* green,
                      const wire::GraphNode::Tail& tail) {
  if (exec.described == nullptr) return violation("a graph node outside of a description");
  DescribedGraph& graph = *exec.described;
  if (!graph.error.ok()) return Status();
  const uint64_t bytes = sizeof(GraphStep) + wire::tail_bytes(command);
  if (bytes > wire::kMaxGraphBytes - totals_.bytes) {
    graph.error =
        Status(CUDA_ERROR_OUT_OF_MEMORY, "the graphs of the session would exceed " +
                                             std::to_string(wire::kMaxGraphBytes) + " bytes");
    return Status();
  }
  graph.error = totals_.add_nodes(1);
  if (!graph.error.ok()) return Status();
  const std::span<const GraphStep> like =
      exec.graph == nullptr ? std::span<const GraphStep>() : exec.graph->steps;
  Status status =
      builder_.add(*graph.graph, command, KernelHome(command.sms, green), tail, like, &graph.steps);
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

// The context of a node can't change. CUDA does not let a copy's memory become an array, or the
// other way; drivers may not look.
Status Graphs::check_change(std::span<const GraphStep> old, std::span<const GraphStep> fresh,
                            wire::GraphUpdate::Reply* answer) {
  const auto is_copy = [](wire::GraphNodeKind kind) {
    return kind == wire::GraphNodeKind::kCopy || kind == wire::GraphNodeKind::kArrayCopy;
  };
  for (size_t i = 0; i < std::min(old.size(), fresh.size()); ++i) {
    const bool is_other_copy =
        old[i].kind != fresh[i].kind && is_copy(old[i].kind) && is_copy(fresh[i].kind);
    if (!is_other_copy && old[i].uses.lane == fresh[i].uses.lane) continue;
    *answer = {is_other_copy ? CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED
                             : CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE,
               static_cast<uint32_t>(i)};
    return Status(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, is_other_copy
                                                            ? "a copy with another kind of memory"
                                                            : "a node would change its lane");
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

Status Graphs::handle(const wire::GraphInstantiate& command, GraphExec& exec,
                      ReplyTo<wire::GraphInstantiate> reply) {
  if (exec.handle != nullptr || exec.described == nullptr) {
    return violation("there is nothing to instantiate");
  }
  DescribedGraph& graph = *exec.described;
  Status status = graph.error;
  reply.put({graph.failed_node});
  // A launch from the device would bypass the session's stream order; an upload is a command of
  // its own here, and what is allocated is the client's affair.
  constexpr uint64_t kKept = CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
  if (status.ok() && (command.flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0) {
    status = Status(CUDA_ERROR_NOT_SUPPORTED, "graphs launched from the device");
  }
  if (status.ok()) status = check_complete(graph);
  if (status.ok()) {
    const Placement place{graph.graph->device()};
    const auto leaves = SessionCore::leaves(execs_.live());
    const uint32_t branches = graph.graph->branches;
    if (!core_.take_free_slots(place, branches, leaves, &exec.slots)) {
      // Work of the session that waits on the GPU may be waiting for later commands.
      if (submitter_.has_waits()) {
        exec.slots = core_.take_slots(place, branches);
      } else {
        status = core_.await_slots(place, branches, leaves, &exec.slots);
      }
    }
    if (status.ok()) status = core_.use(place);
  }
  if (status.ok()) {
    exec.flags = command.flags & kKept;
    status = check(
        core_.driver.cuGraphInstantiateWithFlags(&exec.handle, graph.graph->handle(), exec.flags),
        "cuGraphInstantiate");
  }
  if (!status.ok()) {
    execs_.take(command.exec);
    return status;
  }
  exec.graph = std::move(exec.described);
  exec.note_steps();
  return Status();
}

Status Graphs::handle(const wire::GraphUpdate&, GraphExec& exec, ReplyTo<wire::GraphUpdate> reply) {
  OPENMPS_RETURN_IF_ERROR(check_made(exec));
  if (exec.described == nullptr) return violation("there is nothing to update from");
  std::unique_ptr<DescribedGraph> graph = std::move(exec.described);
  Status status = graph->error;
  if (status.ok()) status = check_complete(*graph);
  wire::GraphUpdate::Reply answer{CU_GRAPH_EXEC_UPDATE_ERROR, graph->failed_node};
  if (status.ok()) status = check_change(exec.graph->steps, graph->steps, &answer);
  if (status.ok()) {
    CUgraphExecUpdateResultInfo info{};
    status = core_.use(graph->graph->device());
    if (status.ok()) {
      status = check(core_.driver.cuGraphExecUpdate_v2(exec.handle, graph->graph->handle(), &info),
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
    const size_t steps = std::min(graph->steps.size(), exec.graph->steps.size());
    for (size_t i = 0; i < steps; ++i) {
      GraphStep& step = exec.graph->steps[i];
      GraphStep updated = graph->steps[i];
      updated.name_as(step);
      updated.is_enabled = step.is_enabled;
      step = std::move(updated);
    }
    exec.note_steps();
    if (exec.source() != nullptr) exec.updated = std::move(graph);
  }
  return status;
}

// ---- Executable graphs --------------------------------------------------------------------------

Status Graphs::handle(const wire::GraphSetNode& command, GraphExec& exec,
                      const wire::GraphSetNode::Tail& tail) {
  GraphStep* step = nullptr;
  OPENMPS_RETURN_IF_ERROR(find_step(exec, command.node, &step));
  DescribedGraph* const source = exec.source();
  const bool is_kept = source != nullptr && command.node < source->steps.size();
  Status status = builder_.change(exec.handle, *exec.graph->graph,
                                  is_kept ? &source->steps[command.node].first : nullptr,
                                  command.kind, tail.body, step);
  if (status.ok() && is_kept && source != exec.graph.get()) {
    GraphStep changed = *step;
    changed.name_as(source->steps[command.node]);
    source->steps[command.node] = std::move(changed);
  }
  if (status.ok()) exec.note_steps();
  return status;
}

Status Graphs::handle(const wire::GraphEnableNode& command, GraphExec& exec) {
  GraphStep* step = nullptr;
  OPENMPS_RETURN_IF_ERROR(find_step(exec, command.node, &step));
  OPENMPS_RETURN_IF_ERROR(core_.use(exec.graph->graph->device()));
  // NOLINTNEXTLINE(clang-analyzer-*): success comes with a step.
  const CUgraphNode node = step->first;
  OPENMPS_RETURN_IF_ERROR(
      check(core_.driver.cuGraphNodeSetEnabled(exec.handle, node, command.enabled != 0 ? 1 : 0),
            "cuGraphNodeSetEnabled"));
  step->is_enabled = command.enabled != 0;
  exec.note_steps();
  return Status();
}

// No limit on SMs holds in the cold context: nodes there move to the main one first, as single
// launches do.
Status Graphs::leave_cold_lane(GraphExec& exec) {
  const uint32_t device = exec.graph->graph->device();
  if (!exec.is_cold || exec.next_look_ns == kStaysCold || !core_.parts.is_limited(device)) {
    return Status();
  }
  submitter_.prepare_to_wait();
  for (const GraphStep& step : exec.graph->steps) {
    const std::shared_ptr<Function> function = step.code.lock();
    if (step.uses.lane != Lane::kCold || function == nullptr) continue;
    Located located;
    OPENMPS_RETURN_IF_ERROR(
        modules_.locate(*function, {device}, Modules::Reach::kMainFirst, &located));
  }
  exec.next_look_ns = 0;
  return Status();
}

Status Graphs::make_launch(GraphExec& exec, Work* work) {
  OPENMPS_RETURN_IF_ERROR(check_made(exec));
  // Memory may have been freed and modules unloaded since the nodes were made: to run them would be
  // a fault, which ends all sessions.
  if (exec.checked != memory_.removals()) {
    OPENMPS_RETURN_IF_ERROR(builder_.check(exec.graph->steps, GraphBuilder::Moment::kLaunch));
    exec.checked = memory_.removals();
  }
  OPENMPS_RETURN_IF_ERROR(leave_cold_lane(exec));
  if (exec.is_cold && core_.image_objects != 0) {
    return Status(CUDA_ERROR_NOT_SUPPORTED,
                  "a graph with nodes of the cold lane beside a texture or surface object");
  }
  work->what = GraphWork{&exec,         &exec.counts,      exec.is_cold,
                         exec.may_wait, exec.names_events, exec.names_constants,
                         exec.waits};
  work->uses.objects[0] = exec.shared_from_this();
  exec.is_launched = true;
  Cost& cost = work->uses.cost;
  if (!exec.may_wait) cost = submitter_.learnt_cost(&exec.duration);
  cost.sms = exec.cost.sms;
  cost.sms_needed = exec.cost.sms_needed;
  cost.needs_all_sms = exec.cost.needs_all_sms;
  cost.kernels = exec.cost.kernels;
  return Status();
}

Status Graphs::handle(const wire::GraphLaunch&, GraphExec& exec, Stream& stream) {
  Work work;
  OPENMPS_RETURN_IF_ERROR(make_launch(exec, &work));
  return submitter_.submit(work, stream);
}

Status Graphs::handle(const wire::GraphUpload&, GraphExec& exec, Stream& stream) {
  OPENMPS_RETURN_IF_ERROR(check_made(exec));
  Work work{{}, UploadWork{&exec}};
  work.uses.objects[0] = exec.shared_from_this();
  return submitter_.submit(work, stream);
}

// Launches of the graph may still run, and no executor waits for them (decision 13).
Status Graphs::handle(const wire::GraphExecDestroy& command) {
  std::shared_ptr<GraphExec> exec = execs_.take(command.exec);
  if (exec->is_launched) {
    core_.releases.add_behind_work({wire::ReturnKind::kCode},
                                   [exec = std::move(exec)]() mutable { exec.reset(); });
  }
  return Status();
}

Status Graphs::handle(const wire::ModuleUnload& command) {
  const std::vector<wire::Id>& lost = modules_.modules().find(command.module)->functions;
  execs_.for_each([&](GraphExec& exec) {
    if (exec.graph == nullptr) return;
    for (GraphStep& step : exec.graph->steps) {
      if (step.function == 0 || std::ranges::find(lost, step.function) == lost.end()) continue;
      step.lost = true;
      exec.checked = ~0ull;
    }
  });
  modules_.unload(command.module);
  return Status();
}

void Graphs::release_all() {
  execs_.clear();
  kept_.clear();
}

}  // namespace openmps::worker
