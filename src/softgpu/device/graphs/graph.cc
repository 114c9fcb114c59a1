// SPDX-License-Identifier: Apache-2.0
// The structure of graphs. See graph.h.
#include "softgpu/device/graphs/graph.h"

#include <algorithm>
#include <unordered_map>

#include "softgpu/device/driver.h"
#include "softgpu/device/schedule/device_node.h"

namespace openmps::softgpu {

std::shared_ptr<GraphNode> add_node_locked(Driver& driver, Graph& graph, Work work,
                                           std::span<const GraphEdge> dependencies) {
  auto node = std::make_shared<GraphNode>();
  node->graph = &graph;
  node->type = node_type(work);
  node->work = std::move(work);
  attach_new(*node, prepare_links(dependencies));
  node->handle = driver.graph_nodes.add(node);
  graph.nodes.push_back(node);
  return node;
}

Status add_edge_locked(GraphNode& from, GraphNode& to, const CUgraphEdgeData& data) {
  if (from.graph != to.graph) {
    return Status(CUDA_ERROR_INVALID_VALUE, "the nodes are of different graphs");
  }
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
  if (node.child != nullptr && node.child->moved) retire_graph_locked(driver, *node.child);
  Graph* graph = node.graph;
  node.graph = nullptr;
  std::erase_if(graph->nodes, [&](const auto& other) { return other.get() == &node; });
}

std::shared_ptr<Graph> clone_graph_locked(Driver& driver, const Graph& graph) {
  auto copy = std::make_shared<Graph>();
  copy->user_objects = graph.user_objects;
  std::unordered_map<const GraphNode*, GraphNode*> copies;
  for (const auto& node : graph.nodes) {
    std::shared_ptr<GraphNode> copied = add_node_locked(driver, *copy, node->work, {});
    copied->type = node->type;
    copied->enabled = node->enabled;
    copied->child = node->child == nullptr ? nullptr : clone_graph_locked(driver, *node->child);
    copied->copy_parameters = node->copy_parameters;
    copied->attributes = node->attributes;
    copied->original = node->handle;
    copies[node.get()] = copied.get();
  }
  copy_links(graph.nodes, copies);
  return copy;
}

Result<std::shared_ptr<Graph>> create_graph(Driver& driver) {
  auto graph = std::make_shared<Graph>();
  graph->handle = driver.graphs.add(graph);
  if (graph->handle == nullptr) return Status(CUDA_ERROR_OUT_OF_MEMORY, "too many graphs");
  return graph;
}

namespace {

bool has_type_locked(const Graph& graph, std::span<const CUgraphNodeType> types)
    REQUIRES(graph_mutex) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(),
                     [types](const auto& node) REQUIRES(graph_mutex) {
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

bool is_updatable_locked(const Graph& graph) {
  return std::any_of(
      graph.nodes.begin(), graph.nodes.end(), [](const auto& node) REQUIRES(graph_mutex) {
        const auto* launch = std::get_if<LaunchWork>(&node->work);
        return (launch != nullptr && launch->device_node != nullptr) ||
               (node->child != nullptr && is_updatable_locked(*node->child)) ||
               std::any_of(node->bodies.begin(), node->bodies.end(),
                           [](const auto& body)
                               REQUIRES(graph_mutex) { return is_updatable_locked(*body); });
      });
}

Status make_updatable(Driver& driver, LaunchWork& work, CUlaunchAttributeValue* value) {
  auto& wish = value->deviceUpdatableKernelNode;
  if (wish.deviceUpdatable != 0 && wish.deviceUpdatable != 1) {
    return Status(CUDA_ERROR_INVALID_VALUE, "deviceUpdatable is 0 or 1");
  }
  if (wish.deviceUpdatable == 0) {
    return work.device_node == nullptr
               ? Status()
               : Status(CUDA_ERROR_INVALID_VALUE, "the node stays updatable");
  }
  if (work.device_node == nullptr) {
    auto node = std::make_shared<DeviceNode>();
    driver.device_nodes.remove_if([](const auto& other) { return other.expired(); });
    const CUgraphDeviceNode handle =
        driver.device_nodes.add(std::make_shared<std::weak_ptr<DeviceNode>>(node));
    if (handle == nullptr) return Status(CUDA_ERROR_OUT_OF_MEMORY, "too many nodes");
    work.device_node = std::move(node);
    work.device_handle = handle;
  }
  wish.devNode = work.device_handle;
  return Status();
}

bool has_conditional_locked(const Graph& graph) {
  static constexpr CUgraphNodeType kTypes[] = {CU_GRAPH_NODE_TYPE_CONDITIONAL};
  return has_type_locked(graph, kTypes);
}

bool is_unique_locked(const Graph& graph) {
  return has_memory_locked(graph) || has_conditional_locked(graph) || is_updatable_locked(graph);
}

Status check_free_locked(Driver& driver, const Graph& graph, uint64_t address) {
  MappedRange range;
  if (!driver.address_space.find_mapped(address, &range) || range.begin != address ||
      range.kind != RangeKind::kGraph) {
    return Status(CUDA_ERROR_INVALID_VALUE, "not what an allocation node gave");
  }
  for (const auto& node : graph.nodes) {
    if (const auto* free = std::get_if<GraphFreeWork>(&node->work)) {
      if (free->address == address) {
        return Status(CUDA_ERROR_INVALID_VALUE, "the graph frees it already");
      }
    }
  }
  return Status();
}

bool contains_locked(const Graph& graph, const Graph& other) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(),
                     [&other](const auto& node) REQUIRES(graph_mutex) {
                       return node->child != nullptr &&
                              (node->child.get() == &other || contains_locked(*node->child, other));
                     });
}

void retire_graph_locked(Driver& driver, Graph& graph) {
  for (const auto& node : graph.nodes) {
    for (const auto& body : node->bodies) retire_graph_locked(driver, *body);
    if (node->child != nullptr && node->child->moved) retire_graph_locked(driver, *node->child);
    driver.graph_nodes.remove(node->handle);
    node->graph = nullptr;
  }
  for (const CUgraphConditionalHandle handle : graph.condition_handles) {
    driver.conditions.remove(handle);
  }
  driver.graphs.remove(graph.handle);
}

Status destroy_graph(Driver& driver, CUgraph handle) {
  const std::shared_ptr<Graph> graph = driver.graphs.find(handle);
  if (graph == nullptr) return Status(CUDA_ERROR_INVALID_VALUE, "not a graph");
  const MutexLock lock(graph_mutex);
  if (graph->is_body || graph->moved) {
    return Status(CUDA_ERROR_INVALID_VALUE, "the graph goes with its node");
  }
  retire_graph_locked(driver, *graph);
  return Status();
}

}  // namespace openmps::softgpu
