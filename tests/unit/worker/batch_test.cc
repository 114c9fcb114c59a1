// SPDX-License-Identifier: Apache-2.0
// Launches that have piled up go together, in the program's order, and as they were given.
#include <algorithm>

#include "session_fixture.h"
#include "wire/commands/green.h"

namespace openmps::worker {
namespace {

using wire::StreamKind;

class BatchTest : public SessionFixture {
 protected:
  static constexpr uint64_t kMuch = 1 << 16;  // of commands at hand

  void prepare() override { worker_parts_.performance.budgets = true; }
  void SetUp() override {
    SessionFixture::SetUp();
    load_module();
    create_stream(1, StreamKind::kNonBlocking);
    create_stream(2, StreamKind::kNonBlocking);
    EXPECT_TRUE(send(wire::EventCreate{1, 0, 0}).ok());
    launch(1);
    launch(2);
    EXPECT_TRUE(send(wire::Fence{1, 0, 1}).ok());
    EXPECT_TRUE(send(wire::Fence{2, 1, 1}).ok());
    teach(1'000);
    session_->submitter.note_ahead(kMuch);
    calls();
  }
  // The kernel takes so long.
  void teach(uint64_t ns) {
    const uint32_t number = session_->modules.functions().find(1)->duration(1);
    session_->streams.durations.learn({&number, 1}, {Durations::kUnknownNs, ns, ns});
    const uint64_t known = session_->streams.durations.of({.learnt = number});
    session_->streams.durations.learn({&number, 1}, {known, ns, ns});
  }
  void launch_with(wire::Id stream, char parameter) {
    EXPECT_TRUE(send(launch_of(stream), std::string(16, parameter)).ok());
  }
  // Without marks, and what graphs are made of.
  Calls submitted() {
    Calls all = calls();
    std::erase_if(all, [](const std::string& call) {
      return call.rfind("launch", 0) != 0 && call.rfind("graph s", 0) != 0 &&
             call.rfind("write", 0) != 0 && call.rfind("set", 0) != 0;
    });
    return all;
  }
};

// It may be destroyed before a chain of it.
TEST_F(BatchTest, NotThoseInAGreenContextOfTheClient) {
  EXPECT_TRUE(send(wire::DeviceResource{0, 0, CU_DEV_RESOURCE_TYPE_SM}).ok());
  const auto resource = reply<wire::DeviceResource::Reply>().resource;
  EXPECT_TRUE(send(wire::ResourceDescribe{1, 1},
                   std::string(reinterpret_cast<const char*>(&resource), sizeof resource))
                  .ok());
  EXPECT_TRUE(send(wire::GreenCreate{1, 1, 0, CU_GREEN_CTX_DEFAULT_STREAM}).ok());
  EXPECT_TRUE(send(wire::StreamCreate{3, 1, 0, StreamKind::kNonBlocking, 0, 1}).ok());
  for (int i = 0; i < 32; ++i) launch_with(3, 'a');
  session_->submitter.end_batch();
  EXPECT_EQ(submitted(), Calls(32, "launch s3 16"));
}

class LimitedBatchTest : public BatchTest {
 protected:
  [[nodiscard]] uint32_t sms() const override { return 6; }
};

TEST_F(LimitedBatchTest, AChainIsInTheSessionsPart) {
  for (int i = 0; i < 32; ++i) launch_with(1, 'a');
  session_->submitter.end_batch();
  Calls made = calls();
  EXPECT_EQ(std::ranges::count(made, "graph s1"), 1);
  EXPECT_EQ(std::ranges::count_if(
                made, [](const std::string& call) { return call.starts_with("kernel in g1"); }),
            32);
}

TEST_F(BatchTest, ManyGoAsChains) {
  for (int i = 0; i < 32 + 16 + 8 + 2; ++i) launch_with(1, 'a');
  EXPECT_EQ(submitted(), Calls{"graph s1"}) << "the longest chain is full";
  session_->submitter.end_batch();
  EXPECT_EQ(submitted(), (Calls{"graph s1", "graph s1", "launch s1 16", "launch s1 16"}));
  session_->submitter.end_batch();
  EXPECT_EQ(submitted(), Calls{});
}

TEST_F(BatchTest, FewGoAsTheyAre) {
  for (int i = 0; i < 3; ++i) launch_with(1, static_cast<char>('a' + i));
  EXPECT_EQ(submitted(), Calls{});
  EXPECT_TRUE(send(wire::Fence{1, 0, 2}).ok());
  EXPECT_EQ(submitted(), (Calls{"launch s1 16", "launch s1 16", "launch s1 16", "write s1 2"}));
  EXPECT_EQ(driver_.parameters, std::string(16, 'c'));
}

TEST_F(BatchTest, WithoutMoreAtHandEachGoesAtOnce) {
  session_->submitter.note_ahead(100);
  launch_with(1, 'a');
  EXPECT_EQ(submitted(), Calls{"launch s1 16"});
}

TEST_F(BatchTest, WhatComesNextComesBehind) {
  launch_with(1, 'a');
  launch_with(2, 'b');
  EXPECT_EQ(submitted(), Calls{"launch s1 16"});
  EXPECT_TRUE(send(wire::EventRecord{1, 2, wire::kNoFence, 0, 0}).ok());
  const Calls all = calls();
  const auto launched = std::find(all.begin(), all.end(), "launch s2 16");
  ASSERT_NE(launched, all.end());
  EXPECT_NE(std::find_if(launched, all.end(),
                         [](const auto& call) { return call.rfind("record", 0) == 0; }),
            all.end());
}

TEST_F(BatchTest, NodesAreSetWhereTheyDiffer) {
  for (int round = 0; round < 2; ++round) {  // makes both chains
    for (int i = 0; i < 8; ++i) launch_with(1, 'a');
    session_->submitter.end_batch();
  }
  submitted();
  for (int i = 0; i < 8; ++i) launch_with(1, i < 3 ? 'b' : 'a');
  session_->submitter.end_batch();
  EXPECT_EQ(submitted(), (Calls{"set kernel", "set kernel", "set kernel", "graph s1"}));
}

TEST_F(BatchTest, WhatTheDriverRefusesGoesOneByOne) {
  for (int i = 0; i < 8; ++i) launch_with(1, 'a');
  driver_.fail("instantiate", CUDA_ERROR_OUT_OF_MEMORY);
  session_->submitter.end_batch();
  EXPECT_EQ(submitted(), Calls(8, "launch s1 16"));
  driver_.fail("instantiate", CUDA_SUCCESS);
  EXPECT_FALSE(session_->submitter.has_progress()) << "nothing has failed";
}

TEST_F(BatchTest, AnErrorIsToldAsTheLaunchs) {
  for (int i = 0; i < 3; ++i) launch_with(1, 'a');
  driver_.fail("launch", CUDA_ERROR_INVALID_VALUE);
  session_->submitter.end_batch();
  driver_.fail("launch", CUDA_SUCCESS);
  ASSERT_TRUE(session_->submitter.has_progress());
  const Submitter::Progress progress = session_->submitter.take_progress();
  EXPECT_EQ(progress.failed, wire::Opcode::kLaunch);
  EXPECT_EQ(progress.status.code(), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(BatchTest, LongKernelsGoByThemselves) {
  teach(Batch::kLongestNs * 2);
  launch_with(1, 'a');
  EXPECT_EQ(submitted(), Calls{"launch s1 16"});
}

TEST_F(BatchTest, AModuleThatGoesTakesTheChainsWithIt) {
  for (int i = 0; i < 8; ++i) launch_with(1, 'a');
  session_->submitter.end_batch();
  EXPECT_NE(driver_.live().find("execs 1"), std::string::npos);
  EXPECT_TRUE(send(wire::ModuleUnload{1}).ok());
  EXPECT_EQ(driver_.live().find("execs"), std::string::npos);
}

TEST_F(BatchTest, AFunctionThatChangesIsSetInNoChainAgain) {
  for (int i = 0; i < 8; ++i) launch_with(1, 'a');
  session_->submitter.end_batch();
  EXPECT_TRUE(send(wire::FunctionSetAttribute{1, wire::FunctionSetting{}, 8, 4096, 0}).ok());
  EXPECT_EQ(driver_.live().find("execs"), std::string::npos);
}

// The driver would have the session's thread wait for them.
TEST_F(BatchTest, ChainsOfAContextThatIsResetOutliveTheirLaunches) {
  driver_.hold(1, true);
  for (int i = 0; i < 8; ++i) launch_with(1, 'a');
  session_->submitter.end_batch();
  EXPECT_TRUE(send(wire::ContextReset{1, 0}).ok());
  EXPECT_NE(driver_.live().find("execs 1"), std::string::npos);
  driver_.hold(1, false);
  session_->core.releases.sweep();
  EXPECT_EQ(driver_.live().find("execs"), std::string::npos);
}

TEST_F(BatchTest, WhatEndsWithTheClientIsNotSubmitted) {
  launch_with(1, 'a');
  session_->drain();
  EXPECT_EQ(submitted(), Calls{});
}

TEST_F(BatchTest, HeldWorkGoesAsChains) {
  session_->submitter.note_ahead(0);
  driver_.hold(1, true);
  for (uint32_t i = 0; i < kBudgetItems + 40; ++i) launch_with(1, 'a');
  EXPECT_EQ(session_->backlog.size(), 40u);
  submitted();
  session_->submitter.flush();
  EXPECT_EQ(submitted(), (Calls{"graph s1", "graph s1"}));
  driver_.hold(1, false);
}

}  // namespace
}  // namespace openmps::worker
