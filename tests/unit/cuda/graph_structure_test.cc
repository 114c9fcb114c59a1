// SPDX-License-Identifier: Apache-2.0
// Edges, cycles, order, copies and flattening of graphs.
#include "cuda/graph_structure.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string>

namespace openmps::cuda {
namespace {

struct Node : GraphLinks<Node> {
  int name = 0;
  std::vector<Node*> inside;  // a child graph
};
using Link = GraphLink<Node>;

constexpr CUgraphEdgeData kEarly{1, 0, 1, {}};

class GraphStructureTest : public ::testing::Test {
 protected:
  Node& add(std::vector<Link> dependencies = {}) {
    nodes_.push_back(std::make_unique<Node>());
    nodes_.back()->name = static_cast<int>(nodes_.size()) - 1;
    attach_new(*nodes_.back(), prepare_links(std::span<const Link>(dependencies)));
    return *nodes_.back();
  }
  static std::vector<int> names(const std::vector<Link>& links) {
    std::vector<int> found;
    for (const Link& link : links) found.push_back(link.node->name);
    return found;
  }
  [[nodiscard]] std::vector<int> order() const {
    std::vector<int> found;
    for (const Node* node : topological_order(nodes_)) found.push_back(node->name);
    return found;
  }

  std::vector<std::unique_ptr<Node>> nodes_;
};

using Names = std::vector<int>;

TEST_F(GraphStructureTest, ADuplicateDependencyIsOneEdge) {
  Node& first = add();
  Node& second = add({{&first, kEarly}, {&first, {}}});
  EXPECT_EQ(names(second.dependencies), Names{0});
  EXPECT_EQ(names(first.dependents), Names{1});
  EXPECT_FALSE(is_plain(second.dependencies[0].data)) << "the data of the first duplicate are kept";
  EXPECT_FALSE(is_plain(first.dependents[0].data));
}

TEST_F(GraphStructureTest, EdgesThatExistOrCloseACycleAreRefused) {
  Node& a = add();
  Node& b = add({{&a, {}}});
  Node& c = add({{&b, {}}});
  EXPECT_EQ(link(a, b, kEarly), LinkResult::kExists);
  EXPECT_EQ(link(c, a, {}), LinkResult::kClosesCycle);
  EXPECT_EQ(link(a, a, {}), LinkResult::kClosesCycle);
  EXPECT_EQ(names(a.dependencies), Names{}) << "a refused edge changes nothing";
  EXPECT_EQ(names(c.dependents), Names{});
  EXPECT_EQ(link(a, c, kEarly), LinkResult::kDone);
  EXPECT_EQ(names(c.dependencies), (Names{1, 0}));
  EXPECT_EQ(names(a.dependents), (Names{1, 2}));
}

TEST_F(GraphStructureTest, AnEdgeIsRemovedByNodesAndData) {
  Node& a = add();
  Node& b = add({{&a, kEarly}});
  EXPECT_FALSE(unlink(a, b, {})) << "the edge has other data";
  EXPECT_FALSE(unlink(b, a, kEarly));
  set_data(a, b, {});
  EXPECT_TRUE(is_plain(a.dependents[0].data));
  EXPECT_TRUE(unlink(a, b, {}));
  EXPECT_FALSE(unlink(a, b, {}));
  EXPECT_EQ(names(a.dependents), Names{});
  EXPECT_EQ(link(b, a, {}), LinkResult::kDone) << "the reverse edge closes no cycle any more";
}

TEST_F(GraphStructureTest, ADetachedNodeHasNoEdges) {
  Node& a = add();
  Node& b = add({{&a, {}}});
  Node& c = add({{&a, {}}, {&b, {}}});
  detach(b);
  EXPECT_EQ(names(a.dependents), Names{2});
  EXPECT_EQ(names(c.dependencies), Names{0});
}

TEST_F(GraphStructureTest, NodesAreOrderedByDependenciesThenByCreation) {
  Node& a = add();
  Node& b = add();
  Node& c = add();
  ASSERT_EQ(link(c, a, {}), LinkResult::kDone);
  ASSERT_EQ(link(b, a, {}), LinkResult::kDone);
  EXPECT_EQ(order(), (Names{1, 2, 0}));
  EXPECT_TRUE(reaches(c, a));
  EXPECT_FALSE(reaches(a, c));
  EXPECT_TRUE(reaches(a, a));
}

TEST_F(GraphStructureTest, CopiesHaveTheSameEdgesAmongThemselves) {
  Node& a = add();
  Node& b = add({{&a, kEarly}});
  Node& c = add({{&b, {}}, {&a, {}}});
  std::array<Node, 3> copies;
  std::unordered_map<const Node*, Node*> twins;
  for (size_t i = 0; i < copies.size(); ++i) {
    copies[i].name = 10 + static_cast<int>(i);
    twins[nodes_[i].get()] = &copies[i];
  }
  copy_links(nodes_, twins);
  EXPECT_EQ(names(copies[2].dependencies), (Names{11, 10}));
  EXPECT_EQ(names(copies[0].dependents), (Names{11, 12}));
  EXPECT_FALSE(is_plain(copies[1].dependencies[0].data));
  EXPECT_EQ(names(c.dependencies), (Names{1, 0})) << "the original nodes are unchanged";
}

// Steps are numbered in the order of visits; a child graph replaces its node.
TEST_F(GraphStructureTest, FlattensWithChildGraphsInPlace) {
  Node& a = add();
  Node& b = add({{&a, kEarly}});
  add({{&b, {}}});
  Node inner;
  Node other;
  b.inside = {&inner, &other};
  std::vector<std::string> steps;
  const auto to_edge = [](uint32_t step, const CUgraphEdgeData& data) {
    return std::to_string(step) + (is_plain(data) ? "" : "!");
  };
  using Edges = std::vector<std::string>;
  const auto flatten = [&](const auto& self, const auto& nodes,
                           const Edges& before) -> std::optional<Steps> {
    return flatten_nodes(nodes, before, to_edge,
                         [&](const Node& node, const Edges& edges) -> std::optional<Steps> {
                           if (!node.inside.empty()) return self(self, node.inside, edges);
                           std::string text;
                           for (const std::string& edge : edges) text += " " + edge;
                           steps.push_back(text);
                           return Steps{static_cast<uint32_t>(steps.size() - 1)};
                         });
  };
  const std::optional<Steps> leaves = flatten(flatten, nodes_, {});
  EXPECT_EQ(steps, (Edges{"", " 0!", " 0!", " 1 2"}));
  EXPECT_EQ(leaves, Steps{3});
}

TEST_F(GraphStructureTest, AVisitThatFailsEndsTheFlattening) {
  Node& a = add();
  add({{&a, {}}});
  int visits = 0;
  const auto to_edge = [](uint32_t step, const CUgraphEdgeData&) { return step; };
  EXPECT_EQ(flatten_nodes(nodes_, Steps(), to_edge,
                          [&visits](const Node&, const Steps&) -> std::optional<Steps> {
                            ++visits;
                            return std::nullopt;
                          }),
            std::nullopt);
  EXPECT_EQ(visits, 1);
}

}  // namespace
}  // namespace openmps::cuda
