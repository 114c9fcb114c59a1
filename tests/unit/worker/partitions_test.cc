// SPDX-License-Identifier: Apache-2.0
// Sessions that are limited to a part of the device: which SMs they get, and that all their kernels
// stay there.
#include "session_fixture.h"
#include "worker/device/cold_lane.h"

namespace openmps::worker {
namespace {

SmGroups groups(std::initializer_list<size_t> numbers) {
  SmGroups made;
  for (const size_t number : numbers) made.set(number);
  return made;
}

TEST(SmGroups, ThoseThatFewestHave) {
  EXPECT_EQ(least_used(std::vector<uint32_t>{0, 0, 0, 0}, 2), groups({0, 1}));
  EXPECT_EQ(least_used(std::vector<uint32_t>{1, 1, 0, 0}, 2), groups({2, 3}));
  EXPECT_EQ(least_used(std::vector<uint32_t>{1, 1, 0, 0}, 3), groups({0, 2, 3}));
  EXPECT_EQ(least_used(std::vector<uint32_t>{2, 1, 2, 1}, 2), groups({1, 3}));
  EXPECT_EQ(least_used(std::vector<uint32_t>{0, 0}, 5), groups({0, 1}));
}

class PartitionTest : public SessionFixture {
 protected:
  [[nodiscard]] uint32_t sms() const override { return 6; }
  std::shared_ptr<const SmPartition> take(uint32_t sms) {
    auto taken = commons_.partitions->take(0, sms, commons_.descriptors, gate_, nullptr);
    EXPECT_TRUE(taken.ok()) << taken.status().message();
    return taken.ok() ? *taken : nullptr;
  }
};

TEST_F(PartitionTest, ThoseThatOverlapLeast) {
  const auto first = take(8), second = take(8), third = take(4);
  EXPECT_EQ(first->groups, groups({0, 1, 2, 3}));
  EXPECT_EQ(second->groups, groups({4, 5, 6, 7}));
  EXPECT_EQ(third->groups, groups({0, 1}));
  EXPECT_EQ(first->sms, 8u);
  EXPECT_EQ(take(4)->groups, groups({2, 3})) << "what two have is had already";
}

TEST_F(PartitionTest, EqualSetsAreOneGreenContext) {
  const auto first = take(16), second = take(16);
  EXPECT_EQ(first->handle, second->handle);
  EXPECT_NE(driver_.live().find("greens 1"), std::string::npos) << driver_.live();
}

TEST_F(PartitionTest, SomeAreKeptForWhoComesNext) {
  const CUgreenCtx first = take(6)->handle;
  EXPECT_EQ(take(6)->handle, first);
  std::vector<std::shared_ptr<const SmPartition>> many;
  for (const uint32_t sms : {2, 4, 8, 10, 12, 14, 6, 2, 8, 4, 10, 14, 6, 12}) {
    many.push_back(take(sms));
  }
  many.clear();
  EXPECT_NE(driver_.live().find("greens 8"), std::string::npos) << driver_.live();
}

TEST_F(PartitionTest, WhatFailsIsHadByNobody) {
  driver_.fail("green", CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(commons_.partitions->take(0, 6, commons_.descriptors, gate_, nullptr).status().code(),
            CUDA_ERROR_OUT_OF_MEMORY);
  driver_.fail("green", CUDA_SUCCESS);
  EXPECT_EQ(take(6)->groups, groups({0, 1, 2}));
}

TEST_F(PartitionTest, StreamsAreInTheSessionsPart) {
  create_stream(1, wire::StreamKind::kLegacy);
  create_stream(2, wire::StreamKind::kNonBlocking);
  load_module();
  launch(1);
  launch(2);
  EXPECT_EQ(calls(), (Calls{"stream in g1", "launch s1 16", "stream in g1", "launch s2 16"}));
}

TEST_F(PartitionTest, SoAreKernelsOfGraphs) {
  load_module();
  EXPECT_TRUE(send(wire::GraphBegin{1, 0}).ok());
  calls();
  const wire::Launch launch = launch_of(0);
  const std::string body(reinterpret_cast<const char*>(&launch), sizeof launch);
  EXPECT_TRUE(send(wire::GraphNode{1, wire::GraphNodeKind::kKernel, 0,
                                   static_cast<uint32_t>(body.size() + 16), 0},
                   body + std::string(16, '\0'))
                  .ok());
  const Calls made = calls();
  EXPECT_EQ(made.back(), "kernel in g1 behind 0") << ::testing::PrintToString(made);
}

TEST_F(PartitionTest, ItsPartIsTheDeviceThatItCanSplit) {
  EXPECT_TRUE(send(wire::DeviceResource{0, 0, CU_DEV_RESOURCE_TYPE_SM}).ok());
  EXPECT_EQ(reply<wire::DeviceResource::Reply>().resource._internal_padding[1], 1) << "that of g1";
}

// The cold lane's context has all SMs.
TEST_F(PartitionTest, ItsCodeWaitsForTheMainContext) {
  commons_.cold = std::make_unique<ColdLanes>(driver_.table(), *devices_, commons_.limits);
  commons_.cold->share();
  CUstream busy = nullptr;
  driver_.table().cuStreamCreateWithPriority(&busy, CU_STREAM_NON_BLOCKING, 0);
  driver_.hold(1, true);
  driver_.table().cuMemcpyAsync(0, 0, 1, busy);
  ContextGate::Stream* neighbour = gate_.add(busy, 0);
  neighbour->set_busy();
  EXPECT_TRUE(send(wire::BlobBegin{4, 1}).ok());
  memcpy(session_->core.view.staging(), "code", 4);
  EXPECT_TRUE(send(wire::BlobData{1, 4, 0, kStaging}).ok());
  session_->stop = true;
  EXPECT_EQ(send(wire::ModuleLoad{1, 1, 0, wire::ModuleKind::kModule, 0, 0}).code(),
            CUDA_ERROR_NOT_READY);
  session_->stop = false;
  driver_.hold(1, false);
  gate_.remove(neighbour);
  driver_.table().cuStreamDestroy_v2(busy);
  session_->release();
  commons_.cold.reset();
}

class WholePartitionTest : public SessionFixture {
 protected:
  [[nodiscard]] uint32_t sms() const override { return kFakeSms; }
};

TEST_F(WholePartitionTest, AllSmsAreNoPart) {
  create_stream(1, wire::StreamKind::kNonBlocking);
  load_module();
  launch(1);
  EXPECT_EQ(calls(), (Calls{"stream 0", "launch s1 16"}));
}

}  // namespace
}  // namespace openmps::worker
