// SPDX-License-Identifier: Apache-2.0
// Executable graphs of a session: what the driver is told of a description, and that nothing of it
// is trusted.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "session_fixture.h"
#include "wire/commands/array.h"
#include "wire/commands/code.h"
#include "wire/commands/graph.h"
#include "wire/commands/memory.h"
#include "wire/commands/stream.h"

namespace openmps::worker {
namespace {

using wire::GraphNodeKind;
using Calls = std::vector<std::string>;

template <typename T>
std::string text_of(const T& value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}

class GraphTest : public SessionFixture {
 protected:
  void SetUp() override {
    SessionFixture::SetUp();
    create_stream(1, wire::StreamKind::kNonBlocking);
    load_module();
    map(kBase, wire::kMemoryGranularity);
    calls();
  }
  void begin() {
    EXPECT_TRUE(send(wire::GraphBegin{1, 0}).ok());
    calls();
  }
  Status node(GraphNodeKind kind, const std::string& body,
              const std::vector<wire::GraphEdge>& edges = {}, uint32_t parent = 0) {
    std::string text;
    for (const wire::GraphEdge& edge : edges) text += text_of(edge);
    return send(wire::GraphNode{1, kind, static_cast<uint32_t>(edges.size()),
                                static_cast<uint32_t>(body.size()), parent},
                text + body);
  }
  // A description of the client's graph 5.
  Status begin_kept() { return send(wire::GraphBegin{1, 0, 5}); }
  uint64_t condition() {
    EXPECT_TRUE(send(wire::ConditionCreate{5, 0, 1, 1}).ok());
    return reply<wire::ConditionCreate::Reply>().handle;
  }
  static std::string conditional(uint64_t handle, uint32_t type, uint32_t bodies) {
    return text_of(wire::GraphConditional{handle, type, bodies});
  }
  Status instantiate() { return send(wire::GraphInstantiate{0, 1}); }
  Status launch_graph() { return send(wire::GraphLaunch{1, 1}); }
  static std::string kernel() { return text_of(launch_of(0)) + std::string(16, '\0'); }
  static std::string copy(uint64_t to, uint64_t bytes) {
    return text_of(wire::Memcpy3D{0, 0, to, kBase, 0, 0, 0, 0, bytes, 1, 1});
  }
  static std::string fill(uint64_t to, uint64_t words) {
    return text_of(wire::Memset{0, 4, to, 0, words, 1, 7});
  }

  static constexpr wire::GraphEdge kFirst{0, 0, 0, 0};
};

TEST_F(GraphTest, EveryKindOfNodeReachesTheDriver) {
  EXPECT_TRUE(send(wire::EventCreate{1, 0, 0}).ok());
  begin();
  EXPECT_TRUE(node(GraphNodeKind::kKernel, kernel()).ok());
  EXPECT_TRUE(node(GraphNodeKind::kCopy, copy(kBase + 4096, 64), {kFirst}).ok());
  EXPECT_TRUE(node(GraphNodeKind::kFill, fill(kBase, 16), {kFirst, {1, 0, 0, 0}}).ok());
  EXPECT_TRUE(node(GraphNodeKind::kHostCall,
                   text_of(wire::HostFunction{0, 3, 0, wire::kNoFence, 0}), {kFirst})
                  .ok());
  EXPECT_TRUE(node(GraphNodeKind::kEmpty, "", {{3, 0, 0, 0}}).ok());
  const wire::ValueOperation write{{kBase + 8, 5, 4, 0}, wire::ValueKind::kWrite};
  EXPECT_TRUE(node(GraphNodeKind::kValues, text_of(write) + text_of(write)).ok());
  EXPECT_EQ(calls(), (Calls{"kernel behind 0", "copy behind 1", "fill behind 2", "host behind 1",
                            "values 2 behind 1", "empty behind 1", "values 2 behind 0"}));
  EXPECT_TRUE(node(GraphNodeKind::kEventRecord, text_of(wire::GraphEvent{1})).ok());
  EXPECT_TRUE(node(GraphNodeKind::kEventWait, text_of(wire::GraphEvent{1})).ok());
  EXPECT_EQ(calls(), (Calls{"event", "record behind 0", "wait behind 0"}));
  EXPECT_TRUE(instantiate().ok());
  EXPECT_TRUE(launch_graph().ok());
  EXPECT_EQ(calls(), (Calls{"instantiate", "stream 0", "graph s1"}));
  // The event lives as long as the graph that records it.
  EXPECT_TRUE(send(wire::EventDestroy{1}).ok());
  EXPECT_EQ(calls(), Calls{});
  EXPECT_TRUE(send(wire::GraphExecDestroy{1}).ok());
  EXPECT_EQ(calls(), (Calls{"destroy exec", "destroy graph", "destroy event"}));
}

TEST_F(GraphTest, EdgesOfOtherKindsAndAttributes) {
  begin();
  EXPECT_TRUE(node(GraphNodeKind::kKernel, kernel()).ok());
  wire::Launch launch = launch_of(0);
  launch.attribute_count = 1;
  launch.flags = wire::kLaunchCooperative;
  CUlaunchAttribute priority{};
  priority.id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
  const std::string body = text_of(launch) + text_of(priority) + std::string(16, '\0');
  EXPECT_TRUE(node(GraphNodeKind::kKernel, body, {{0, 1, 0, 1}}).ok());
  EXPECT_EQ(calls(), (Calls{"kernel behind 0", "kernel behind 0", "attribute 8", "attribute 2",
                            "edge of type 1"}));
  EXPECT_TRUE(instantiate().ok());
}

TEST_F(GraphTest, NodesChangeInPlace) {
  begin();
  EXPECT_TRUE(node(GraphNodeKind::kFill, fill(kBase, 16)).ok());
  EXPECT_TRUE(instantiate().ok());
  calls();
  const auto set = [&](uint32_t number, GraphNodeKind kind, const std::string& body) {
    return send(wire::GraphSetNode{1, number, kind, static_cast<uint32_t>(body.size())}, body);
  };
  EXPECT_TRUE(set(0, GraphNodeKind::kFill, fill(kBase + 64, 16)).ok());
  EXPECT_TRUE(send(wire::GraphEnableNode{1, 0, 0}).ok());
  EXPECT_EQ(calls(), (Calls{"set fill", "refresh fill", "enable 0"}));
  EXPECT_EQ(set(0, GraphNodeKind::kFill, fill(kBase - 4, 16)).code(), CUDA_ERROR_INVALID_VALUE);
  EXPECT_TRUE(is_violation(set(1, GraphNodeKind::kFill, fill(kBase, 16)))) << "no such node";
  EXPECT_TRUE(is_violation(set(0, GraphNodeKind::kCopy, copy(kBase, 16)))) << "another kind";
  EXPECT_TRUE(is_violation(send(wire::GraphEnableNode{1, 1, 0})));
}

TEST_F(GraphTest, UpdatesTakeADescription) {
  EXPECT_TRUE(is_violation(send(wire::GraphUpdate{1})));
  begin();
  EXPECT_TRUE(node(GraphNodeKind::kFill, fill(kBase, 16)).ok());
  EXPECT_TRUE(instantiate().ok());
  EXPECT_TRUE(is_violation(send(wire::GraphUpdate{1})));
  begin();
  EXPECT_TRUE(node(GraphNodeKind::kFill, fill(kBase, 32)).ok());
  calls();
  EXPECT_TRUE(send(wire::GraphUpdate{1}).ok());
  EXPECT_EQ(reply<wire::GraphUpdate::Reply>().result, 0u);
  EXPECT_EQ(calls(), (Calls{"update"})) << "the graph is kept, in case it is made anew";
}

// Nodes that copy between arrays of 64 by 8 bytes and memory.
class GraphArrayTest : public GraphTest {
 protected:
  void SetUp() override {
    GraphTest::SetUp();
    create_array(1);
    calls();
  }
  void create_array(wire::Id id) {
    const wire::ArrayCreate array{id, 0, 64, 8, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0, 0};
    EXPECT_TRUE(send(array).ok());
  }
  static wire::ArraySide array_at(wire::Id array, uint64_t x, uint64_t y) {
    return {array, 0, x, y, 0, 0, 0, 0};
  }
  static wire::ArraySide memory_at(uint64_t address) { return {0, 0, 0, 0, 0, address, 64, 512}; }
  // A box of 16 by 4 bytes.
  static std::string box(const wire::ArraySide& to, const wire::ArraySide& from) {
    return text_of(wire::ArrayCopy{0, 0, to, from, 16, 4, 1});
  }
  Status array_node(const wire::ArraySide& to, const wire::ArraySide& from) {
    return node(GraphNodeKind::kArrayCopy, box(to, from));
  }
  Status set_array_node(const wire::ArraySide& to, const wire::ArraySide& from) {
    const std::string body = box(to, from);
    return send(
        wire::GraphSetNode{1, 0, GraphNodeKind::kArrayCopy, static_cast<uint32_t>(body.size())},
        body);
  }
  Status destroy_array(wire::Id id) { return send(wire::ArrayDestroy{id}); }
};

TEST_F(GraphArrayTest, BoxesReachTheDriver) {
  create_array(2);
  begin();
  EXPECT_TRUE(array_node(array_at(1, 48, 4), memory_at(kBase)).ok());
  EXPECT_TRUE(array_node(memory_at(kStaging), array_at(1, 0, 1)).ok());
  EXPECT_TRUE(array_node(array_at(2, 8, 0), array_at(1, 0, 2)).ok());
  EXPECT_EQ(calls(), (Calls{"copy of 16x4x1 from memory to a1 at 48,4,0 behind 0",
                            "copy of 16x4x1 from a1 at 0,1,0 to memory behind 0",
                            "copy of 16x4x1 from a1 at 0,2,0 to a2 at 8,0,0 behind 0"}));
  EXPECT_TRUE(instantiate().ok());
  EXPECT_TRUE(launch_graph().ok());
  EXPECT_TRUE(set_array_node(array_at(2, 0, 0), memory_at(kBase + 64)).ok());
  const Calls set = calls();
  EXPECT_EQ(set.at(set.size() - 2), "set copy of 16x4x1 from memory to a2 at 0,0,0");
  EXPECT_EQ(set.back(), "refresh copy");
}

TEST_F(GraphArrayTest, ABoxBeyondItsArrayIsRefused) {
  for (const wire::ArraySide& beyond : {array_at(1, 49, 0), array_at(1, 0, 5)}) {
    begin();
    EXPECT_TRUE(node(GraphNodeKind::kEmpty, "").ok());
    EXPECT_TRUE(array_node(beyond, memory_at(kBase)).ok()) << "reported by what uses it";
    EXPECT_EQ(instantiate().code(), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(reply<wire::GraphInstantiate::Reply>().failed_node, 1u);
    EXPECT_TRUE(is_violation(launch_graph())) << "there is none";
  }
  begin();
  EXPECT_TRUE(array_node(array_at(1, 48, 4), memory_at(kBase)).ok());
  EXPECT_TRUE(instantiate().ok());
  EXPECT_EQ(set_array_node(array_at(1, 49, 4), memory_at(kBase)).code(), CUDA_ERROR_INVALID_VALUE);
  EXPECT_TRUE(launch_graph().ok()) << "with the node as it was";
}

TEST_F(GraphArrayTest, MemoryBesideItsArrayIsTheSessions) {
  const uint64_t end = kBase + wire::kMemoryGranularity;
  begin();
  EXPECT_TRUE(array_node(array_at(1, 0, 0), memory_at(end - 3 * 64 - 15)).ok());
  EXPECT_EQ(instantiate().code(), CUDA_ERROR_INVALID_VALUE) << "one byte too far";
  begin();
  EXPECT_TRUE(array_node(array_at(1, 0, 0), memory_at(end - 3 * 64 - 16)).ok());
  EXPECT_TRUE(instantiate().ok());
  EXPECT_EQ(set_array_node(memory_at(kBase - 1), array_at(1, 0, 0)).code(),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_TRUE(launch_graph().ok());
  EXPECT_TRUE(send(wire::MemoryUnmap{kBase, wire::kMemoryGranularity, 0, 0}).ok());
  EXPECT_EQ(launch_graph().code(), CUDA_ERROR_INVALID_VALUE) << "its memory is gone";
}

TEST_F(GraphArrayTest, ArraysThatAreNotThereAreViolations) {
  create_array(2);
  EXPECT_TRUE(destroy_array(2).ok());
  begin();
  for (const wire::Id wrong : {2u, 3u, 0xffffffffu}) {  // stale, never made, no id
    EXPECT_TRUE(is_violation(array_node(array_at(wrong, 0, 0), memory_at(kBase)))) << wrong;
    EXPECT_TRUE(is_violation(array_node(memory_at(kBase), array_at(wrong, 0, 0)))) << wrong;
  }
  wire::ArrayCopy ragged{0, 0, array_at(1, 0, 0), memory_at(kBase), 16, 4, 2};
  ragged.source.slice = 100;
  EXPECT_TRUE(is_violation(node(GraphNodeKind::kArrayCopy, text_of(ragged))))
      << "a slice of no whole rows";
  EXPECT_TRUE(is_violation(node(GraphNodeKind::kArrayCopy, text_of(ragged).substr(0, 100))));
  EXPECT_TRUE(array_node(array_at(1, 0, 0), memory_at(kBase)).ok());
  EXPECT_TRUE(instantiate().ok());
  EXPECT_TRUE(is_violation(set_array_node(array_at(2, 0, 0), memory_at(kBase))));
  // An array of another session has another session's id.
  SessionInfo info;
  info.id = 2;
  info.window = kWindow + 1;
  SessionParts other(driver_.table(), *devices_, gate_, worker_parts_, info);
  wire::ArrayCreate array{7, 0, 64, 8, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0, 0};
  EXPECT_TRUE(other.arrays.handle(array).ok());
  begin();
  EXPECT_TRUE(is_violation(array_node(array_at(7, 0, 0), memory_at(kBase))));
  other.release();
}

TEST_F(GraphArrayTest, AnArrayLivesAsLongAsItsGraph) {
  const uint64_t granted = session_->memory.granted(0);
  begin();
  EXPECT_TRUE(array_node(array_at(1, 0, 0), memory_at(kBase)).ok());
  EXPECT_TRUE(instantiate().ok());
  EXPECT_TRUE(destroy_array(1).ok());
  calls();
  EXPECT_TRUE(launch_graph().ok());
  EXPECT_EQ(calls().back(), "graph s1");
  EXPECT_EQ(session_->memory.granted(0), granted) << "and counts";
  EXPECT_TRUE(is_violation(destroy_array(1)));
  // Another array in its place is not what the graph holds.
  create_array(1);
  EXPECT_TRUE(set_array_node(array_at(1, 0, 0), memory_at(kBase)).ok());
  Calls made = calls();
  ASSERT_GE(made.size(), 3u);
  EXPECT_EQ(made.at(made.size() - 3), "set copy of 16x4x1 from memory to a2 at 0,0,0");
  EXPECT_EQ(made.at(made.size() - 2), "refresh copy");
  EXPECT_EQ(made.back(), "destroy array") << "the node was the last to hold it";
  EXPECT_TRUE(destroy_array(1).ok());
  calls();
  EXPECT_TRUE(send(wire::GraphExecDestroy{1}).ok());
  EXPECT_EQ(calls(), (Calls{"destroy exec", "destroy graph", "destroy array"}));
  EXPECT_LT(session_->memory.granted(0), granted);
}

TEST_F(GraphTest, ForeignMemoryFailsTheInstantiation) {
  begin();
  EXPECT_TRUE(node(GraphNodeKind::kEmpty, "").ok());
  EXPECT_TRUE(node(GraphNodeKind::kFill, fill(kBase + wire::kMemoryGranularity - 4, 2)).ok());
  EXPECT_TRUE(node(GraphNodeKind::kEmpty, "").ok());
  EXPECT_EQ(instantiate().code(), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(reply<wire::GraphInstantiate::Reply>().failed_node, 1u);
  EXPECT_TRUE(is_violation(launch_graph())) << "there is none";
}

TEST_F(GraphTest, WhatIsGoneIsNotLaunched) {
  begin();
  EXPECT_TRUE(node(GraphNodeKind::kFill, fill(kBase, 16)).ok());
  EXPECT_TRUE(instantiate().ok());
  EXPECT_TRUE(launch_graph().ok());
  EXPECT_TRUE(send(wire::MemoryUnmap{kBase, wire::kMemoryGranularity, 0, 0}).ok());
  EXPECT_EQ(launch_graph().code(), CUDA_ERROR_INVALID_VALUE);
  map(kBase, wire::kMemoryGranularity);
  EXPECT_TRUE(launch_graph().ok());

  EXPECT_TRUE(send(wire::GraphExecDestroy{1}).ok());
  begin();
  EXPECT_TRUE(node(GraphNodeKind::kKernel, kernel()).ok());
  EXPECT_TRUE(instantiate().ok());
  EXPECT_TRUE(launch_graph().ok());
  EXPECT_TRUE(send(wire::ModuleUnload{1}).ok());
  EXPECT_EQ(launch_graph().code(), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(GraphTest, GraphsWithHandlesKeepTheirNodes) {
  const uint64_t loop = condition();
  EXPECT_EQ(calls(), (Calls{"graph", "handle 1"}));
  const auto describe = [&](uint64_t to) {
    EXPECT_TRUE(begin_kept().ok());
    EXPECT_TRUE(node(GraphNodeKind::kConditional, conditional(loop, 1, 1)).ok());
    EXPECT_TRUE(node(GraphNodeKind::kFill, fill(to, 16), {}, 1).ok());
    EXPECT_TRUE(node(GraphNodeKind::kEmpty, "", {kFirst}).ok());
  };
  describe(kBase);
  EXPECT_TRUE(instantiate().ok());
  EXPECT_EQ(calls(),
            (Calls{"conditional 1 behind 0", "fill behind 0", "empty behind 1", "instantiate"}));
  EXPECT_TRUE(send(wire::GraphExecDestroy{1}).ok());
  EXPECT_EQ(calls(), Calls{"destroy exec"});

  // The second time the driver's nodes are there.
  describe(kBase + 64);
  EXPECT_TRUE(instantiate().ok());
  EXPECT_EQ(calls(), (Calls{"refresh fill", "instantiate"}));
  EXPECT_TRUE(begin_kept().ok());
  EXPECT_TRUE(node(GraphNodeKind::kConditional, conditional(loop, 1, 1)).ok());
  EXPECT_EQ(send(wire::GraphUpdate{1}).code(), CUDA_ERROR_NOT_SUPPORTED);

  // The executable graph outlives the client's graph.
  EXPECT_TRUE(send(wire::GraphForget{5}).ok());
  EXPECT_TRUE(launch_graph().ok());
  calls();
  EXPECT_TRUE(send(wire::GraphExecDestroy{1}).ok());
  EXPECT_EQ(calls(), (Calls{"destroy exec", "destroy graph"}));
}

// They wait for a moment that others find; only when they have many nodes is one looked for.
TEST_F(GraphTest, AQuietMomentIsLookedForWhenManyNodesLeave) {
  const auto leave = [&] {
    begin();
    for (int i = 0; i < 5000; ++i) ASSERT_TRUE(node(GraphNodeKind::kEmpty, "").ok());
    EXPECT_TRUE(instantiate().ok());
    EXPECT_TRUE(send(wire::GraphExecDestroy{1}).ok());
  };
  driver_.hold(1, true);
  launch(1);
  leave();
  EXPECT_FALSE(gate_.is_collecting());
  leave();
  EXPECT_TRUE(gate_.is_collecting());
  EXPECT_NE(driver_.live().find("execs 2"), std::string::npos) << driver_.live();
  driver_.hold(1, false);
  while (gate_.is_collecting()) usleep(1000);
  EXPECT_EQ(driver_.live().find("execs"), std::string::npos) << driver_.live();
}

TEST_F(GraphTest, AnotherShapeIsRefused) {
  const uint64_t choice = condition();
  EXPECT_TRUE(begin_kept().ok());
  EXPECT_TRUE(node(GraphNodeKind::kConditional, conditional(choice, 0, 2)).ok());
  EXPECT_TRUE(node(GraphNodeKind::kEmpty, "", {}, 2).ok());
  EXPECT_TRUE(instantiate().ok());
  EXPECT_TRUE(send(wire::GraphExecDestroy{1}).ok());
  EXPECT_TRUE(begin_kept().ok());
  EXPECT_TRUE(node(GraphNodeKind::kConditional, conditional(choice, 0, 2)).ok());
  EXPECT_TRUE(node(GraphNodeKind::kEmpty, "", {}, 1).ok()) << "reported by what uses it";
  EXPECT_EQ(instantiate().code(), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(reply<wire::GraphInstantiate::Reply>().failed_node, 1u);
}

TEST_F(GraphTest, ConditionalNodesAreNotTrusted) {
  const uint64_t handle = condition();
  const auto conditional_node = [&](uint64_t with, uint32_t type, uint32_t bodies,
                                    uint32_t parent = 0) {
    return node(GraphNodeKind::kConditional, conditional(with, type, bodies), {}, parent);
  };
  EXPECT_TRUE(is_violation(send(wire::GraphForget{6})));
  EXPECT_TRUE(is_violation(send(wire::ConditionCreate{0, 0, 0, 0})));
  EXPECT_TRUE(is_violation(send(wire::ConditionCreate{5, 9, 0, 0})));
  EXPECT_TRUE(is_violation(send(wire::GraphBegin{1, 0, 6})));
  begin();
  EXPECT_TRUE(is_violation(conditional_node(handle, 0, 1))) << "the handle is another graph's";
  EXPECT_TRUE(begin_kept().ok());
  EXPECT_TRUE(is_violation(conditional_node(handle + 1, 0, 1))) << "no such handle";
  EXPECT_TRUE(is_violation(conditional_node(handle, 0, 3))) << "an if has two bodies at most";
  EXPECT_TRUE(is_violation(conditional_node(handle, 1, 2))) << "a loop has one";
  EXPECT_TRUE(is_violation(conditional_node(handle, 2, 0)));
  EXPECT_TRUE(is_violation(conditional_node(handle, 2, wire::kMaxConditionalBodies + 1)));
  EXPECT_TRUE(is_violation(conditional_node(handle, 3, 1))) << "no such type";
  EXPECT_TRUE(is_violation(node(GraphNodeKind::kEmpty, "", {}, 1))) << "no such body yet";
  EXPECT_TRUE(conditional_node(handle, 0, 1).ok());
  EXPECT_TRUE(is_violation(conditional_node(handle, 0, 1))) << "it has a node";
  EXPECT_TRUE(is_violation(node(GraphNodeKind::kEmpty, "", {kFirst}, 1))) << "an edge outwards";
  EXPECT_TRUE(is_violation(node(GraphNodeKind::kHostCall,
                                text_of(wire::HostFunction{0, 3, 0, wire::kNoFence, 0}), {}, 1)))
      << "not permitted in a body";
}

TEST_F(GraphTest, ConditionalNodesNestSoDeep) {
  EXPECT_TRUE(begin_kept().code() == CUDA_ERROR_MPS_RPC_FAILURE) << "no handle yet";
  std::vector<uint64_t> handles;
  for (uint32_t i = 0; i <= wire::kMaxConditionalDepth; ++i) handles.push_back(condition());
  EXPECT_TRUE(begin_kept().ok());
  for (uint32_t i = 0; i < handles.size(); ++i) {
    EXPECT_TRUE(node(GraphNodeKind::kConditional, conditional(handles[i], 0, 1), {}, i).ok());
  }
  EXPECT_EQ(instantiate().code(), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(reply<wire::GraphInstantiate::Reply>().failed_node, wire::kMaxConditionalDepth);
}

TEST_F(GraphTest, BrokenDescriptionsAreViolations) {
  EXPECT_TRUE(is_violation(node(GraphNodeKind::kEmpty, ""))) << "outside of a description";
  EXPECT_TRUE(is_violation(send(wire::GraphBegin{1, 9}))) << "no device 9";
  begin();
  EXPECT_TRUE(is_violation(node(GraphNodeKind::kEmpty, "", {kFirst}))) << "behind a later node";
  EXPECT_TRUE(is_violation(node(GraphNodeKind::kEmpty, "12345678"))) << "a body too long";
  EXPECT_TRUE(is_violation(node(GraphNodeKind::kFill, "12345678"))) << "a body too short";
  EXPECT_TRUE(is_violation(node(static_cast<GraphNodeKind>(99), ""))) << "no such kind";
  EXPECT_TRUE(is_violation(
      node(GraphNodeKind::kHostCall, text_of(wire::HostFunction{0, 99999, 0, wire::kNoFence, 0}))));
  EXPECT_TRUE(is_violation(node(GraphNodeKind::kEventWait, text_of(wire::GraphEvent{7}))));
  EXPECT_TRUE(is_violation(node(GraphNodeKind::kValues, "")));
  wire::Launch launch = launch_of(0);
  launch.function = 7;
  EXPECT_TRUE(is_violation(node(GraphNodeKind::kKernel, text_of(launch) + std::string(16, '\0'))));
  launch = launch_of(0);
  launch.attribute_count = 1000;
  EXPECT_TRUE(is_violation(node(GraphNodeKind::kKernel, text_of(launch) + std::string(16, '\0'))));
  EXPECT_TRUE(is_violation(send(wire::GraphLaunch{1, 1})));
}

}  // namespace
}  // namespace openmps::worker
