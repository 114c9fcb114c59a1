// SPDX-License-Identifier: Apache-2.0
// Conditional nodes. See conditional.h.
#include "softgpu/device/graphs/conditional.h"

#include <algorithm>

#include "softgpu/device/contexts/context.h"
#include "softgpu/device/contexts/stream.h"
#include "softgpu/device/driver.h"

namespace openmps::softgpu {
namespace {

constexpr unsigned kMaxBodies = 4096;  // of one switch; CUDA names no limit

bool good_size(const CUDA_CONDITIONAL_NODE_PARAMS& parameters) {
  switch (parameters.type) {
    case CU_GRAPH_COND_TYPE_IF: return parameters.size == 1 || parameters.size == 2;
    case CU_GRAPH_COND_TYPE_WHILE: return parameters.size == 1;
    case CU_GRAPH_COND_TYPE_SWITCH: return parameters.size >= 1 && parameters.size <= kMaxBodies;
    default: return false;
  }
}

// CUDA's list for bodies.
bool permitted(const GraphNode& node) {
  switch (node.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
    case CU_GRAPH_NODE_TYPE_EMPTY:
    case CU_GRAPH_NODE_TYPE_GRAPH:
    case CU_GRAPH_NODE_TYPE_MEMSET:
    case CU_GRAPH_NODE_TYPE_MEMCPY:
    case CU_GRAPH_NODE_TYPE_CONDITIONAL: return true;
    default: return false;
  }
}

// `around`: of the body; null: in none.
Status check_nodes(const Graph& graph, const Condition* around,
                   const std::vector<std::shared_ptr<Condition>>& conditions) {
  for (const auto& node : graph.nodes) {
    if (around != nullptr && !permitted(*node)) {
      return Status(CUDA_ERROR_NOT_SUPPORTED, "a body with a node that CUDA does not permit there");
    }
    const auto* launch = std::get_if<LaunchWork>(&node->work);
    if (around != nullptr && launch != nullptr && launch->place.view != around->view) {
      return Status(CUDA_ERROR_INVALID_VALUE, "a kernel of another green context than its body");
    }
    if (node->child != nullptr) {
      OPENMPS_RETURN_IF_ERROR(check_nodes(*node->child, around, conditions));
    }
    const auto* work = std::get_if<ConditionalWork>(&node->work);
    if (work == nullptr) continue;
    if (std::find(conditions.begin(), conditions.end(), work->condition) == conditions.end()) {
      return Status(CUDA_ERROR_INVALID_VALUE, "a conditional handle of another graph");
    }
    for (const auto& body : node->bodies) {
      OPENMPS_RETURN_IF_ERROR(check_nodes(*body, work->condition.get(), conditions));
    }
  }
  return Status();
}

}  // namespace

void gather_conditions_locked(const Graph& graph,
                              std::vector<std::shared_ptr<Condition>>* conditions) {
  conditions->insert(conditions->end(), graph.conditions.begin(), graph.conditions.end());
  for (const auto& node : graph.nodes) {
    for (const auto& body : node->bodies) gather_conditions_locked(*body, conditions);
  }
}

Result<CUgraphConditionalHandle> create_condition(Driver& driver, Graph& graph,
                                                  const Context& context, uint32_t initial,
                                                  unsigned flags) {
  if ((flags & ~CU_GRAPH_COND_ASSIGN_DEFAULT) != 0) {
    return Status(CUDA_ERROR_INVALID_VALUE, "unknown flags of a conditional handle");
  }
  auto condition = std::make_shared<Condition>();
  condition->execution = context.execution();
  condition->view = placement_of(context).view;
  condition->initial = initial;
  condition->assigns = flags != 0;
  const CUgraphConditionalHandle handle = driver.conditions.add(condition);
  if (handle == 0) return Status(CUDA_ERROR_OUT_OF_MEMORY, "too many conditional handles");
  const MutexLock lock(graph_mutex);
  graph.conditions.push_back(std::move(condition));
  graph.condition_handles.push_back(handle);
  return handle;
}

Result<std::shared_ptr<GraphNode>> add_conditional_locked(
    Driver& driver, Graph& graph, const CUDA_CONDITIONAL_NODE_PARAMS& parameters,
    std::span<const GraphEdge> dependencies) {
  const std::shared_ptr<Condition> condition = driver.conditions.find(parameters.handle);
  if (condition == nullptr || condition->used) {
    return Status(CUDA_ERROR_INVALID_VALUE, "no conditional handle without a node");
  }
  const std::shared_ptr<Context> context = driver.contexts.find(parameters.ctx);
  if (context != nullptr && placement_of(*context).view != condition->view) {
    return Status(CUDA_ERROR_INVALID_VALUE, "the conditional handle is another context's");
  }
  if (!good_size(parameters)) {
    return Status(CUDA_ERROR_INVALID_VALUE, "a conditional node with a wrong number of bodies");
  }
  ConditionalWork work;
  work.type = parameters.type;
  work.condition = condition;
  auto node = add_node_locked(driver, graph, std::move(work), dependencies);
  for (unsigned i = 0; i < parameters.size; ++i) {
    Result<std::shared_ptr<Graph>> body = create_graph(driver);
    if (!body.ok()) {
      remove_node_locked(driver, *node);
      return body.status();
    }
    (*body)->is_body = true;
    node->bodies.push_back(*body);
    node->body_handles.push_back((*body)->handle);
  }
  condition->used = true;
  return node;
}

Status check_conditionals_locked(const Graph& graph,
                                 std::vector<std::shared_ptr<Condition>>* conditions) {
  if (graph.moved) {
    return Status(CUDA_ERROR_NOT_SUPPORTED, "a moved graph can't be instantiated by itself");
  }
  if (graph.is_body) {
    return Status(CUDA_ERROR_INVALID_VALUE, "a body can't be instantiated by itself");
  }
  gather_conditions_locked(graph, conditions);
  for (const auto& condition : *conditions) {
    if (!condition->used) {
      return Status(CUDA_ERROR_INVALID_VALUE, "a conditional handle without a node");
    }
  }
  return check_nodes(graph, nullptr, *conditions);
}

}  // namespace openmps::softgpu
