// SPDX-License-Identifier: Apache-2.0
// Graphs and their executable form. See graph.h.
#include "softgpu/device/graph.h"

#include <algorithm>
#include <unordered_map>

#include "softgpu/device/capture.h"
#include "softgpu/device/conditional.h"
#include "softgpu/device/context.h"
#include "softgpu/device/copy_plan.h"
#include "softgpu/device/driver.h"
#include "softgpu/device/event.h"
#include "softgpu/device/graph_run.h"
#include "softgpu/device/module.h"
#include "softgpu/device/stream.h"

namespace openmps::softgpu {
namespace {

std::vector<GraphStep> steps_of(const Graph& graph);

// A conditional node's work with its bodies as they are now.
Work work_of(const GraphNode& node) {
  Work work = node.work;
  if (auto* conditional = std::get_if<ConditionalWork>(&work))
    for (const auto& body : node.bodies)
      conditional->bodies.push_back(
          std::make_shared<const std::vector<GraphStep>>(steps_of(*body)));
  return work;
}

// Append the steps of a graph. `before`: steps that its roots wait for. Returns its leaves.
cuda::Steps flatten(const Graph& graph, const cuda::Steps& before,
                    std::vector<GraphExec::Step>* steps) {
  const auto to_edge = [](uint32_t step, const CUgraphEdgeData&) { return step; };
  const auto visit = [steps](const GraphNode& node,
                             cuda::Steps after) -> std::optional<cuda::Steps> {
    if (node.child != nullptr) {
      cuda::Steps end = flatten(*node.child, after, steps);
      return end.empty() ? after : end;
    }
    const auto step = static_cast<uint32_t>(steps->size());
    steps->push_back({node.handle, node.type, work_of(node), node.enabled, std::move(after)});
    return cuda::Steps{step};
  };
  return *flatten_nodes(graph.nodes, before, to_edge, visit);
}

std::vector<GraphStep> steps_of(const Graph& graph) {
  std::vector<GraphStep> steps;
  flatten(graph, {}, &steps);
  return steps;
}

void hold_user_objects(const Graph& graph, std::vector<std::shared_ptr<UserObjectHold>>* held) {
  held->insert(held->end(), graph.user_objects.begin(), graph.user_objects.end());
  for (const auto& node : graph.nodes)
    if (node->child != nullptr) hold_user_objects(*node->child, held);
}

void keep_defaults(const std::vector<std::shared_ptr<Condition>>& conditions, GraphExec* exec) {
  exec->conditions.clear();
  for (const auto& condition : conditions)
    if (condition->assigns) exec->conditions.push_back(condition);
}

bool same_function(const Work& one, const Work& other) {
  const auto* a = std::get_if<LaunchWork>(&one);
  const auto* b = std::get_if<LaunchWork>(&other);
  return a == nullptr || b == nullptr ||
         a->function->module->execution == b->function->module->execution;
}

// What keeps `steps` from taking the place of `old`; CU_GRAPH_EXEC_UPDATE_SUCCESS: nothing.
CUgraphExecUpdateResult compare(const std::vector<GraphStep>& steps,
                                const std::vector<GraphStep>& old, CUgraphNode* differing) {
  *differing = nullptr;
  if (steps.size() != old.size()) return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
  for (size_t i = 0; i < steps.size(); ++i) {
    *differing = steps[i].node;
    if (steps[i].after != old[i].after) return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    if (steps[i].type != old[i].type) return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
    if (!same_function(steps[i].work, old[i].work))
      return CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE;
    const auto* now = std::get_if<ConditionalWork>(&steps[i].work);
    if (now == nullptr) continue;
    const auto& before = std::get<ConditionalWork>(old[i].work);
    if (now->type != before.type || now->bodies.size() != before.bodies.size())
      return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    for (size_t body = 0; body < now->bodies.size(); ++body) {
      const CUgraphExecUpdateResult result =
          compare(*now->bodies[body], *before.bodies[body], differing);
      if (result != CU_GRAPH_EXEC_UPDATE_SUCCESS) return result;
    }
  }
  *differing = nullptr;
  return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

// The nodes keep the names that they were instantiated with.
void take_works(std::vector<GraphStep>&& fresh, std::vector<GraphStep>* steps) {
  for (size_t i = 0; i < steps->size(); ++i) {
    if (auto* conditional = std::get_if<ConditionalWork>(&fresh[i].work)) {
      const auto& old = std::get<ConditionalWork>((*steps)[i].work);
      for (size_t body = 0; body < old.bodies.size(); ++body) {
        auto replaced = std::make_shared<std::vector<GraphStep>>(*old.bodies[body]);
        take_works(std::vector<GraphStep>(*conditional->bodies[body]), replaced.get());
        conditional->bodies[body] = std::move(replaced);
      }
    }
    (*steps)[i].work = std::move(fresh[i].work);
  }
}

}  // namespace

std::mutex& graph_mutex() {
  static std::mutex mutex;
  return mutex;
}

std::shared_ptr<GraphNode> add_node_locked(Driver& driver, Graph& graph, CUgraphNodeType type,
                                           Work work, std::span<const GraphEdge> dependencies) {
  auto node = std::make_shared<GraphNode>();
  node->graph = &graph;
  node->type = type;
  node->work = std::move(work);
  attach_new(*node, prepare_links(dependencies));
  node->handle = driver.graph_nodes.add(node);
  graph.nodes.push_back(node);
  return node;
}

Status add_edge_locked(GraphNode& from, GraphNode& to, const CUgraphEdgeData& data) {
  if (from.graph != to.graph)
    return Status(CUDA_ERROR_INVALID_VALUE, "the nodes are of different graphs");
  switch (link(from, to, data)) {
    case cuda::LinkResult::kExists:
      return Status(CUDA_ERROR_INVALID_VALUE, "the dependency exists already");
    case cuda::LinkResult::kClosesCycle:
      return Status(CUDA_ERROR_INVALID_VALUE, "the dependency closes a cycle");
    case cuda::LinkResult::kDone: break;
  }
  return Status();
}

Status remove_edge_locked(GraphNode& from, GraphNode& to, const CUgraphEdgeData& data) {
  if (unlink(from, to, data)) return Status();
  return Status(CUDA_ERROR_INVALID_VALUE, "there is no such dependency");
}

void remove_node_locked(Driver& driver, GraphNode& node) {
  detach(node);
  driver.graph_nodes.remove(node.handle);
  for (const auto& body : node.bodies) retire_graph_locked(driver, *body);
  Graph* graph = node.graph;
  node.graph = nullptr;
  std::erase_if(graph->nodes, [&](const auto& other) { return other.get() == &node; });
}

std::shared_ptr<Graph> clone_graph_locked(Driver& driver, const Graph& graph) {
  auto copy = std::make_shared<Graph>();
  copy->user_objects = graph.user_objects;
  std::unordered_map<const GraphNode*, GraphNode*> twins;
  for (const auto& node : graph.nodes) {
    std::shared_ptr<GraphNode> twin = add_node_locked(driver, *copy, node->type, node->work, {});
    twin->enabled = node->enabled;
    twin->child = node->child == nullptr ? nullptr : clone_graph_locked(driver, *node->child);
    twin->kernel_parameters = node->kernel_parameters;
    twin->copy_parameters = node->copy_parameters;
    twin->fill_parameters = node->fill_parameters;
    twin->attributes = node->attributes;
    twin->original = node->handle;
    twins[node.get()] = twin.get();
  }
  copy_links(graph.nodes, twins);
  return copy;
}

Result<std::shared_ptr<Graph>> create_graph(Driver& driver) {
  auto graph = std::make_shared<Graph>();
  graph->handle = driver.graphs.add(graph);
  if (graph->handle == nullptr) return Status(CUDA_ERROR_OUT_OF_MEMORY, "too many graphs");
  return graph;
}

namespace {

bool has_type_locked(const Graph& graph, std::span<const CUgraphNodeType> types) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [types](const auto& node) {
    return std::find(types.begin(), types.end(), node->type) != types.end() ||
           (node->child != nullptr && has_type_locked(*node->child, types));
  });
}

}  // namespace

bool has_memory_locked(const Graph& graph) {
  static constexpr CUgraphNodeType kTypes[] = {CU_GRAPH_NODE_TYPE_MEM_ALLOC,
                                               CU_GRAPH_NODE_TYPE_MEM_FREE};
  return has_type_locked(graph, kTypes);
}

bool is_unique_locked(const Graph& graph) {
  static constexpr CUgraphNodeType kTypes[] = {CU_GRAPH_NODE_TYPE_CONDITIONAL};
  return has_memory_locked(graph) || has_type_locked(graph, kTypes);
}

Status check_free_locked(Driver& driver, const Graph& graph, uint64_t address) {
  MappedRange range;
  if (!driver.address_space.find_mapped(address, &range) || range.begin != address ||
      range.kind != RangeKind::kGraph)
    return Status(CUDA_ERROR_INVALID_VALUE, "not what an allocation node gave");
  for (const auto& node : graph.nodes)
    if (const auto* free = std::get_if<GraphFreeWork>(&node->work))
      if (free->address == address)
        return Status(CUDA_ERROR_INVALID_VALUE, "the graph frees it already");
  return Status();
}

void retire_graph_locked(Driver& driver, Graph& graph) {
  for (const auto& node : graph.nodes) {
    for (const auto& body : node->bodies) retire_graph_locked(driver, *body);
    driver.graph_nodes.remove(node->handle);
    node->graph = nullptr;
  }
  for (const CUgraphConditionalHandle handle : graph.condition_handles)
    driver.conditions.remove(handle);
  driver.graphs.remove(graph.handle);
}

GraphStep* find_step(std::vector<GraphStep>& steps, CUgraphNode node) {
  if (node == nullptr) return nullptr;
  for (GraphStep& step : steps) {
    if (step.node == node) return &step;
    auto* conditional = std::get_if<ConditionalWork>(&step.work);
    if (conditional == nullptr) continue;
    for (auto& body : conditional->bodies) {
      auto replaced = std::make_shared<std::vector<GraphStep>>(*body);
      GraphStep* found = find_step(*replaced, node);
      if (found == nullptr) continue;
      body = std::move(replaced);
      return found;
    }
  }
  return nullptr;
}

Status destroy_graph(Driver& driver, CUgraph handle) {
  const std::shared_ptr<Graph> graph = driver.graphs.find(handle);
  if (graph == nullptr || graph->is_body) return Status(CUDA_ERROR_INVALID_VALUE, "not a graph");
  std::lock_guard lock(graph_mutex());
  retire_graph_locked(driver, *graph);
  return Status();
}

namespace {

// Memory of the device, or of the host that the device reaches; no arrays.
bool copies_on_device(const CopyWork& copy) {
  const CUDA_MEMCPY3D* named = copy.shape.named.get();
  const bool arrays = named != nullptr && (named->srcMemoryType == CU_MEMORYTYPE_ARRAY ||
                                           named->dstMemoryType == CU_MEMORYTYPE_ARRAY);
  return copy.check_source && copy.check_destination && !arrays;
}

bool runs_on_device_locked(const GraphNode& node) {
  switch (node.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
    case CU_GRAPH_NODE_TYPE_MEMSET: return true;
    case CU_GRAPH_NODE_TYPE_MEMCPY: return copies_on_device(std::get<CopyWork>(node.work));
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return std::all_of(node.child->nodes.begin(), node.child->nodes.end(),
                         [](const auto& inner) { return runs_on_device_locked(*inner); });
    default: return false;
  }
}

// CUDA's rules for graphs that kernels may launch.
Status check_for_device_locked(const Graph& graph, uint64_t flags) {
  constexpr uint64_t kExcluded = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH |
                                 CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
  if ((flags & kExcluded) != 0)
    return Status(CUDA_ERROR_INVALID_VALUE, "the flags exclude each other");
  if (graph.nodes.empty())
    return Status(CUDA_ERROR_INVALID_VALUE, "the device launches no empty graphs");
  for (const auto& node : graph.nodes)
    if (!runs_on_device_locked(*node))
      return Status(CUDA_ERROR_NOT_SUPPORTED, "a node that the device can't launch");
  return Status();
}

bool launches_graphs(const GraphExec& exec) {
  return std::any_of(exec.steps.begin(), exec.steps.end(), [](const GraphStep& step) {
    const auto* launch = std::get_if<LaunchWork>(&step.work);
    return launch != nullptr && launch->function->info->launches_graphs;
  });
}

}  // namespace

Result<std::shared_ptr<GraphExec>> instantiate(Driver& driver, Graph& graph, uint64_t flags) {
  auto exec = std::make_shared<GraphExec>();
  exec->flags = flags;
  std::lock_guard lock(graph_mutex());
  std::vector<std::shared_ptr<Condition>> conditions;
  OPENMPS_RETURN_IF_ERROR(check_conditionals_locked(graph, &conditions));
  if (is_unique_locked(graph) && graph.only_exec.lock() != nullptr)
    return Status(CUDA_ERROR_NOT_SUPPORTED, "the graph is instantiated already");
  if (exec->for_device()) OPENMPS_RETURN_IF_ERROR(check_for_device_locked(graph, flags));
  exec->uploaded = (flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0;
  keep_defaults(conditions, exec.get());
  exec->steps = steps_of(graph);
  hold_user_objects(graph, &exec->user_objects);
  for (const GraphStep& step : exec->steps)
    if (const auto* fill = std::get_if<FillWork>(&step.work))
      OPENMPS_RETURN_IF_ERROR(check_fill_range(driver, fill->shape));
  exec->handle = driver.graph_execs.add(exec);
  if (exec->handle == nullptr) return Status(CUDA_ERROR_OUT_OF_MEMORY, "too many graphs");
  if (is_unique_locked(graph)) graph.only_exec = exec;
  return exec;
}

CUgraphExecUpdateResult update_exec(GraphExec& exec, const Graph& graph, CUgraphNode* differing) {
  std::vector<GraphStep> steps;
  std::vector<std::shared_ptr<Condition>> conditions;
  {
    std::lock_guard lock(graph_mutex());
    const std::shared_ptr<GraphExec> instance = graph.only_exec.lock();
    if (has_memory_locked(graph) && instance != nullptr && instance.get() != &exec)
      return CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;  // the memory is another's
    steps = steps_of(graph);
    gather_conditions_locked(graph, &conditions);
  }
  std::lock_guard lock(exec.mutex);
  const CUgraphExecUpdateResult result = compare(steps, exec.steps, differing);
  if (result != CU_GRAPH_EXEC_UPDATE_SUCCESS) return result;
  take_works(std::move(steps), &exec.steps);
  exec.uploaded = false;
  keep_defaults(conditions, &exec);
  return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

namespace {

// Contexts but the stream's whose kernels the steps run.
Status find_others(const std::vector<GraphStep>& steps, const ExecutionContext& own,
                   std::vector<std::shared_ptr<ExecutionContext>>* others) {
  for (const GraphStep& step : steps) {
    if (const auto* conditional = std::get_if<ConditionalWork>(&step.work))
      for (const auto& body : conditional->bodies)
        OPENMPS_RETURN_IF_ERROR(find_others(*body, own, others));
    const auto* launch = std::get_if<LaunchWork>(&step.work);
    if (launch == nullptr || launch->function->module->execution.get() == &own) continue;
    const Module& module = *launch->function->module;
    if (module.context->execution() != module.execution)
      return Status(CUDA_ERROR_CONTEXT_IS_DESTROYED, "a kernel's context was destroyed");
    if (std::find(others->begin(), others->end(), module.execution) == others->end())
      others->push_back(module.execution);
  }
  return Status();
}

void note_visit_locked(ExecutionContext& context, const OperationPtr& end) {
  std::erase_if(context.visits, [](const OperationPtr& visit) { return visit->done; });
  context.visits.push_back(end);
}

struct MemoryNodes {
  std::vector<GraphBlockPtr> allocations;
  std::vector<uint64_t> frees;
};

// Bodies of conditional nodes have none (check_conditionals_locked).
MemoryNodes memory_nodes(const std::vector<GraphStep>& steps) {
  MemoryNodes nodes;
  for (const GraphStep& step : steps) {
    if (const auto* allocation = std::get_if<AllocationWork>(&step.work))
      nodes.allocations.push_back(allocation->block);
    if (const auto* free = std::get_if<GraphFreeWork>(&step.work))
      nodes.frees.push_back(free->address);
  }
  return nodes;
}

}  // namespace

std::vector<LateOperation> late_operations(const std::vector<GraphStep>& steps,
                                           const std::shared_ptr<ExecutionContext>& execution,
                                           const StreamQueue& stream) {
  std::vector<LateOperation> made;
  for (const GraphStep& step : steps) {
    LateOperation late;
    late.operation =
        make_operation(step.enabled ? step.work : Work(MarkerWork{}), execution, stream);
    late.operation->stream_id = stream.id;
    if (late.operation->kind == OperationKind::kKernel)
      static_cast<KernelOperation&>(*late.operation).in_body = true;
    for (const uint32_t index : step.after) late.after.push_back(made[index].operation);
    made.push_back(std::move(late));
  }
  return made;
}

void submit_late_locked(Scheduler& scheduler, std::span<const LateOperation> operations) {
  for (const LateOperation& late : operations) {
    if (late.operation->kind == OperationKind::kKernel)
      static_cast<KernelOperation&>(*late.operation).queue =
          late.operation->context->take_queue_locked();
    scheduler.submit_unordered_locked(late.operation, late.after);
  }
}

Status launch_graph(GraphExec& exec, Stream& stream) {
  OPENMPS_RETURN_IF_ERROR(refuse_capturing(stream));
  Scheduler& scheduler = stream.context->driver().scheduler;
  scheduler.await_standstills(*stream.execution);
  scheduler.await_room(*stream.queue);
  std::lock_guard exec_lock(exec.mutex);
  std::vector<std::shared_ptr<ExecutionContext>> others;
  OPENMPS_RETURN_IF_ERROR(find_others(exec.steps, *stream.execution, &others));
  for (const GraphExec::Step& step : exec.steps)
    if (const auto* words = std::get_if<WordsWork>(&step.work))
      OPENMPS_RETURN_IF_ERROR(check_words(stream.context->driver(), *words));
  const MemoryNodes memory = memory_nodes(exec.steps);
  GraphMemory& graph_memory = stream.context->driver().graph_memory;
  const bool frees_itself = (exec.flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0;
  OPENMPS_RETURN_IF_ERROR(graph_memory.open(memory.allocations, frees_itself));

  std::vector<OperationPtr> operations;
  for (const GraphExec::Step& step : exec.steps)
    operations.push_back(make_operation(step.enabled ? step.work : Work(MarkerWork{}),
                                        stream.execution, *stream.queue));
  // Records of events count from now on; waits are for what was recorded before.
  std::vector<OperationPtr> waited(exec.steps.size());
  for (size_t i = 0; i < exec.steps.size(); ++i)
    if (const auto* wait = std::get_if<WaitWork>(&exec.steps[i].work))
      waited[i] = last_record(*wait->event);
  for (size_t i = 0; i < exec.steps.size(); ++i)
    if (const auto* record = std::get_if<RecordWork>(&exec.steps[i].work))
      set_record(*record->event, operations[i]);
  auto begin = std::make_shared<MarkerOperation>(stream.execution);
  begin->assigned = exec.conditions;
  auto end = std::make_shared<MarkerOperation>(stream.execution);
  end->in_graph = true;
  std::shared_ptr<MarkerOperation> graph_end;  // of one whose kernels launch graphs
  std::shared_ptr<GraphRun> run;
  if (launches_graphs(exec)) {
    end->graph_run =
        std::make_shared<GraphRun>(stream.context->driver(), stream.execution, *stream.queue);
    run = std::make_shared<GraphRun>(end->graph_run, exec.shared_from_this());
    for (const OperationPtr& operation : operations)
      if (operation->kind == OperationKind::kKernel)
        run->adopt(static_cast<KernelOperation&>(*operation));
    graph_end = std::make_shared<MarkerOperation>(stream.execution);
    graph_end->graph_run = run;
  }
  exec.uploaded = true;

  graph_memory.use(memory.allocations, end);
  for (const uint64_t address : memory.frees) graph_memory.close(address, end);

  std::lock_guard lock(scheduler.mutex);
  for (const auto& other : others) note_visit_locked(*other, end);
  scheduler.submit_locked(*stream.queue, begin, {&exec.last_launch, 1});
  for (size_t i = 0; i < operations.size(); ++i) {
    std::vector<OperationPtr> after;
    for (uint32_t index : exec.steps[i].after) after.push_back(operations[index]);
    if (after.empty()) after.push_back(begin);
    if (waited[i] != nullptr) after.push_back(waited[i]);
    operations[i]->stream_id = stream.queue->id;
    // Branches of a graph run side by side: each step goes to a hardware queue of its own.
    if (operations[i]->kind == OperationKind::kKernel)
      static_cast<KernelOperation&>(*operations[i]).queue =
          operations[i]->context->take_queue_locked();
    scheduler.submit_unordered_locked(operations[i], after);
  }
  if (run != nullptr) {
    run->begin_locked();
    scheduler.submit_unordered_locked(graph_end, operations);
    operations = {graph_end};
  }
  scheduler.submit_locked(*stream.queue, end, operations);
  exec.last_launch = end;
  return Status();
}

}  // namespace openmps::softgpu
