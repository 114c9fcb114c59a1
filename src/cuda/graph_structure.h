// SPDX-License-Identifier: Apache-2.0
// The pure structure of CUDA graphs: edges, cycles, order, copies, flattening. What nodes do, what
// owns them and what capture allows is up to the owners of graphs. The caller holds the lock
// that guards the graph.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "cuda/abi.h"

namespace openmps::cuda {

template <typename Node>
struct GraphLink {
  Node* node = nullptr;
  CUgraphEdgeData data{};
};

// A node's neighbours, in the order in which they were named. A node is one of these.
template <typename Node>
struct GraphLinks {
  std::vector<GraphLink<Node>> dependencies;
  std::vector<GraphLink<Node>> dependents;
};

// The later node waits for all of the earlier one.
inline bool is_plain(const CUgraphEdgeData& data) {
  return data.from_port == 0 && data.to_port == 0 && data.type == 0;
}

template <typename Node>
auto find_link(std::vector<GraphLink<Node>>& links, const Node* node) {
  return std::find_if(links.begin(), links.end(),
                      [node](const GraphLink<Node>& link) { return link.node == node; });
}

template <typename Node>
void erase_link(std::vector<GraphLink<Node>>& links, const Node* node) {
  std::erase_if(links, [node](const GraphLink<Node>& link) { return link.node == node; });
}

// Reserves capacity for one more element. The capacity doubles, as with push_back().
template <typename T>
void reserve_one(std::vector<T>& list) {
  if (list.size() == list.capacity()) list.reserve(std::max<size_t>(8, 2 * list.size()));
}

// There is a path from one node to the other. A node has a path to itself.
template <typename Node>
bool reaches(const Node& from, const Node& to) {
  std::vector<const Node*> open{&from};
  std::unordered_set<const Node*> seen;
  while (!open.empty()) {
    const Node* node = open.back();
    open.pop_back();
    if (node == &to) return true;
    if (!seen.insert(node).second) continue;
    for (const GraphLink<Node>& link : node->dependents) open.push_back(link.node);
  }
  return false;
}

// The dependencies of a node to be made, for attach_new(): one that is named twice counts once. All
// the memory that this takes.
template <typename Node>
std::vector<GraphLink<Node>> prepare_links(std::span<const GraphLink<Node>> dependencies) {
  std::vector<GraphLink<Node>> links;
  links.reserve(dependencies.size());
  for (const GraphLink<Node>& link : dependencies) {
    if (find_link(links, link.node) == links.end()) links.push_back(link);
  }
  for (const GraphLink<Node>& link : links) reserve_one(link.node->dependents);
  return links;
}

// The node, which has no neighbours yet, gets what prepare_links() gave.
template <typename Node>
void attach_new(Node& node, std::vector<GraphLink<Node>> links) noexcept {
  for (const GraphLink<Node>& link : links) link.node->dependents.push_back({&node, link.data});
  node.dependencies = std::move(links);
}

enum class LinkResult { kDone, kExists, kClosesCycle };

// Throws std::bad_alloc before anything has happened.
template <typename Node>
LinkResult link(Node& from, Node& to, const CUgraphEdgeData& data) {
  if (find_link(to.dependencies, &from) != to.dependencies.end()) return LinkResult::kExists;
  if (reaches(to, from)) return LinkResult::kClosesCycle;
  reserve_one(to.dependencies);
  reserve_one(from.dependents);
  to.dependencies.push_back({&from, data});
  from.dependents.push_back({&to, data});
  return LinkResult::kDone;
}

// The edge, which there is, says something else from now on.
template <typename Node>
void set_data(Node& from, Node& to, const CUgraphEdgeData& data) {
  find_link(to.dependencies, &from)->data = data;
  find_link(from.dependents, &to)->data = data;
}

// False: there is no such edge with these data.
template <typename Node>
bool unlink(Node& from, Node& to, const CUgraphEdgeData& data) {
  const auto has = find_link(to.dependencies, &from);
  if (has == to.dependencies.end() || memcmp(&has->data, &data, sizeof(data)) != 0) return false;
  to.dependencies.erase(has);
  erase_link(from.dependents, &to);
  return true;
}

// The node's neighbours have it no more.
template <typename Node>
void detach(Node& node) {
  for (const GraphLink<Node>& link : node.dependencies) erase_link(link.node->dependents, &node);
  for (const GraphLink<Node>& link : node.dependents) erase_link(link.node->dependencies, &node);
}

// Every node behind all that it depends on, otherwise in the order of `nodes`, a list of pointers
// to them.
template <typename Nodes>
auto topological_order(const Nodes& nodes) {
  using Node = std::remove_reference_t<decltype(**nodes.begin())>;
  std::unordered_map<const Node*, size_t> missing;
  std::vector<Node*> order;
  order.reserve(nodes.size());
  for (const auto& node : nodes) {
    missing[&*node] = node->dependencies.size();
    if (node->dependencies.empty()) order.push_back(&*node);
  }
  for (size_t i = 0; i < order.size(); ++i) {
    for (const auto& link : order[i]->dependents) {
      if (--missing[link.node] == 0) order.push_back(link.node);
    }
  }
  return order;
}

// The copies of `nodes`, which have no neighbours yet, get those that the nodes have.
template <typename Nodes, typename Node>
void copy_links(const Nodes& nodes, const std::unordered_map<const Node*, Node*>& copy_of) {
  const auto translate = [&copy_of](const std::vector<GraphLink<Node>>& links) {
    std::vector<GraphLink<Node>> copies;
    copies.reserve(links.size());
    for (const GraphLink<Node>& link : links) copies.push_back({copy_of.at(link.node), link.data});
    return copies;
  };
  for (const auto& node : nodes) {
    Node& copy = *copy_of.at(&*node);
    copy.dependencies = translate(node->dependencies);
    copy.dependents = translate(node->dependents);
  }
}

// ---- Flattening ---------------------------------------------------------------------------------

using Steps = std::vector<uint32_t>;

// A graph becomes a list of steps, each behind earlier ones. visit(node, edges) makes the steps of
// a node and says which stand at its end, as std::optional<Steps>; `edges` is a std::vector of what
// to_edge(step, data) makes of the steps that the node waits for. Roots wait for `before`. Returns
// the ends of the leaves; null: a visit returned null.
template <typename Nodes, typename Edge, typename ToEdge, typename Visit>
std::optional<Steps> flatten_nodes(const Nodes& nodes, const std::vector<Edge>& before,
                                   ToEdge&& to_edge, Visit&& visit) {
  using Node = std::remove_reference_t<decltype(**nodes.begin())>;
  std::unordered_map<const Node*, Steps> ends;
  Steps leaves;
  for (Node* node : topological_order(nodes)) {
    std::vector<Edge> edges;
    for (const auto& link : node->dependencies) {
      for (const uint32_t step : ends[link.node]) edges.push_back(to_edge(step, link.data));
    }
    if (node->dependencies.empty()) edges = before;
    std::optional<Steps> end = visit(*node, std::move(edges));
    if (!end.has_value()) return std::nullopt;
    if (node->dependents.empty()) leaves.insert(leaves.end(), end->begin(), end->end());
    ends[node] = std::move(*end);
  }
  return leaves;
}

}  // namespace openmps::cuda
