// SPDX-License-Identifier: Apache-2.0
// Snapshots of graphs, and their updates. See graph_exec.h.
#include "softgpu/device/graphs/graph_exec.h"

#include <algorithm>

#include "softgpu/device/driver.h"
#include "softgpu/device/graphs/conditional.h"
#include "softgpu/device/graphs/graph.h"
#include "softgpu/device/work/copy_plan.h"
#include "softgpu/device/work/module.h"

namespace openmps::softgpu {
namespace {

std::vector<GraphStep> steps_of(const Graph& graph);

// A conditional node's work with its bodies as they are now.
Work work_of(const GraphNode& node) {
  Work work = node.work;
  if (auto* conditional = std::get_if<ConditionalWork>(&work)) {
    for (const auto& body : node.bodies) {
      conditional->bodies.push_back(
          std::make_shared<const std::vector<GraphStep>>(steps_of(*body)));
    }
  }
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
  for (const auto& node : graph.nodes) {
    if (node->child != nullptr) hold_user_objects(*node->child, held);
  }
}

void keep_defaults(const std::vector<std::shared_ptr<Condition>>& conditions, GraphExec* exec)
    REQUIRES(exec->mutex) {
  exec->conditions.clear();
  for (const auto& condition : conditions) {
    if (condition->assigns) exec->conditions.push_back(condition);
  }
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
    if (!same_context(steps[i].work, old[i].work)) {
      return CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE;
    }
    const auto* now = std::get_if<ConditionalWork>(&steps[i].work);
    if (now == nullptr) continue;
    const auto& before = std::get<ConditionalWork>(old[i].work);
    if (now->type != before.type || now->bodies.size() != before.bodies.size()) {
      return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    }
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

// Memory of the device, or of the host that the device reaches; no arrays.
bool copies_on_device(const CopyWork& copy) {
  const CUDA_MEMCPY3D* named = copy.shape.named.get();
  const bool arrays = named != nullptr && (named->srcMemoryType == CU_MEMORYTYPE_ARRAY ||
                                           named->dstMemoryType == CU_MEMORYTYPE_ARRAY);
  return copy.check_source && copy.check_destination && !arrays;
}

bool is_for_device(CUgraphNodeType type) {
  return type == CU_GRAPH_NODE_TYPE_KERNEL || type == CU_GRAPH_NODE_TYPE_MEMSET ||
         type == CU_GRAPH_NODE_TYPE_MEMCPY || type == CU_GRAPH_NODE_TYPE_GRAPH;
}

bool runs_on_device_locked(const GraphNode& node) REQUIRES(graph_mutex) {
  switch (node.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
    case CU_GRAPH_NODE_TYPE_MEMSET: return true;
    case CU_GRAPH_NODE_TYPE_MEMCPY: return copies_on_device(std::get<CopyWork>(node.work));
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return std::all_of(node.child->nodes.begin(), node.child->nodes.end(),
                         [](const auto& inner)
                             REQUIRES(graph_mutex) { return runs_on_device_locked(*inner); });
    default: return false;
  }
}

// CUDA's rules for graphs that kernels may launch.
Status check_for_device_locked(const Graph& graph, uint64_t flags) REQUIRES(graph_mutex) {
  constexpr uint64_t kExcluded = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH |
                                 CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
  if ((flags & kExcluded) != 0) {
    return Status(CUDA_ERROR_INVALID_VALUE, "the flags exclude each other");
  }
  if (graph.nodes.empty()) {
    return Status(CUDA_ERROR_INVALID_VALUE, "the device launches no empty graphs");
  }
  for (const auto& node : graph.nodes) {
    if (!is_for_device(node->type)) {
      return Status(CUDA_ERROR_INVALID_VALUE, "a node of a type that the device does not launch");
    }
    if (!runs_on_device_locked(*node)) {
      return Status(CUDA_ERROR_NOT_SUPPORTED, "a node that the device can't launch");
    }
  }
  return Status();
}

}  // namespace

bool same_context(const Work& one, const Work& other) {
  const auto* a = std::get_if<LaunchWork>(&one);
  const auto* b = std::get_if<LaunchWork>(&other);
  return a == nullptr || b == nullptr ||
         (a->function->module->execution == b->function->module->execution &&
          a->place.view == b->place.view);
}

Result<std::shared_ptr<GraphExec>> instantiate(Driver& driver, Graph& graph, uint64_t flags) {
  auto exec = std::make_shared<GraphExec>();
  exec->id = driver.new_id();
  exec->flags = flags;
  const MutexLock lock(exec->mutex);
  const MutexLock graph_lock(graph_mutex);
  std::vector<std::shared_ptr<Condition>> conditions;
  OPENMPS_RETURN_IF_ERROR(check_conditionals_locked(graph, &conditions));
  if (is_unique_locked(graph) && graph.only_exec.lock() != nullptr) {
    return Status(CUDA_ERROR_NOT_SUPPORTED, "the graph is instantiated already");
  }
  if (exec->for_device()) OPENMPS_RETURN_IF_ERROR(check_for_device_locked(graph, flags));
  exec->uploaded = (flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0;
  keep_defaults(conditions, exec.get());
  exec->steps = steps_of(graph);
  set_device_nodes(exec->steps);
  hold_user_objects(graph, &exec->user_objects);
  for (GraphStep& step : exec->steps) {
    if (auto* fill = std::get_if<FillWork>(&step.work)) {
      SideFacts facts;
      OPENMPS_RETURN_IF_ERROR(check_fill_range(driver.address_space, fill->shape, &facts));
      if (facts.mapped) fill->destination = facts.place.kind;
    }
  }
  exec->handle = driver.graph_execs.add(exec);
  if (exec->handle == nullptr) return Status(CUDA_ERROR_OUT_OF_MEMORY, "too many graphs");
  if (is_unique_locked(graph)) graph.only_exec = exec;
  return exec;
}

Status update_exec(GraphExec& exec, const Graph& graph, CUgraphExecUpdateResultInfo* info) {
  std::vector<GraphStep> steps;
  std::vector<std::shared_ptr<Condition>> conditions;
  {
    const MutexLock lock(graph_mutex);
    const std::shared_ptr<GraphExec> instance = graph.only_exec.lock();
    if (is_updatable_locked(graph)) {
      return Status(CUDA_ERROR_NOT_SUPPORTED, "kernels change nodes of the graph");
    }
    if (has_memory_locked(graph) && instance != nullptr && instance.get() != &exec) {
      return Status(CUDA_ERROR_NOT_SUPPORTED, "the memory is another executable graph's");
    }
    steps = steps_of(graph);
    gather_conditions_locked(graph, &conditions);
  }
  const MutexLock lock(exec.mutex);
  if (has_device_nodes(exec.steps)) {
    return Status(CUDA_ERROR_NOT_SUPPORTED, "kernels change nodes of the executable graph");
  }
  info->result = compare(steps, exec.steps, &info->errorNode);
  if (info->result != CU_GRAPH_EXEC_UPDATE_SUCCESS) {
    return Status(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, "the graphs differ");
  }
  take_works(std::move(steps), &exec.steps);
  exec.uploaded = false;
  keep_defaults(conditions, &exec);
  return Status();
}

}  // namespace openmps::softgpu
