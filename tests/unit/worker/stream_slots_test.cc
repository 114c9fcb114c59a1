// SPDX-License-Identifier: Apache-2.0
// Room for streams: what is taken, what is left to others, and of how many branches the graph is
// that makes more.
#include "worker/device/stream_slots.h"

#include <gtest/gtest.h>

#include <vector>

namespace openmps::worker {
namespace {

// What the driver was asked to instantiate, by nodes.
struct Made {
  std::vector<uint32_t> graphs;
  uint32_t nodes = 0;
  CUresult result = CUDA_SUCCESS;
  int live = 0;  // graphs, executable ones and allocations
} made;

DriverTable fake_table() {
  DriverTable t{};
  t.cuCtxPushCurrent_v2 = [](CUcontext) { return CUDA_SUCCESS; };
  t.cuCtxPopCurrent_v2 = [](CUcontext*) { return CUDA_SUCCESS; };
  t.cuMemAlloc_v2 = [](CUdeviceptr* address, size_t) {
    *address = 0x1000;
    return ++made.live, CUDA_SUCCESS;
  };
  t.cuMemFree_v2 = [](CUdeviceptr) { return --made.live, CUDA_SUCCESS; };
  t.cuGraphCreate = [](CUgraph* graph, unsigned) {
    *graph = reinterpret_cast<CUgraph>(&made);
    made.nodes = 0;
    return ++made.live, CUDA_SUCCESS;
  };
  t.cuGraphDestroy = [](CUgraph) { return --made.live, CUDA_SUCCESS; };
  t.cuGraphAddMemsetNode = [](CUgraphNode*, CUgraph, const CUgraphNode*, size_t before,
                              const CUDA_MEMSET_NODE_PARAMS*, CUcontext) {
    EXPECT_EQ(before, 0u);
    return ++made.nodes, CUDA_SUCCESS;
  };
  t.cuGraphInstantiateWithFlags = [](CUgraphExec* exec, CUgraph, unsigned long long) {
    if (made.result != CUDA_SUCCESS) return made.result;
    made.graphs.push_back(made.nodes);
    *exec = reinterpret_cast<CUgraphExec>(&made);
    return ++made.live, CUDA_SUCCESS;
  };
  t.cuGraphExecDestroy = [](CUgraphExec) { return --made.live, CUDA_SUCCESS; };
  return t;
}

class StreamSlotsTest : public ::testing::Test {
 protected:
  void SetUp() override { made = {}; }
  void TearDown() override { EXPECT_EQ(made.live, 0); }
  const CUcontext context_ = reinterpret_cast<CUcontext>(&made);
  const DriverTable table_ = fake_table();
  const std::shared_ptr<StreamSlots> slots_ = std::make_shared<StreamSlots>();
};

TEST_F(StreamSlotsTest, TakenAsLongAsTheyAreHeld) {
  EXPECT_FALSE(slots_->are_counted());
  EXPECT_EQ(slots_->take(1), nullptr);
  ASSERT_EQ(slots_->grow(table_, context_, 8), CUDA_SUCCESS);
  EXPECT_TRUE(slots_->are_counted());
  StreamSlot six = slots_->take(6);
  ASSERT_NE(six, nullptr);
  EXPECT_EQ(slots_->take(3), nullptr);
  EXPECT_EQ(slots_->take_spare(1), nullptr);  // a quarter is left to others
  StreamSlot two = slots_->take(2);
  EXPECT_NE(two, nullptr);
  EXPECT_EQ(slots_->take(1), nullptr);
  const StreamSlot anyhow = slots_->take_anyhow(1);
  six.reset();
  EXPECT_NE(slots_->take(5), nullptr);
}

// What the driver has free would come first.
TEST_F(StreamSlotsTest, MadeBesideThoseThatAreFree) {
  ASSERT_EQ(slots_->grow(table_, context_, 8), CUDA_SUCCESS);
  const StreamSlot some = slots_->take(5);
  ASSERT_EQ(slots_->grow(table_, context_, 16), CUDA_SUCCESS);
  EXPECT_EQ(made.graphs, (std::vector<uint32_t>{8, 3 + 16}));
  EXPECT_NE(slots_->take(19), nullptr);
}

TEST_F(StreamSlotsTest, OneMakesThemForAll) {
  ASSERT_EQ(slots_->grow(table_, context_, 4), CUDA_SUCCESS);
  EXPECT_FALSE(slots_->begin_to_grow());
  const StreamSlot all = slots_->take(4);
  EXPECT_TRUE(slots_->begin_to_grow());
  EXPECT_FALSE(slots_->begin_to_grow());
  slots_->end_growing();
  EXPECT_TRUE(slots_->begin_to_grow());
  ASSERT_EQ(slots_->grow(table_, context_), CUDA_SUCCESS);
  EXPECT_EQ(made.graphs, (std::vector<uint32_t>{4, StreamSlots::kMore}));
  EXPECT_FALSE(slots_->are_short());
}

// Who comes next finds room, however many have come before there was a moment to make some.
TEST_F(StreamSlotsTest, OnceIsEnoughForACrowd) {
  ASSERT_EQ(slots_->grow(table_, context_, 512), CUDA_SUCCESS);
  const StreamSlot crowd = slots_->take_anyhow(1000);
  ASSERT_EQ(slots_->grow(table_, context_), CUDA_SUCCESS);
  EXPECT_FALSE(slots_->are_short());
  EXPECT_NE(slots_->take_spare(100), nullptr);
  EXPECT_EQ(made.graphs, (std::vector<uint32_t>{512, 1500 - 512}));
}

TEST_F(StreamSlotsTest, NoneAreMadeWhereTheDriverRefuses) {
  made.result = CUDA_ERROR_OUT_OF_MEMORY;
  EXPECT_EQ(slots_->grow(table_, context_, 8), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_FALSE(slots_->are_counted());
  EXPECT_EQ(slots_->grow(DriverTable{}, nullptr, 8), CUDA_ERROR_NOT_SUPPORTED);
}

}  // namespace
}  // namespace openmps::worker
