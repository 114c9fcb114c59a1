// SPDX-License-Identifier: Apache-2.0
// Sessions of a group and the device memory that they may have together: exact, given back, changed
// while they run. The SMs that they have together are in partitions_test.cc.
#include <atomic>
#include <thread>
#include <vector>

#include "session_fixture.h"
#include "worker/partitions/session_group.h"
#include "worker_fixture.h"

namespace openmps::worker {
namespace {

constexpr uint64_t kTogether = 8 * kUnit;

TEST(SessionGroup, TwoThatAskAtOnceNeverPassItsMemory) {
  SessionGroup group;
  constexpr uint64_t kMost = 1000;
  constexpr int kThreads = 4, kRounds = 20'000;
  group.set_memory_limit(1, kMost);
  std::atomic<bool> passed{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, bytes = uint64_t{300} + i] {
      for (int round = 0; round < kRounds; ++round) {
        if (!group.take_memory(1, bytes)) continue;
        if (group.memory(1) > kMost) passed = true;
        group.give_back_memory(1, bytes);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(passed);
  EXPECT_EQ(group.memory(1), 0u);
}

// Two members; the first has a limit of its own.
class GroupMemoryTest : public SessionFixture {
 protected:
  void describe(SessionInfo& info) const override { info.group = group_; }
  void SetUp() override {
    set_limit(kTogether);
    SessionFixture::SetUp();
    SessionInfo info;
    info.id = 2;
    info.window = kWindow + 1;
    describe(info);
    other_ = std::make_unique<SessionParts>(driver_.table(), *devices_, gate_, worker_parts_,
                                            std::move(info));
  }
  void TearDown() override {
    if (other_ != nullptr) other_->release();
    SessionFixture::TearDown();
    EXPECT_EQ(group_->memory(0), 0u);
  }
  CUresult map_other(uint64_t units, uint64_t at = 0) {
    return send_to(*other_, wire::MemoryMap{kThere + at * kUnit, units * kUnit, 0}).code();
  }
  CUresult map_own(uint64_t units, uint64_t at = 0) {
    return send(wire::MemoryMap{kBase + at * kUnit, units * kUnit, 0}).code();
  }
  wire::MemoryInfo::Reply info_of(SessionParts& session) {
    EXPECT_TRUE(send_to(session, wire::MemoryInfo{0}).ok());
    return reply<wire::MemoryInfo::Reply>();
  }
  void set_limit(uint64_t bytes) { group_->set_memory_limit(0, bytes); }

  static constexpr uint64_t kThere = wire::window_base(kWindow + 1);
  const std::shared_ptr<SessionGroup> group_ = std::make_shared<SessionGroup>();
  std::unique_ptr<SessionParts> other_;
};

TEST_F(GroupMemoryTest, CountsTogether) {
  EXPECT_EQ(map_own(5), CUDA_SUCCESS);
  EXPECT_EQ(map_other(4), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(map_other(2), CUDA_SUCCESS);
  EXPECT_EQ(info_of(*other_).total, kTogether);
  EXPECT_EQ(info_of(*other_).free, kUnit);
  EXPECT_EQ(info_of(*session_).free, kUnit);
  EXPECT_EQ(map_own(1, 5), CUDA_SUCCESS);
  EXPECT_EQ(map_own(1, 6), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(map_other(1, 2), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_TRUE(send(wire::MemoryUnmap{kBase, 5 * kUnit, 0, 0}).ok());
  EXPECT_EQ(map_other(6, 2), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(map_other(5, 2), CUDA_SUCCESS) << "what the first has freed";
  EXPECT_EQ(group_->memory(0), kTogether);
}

TEST_F(GroupMemoryTest, IsExactToTheByte) {
  EXPECT_TRUE(session_->memory.charge(0, 3).ok());
  EXPECT_EQ(other_->memory.charge(0, kTogether - 2).code(), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_TRUE(other_->memory.charge(0, kTogether - 3).ok());
  EXPECT_EQ(session_->memory.charge(0, 1).code(), CUDA_ERROR_OUT_OF_MEMORY);
  session_->memory.refund(0, 3);
  EXPECT_EQ(session_->memory.charge(0, 4).code(), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_TRUE(session_->memory.charge(0, 3).ok());
  session_->memory.refund(0, 3);
  other_->memory.refund(0, kTogether - 3);
}

TEST_F(GroupMemoryTest, AMembersOwnLimitHoldsToo) {
  set_limit(2 * kLimit);
  EXPECT_EQ(map_own(kLimit / kUnit + 1), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(group_->memory(0), 0u) << "what it was refused counts for nobody";
  EXPECT_EQ(map_own(kLimit / kUnit), CUDA_SUCCESS);
  EXPECT_EQ(info_of(*session_).total, kLimit);
  EXPECT_EQ(info_of(*session_).free, 0u);
  EXPECT_EQ(info_of(*other_).free, kLimit);
}

TEST_F(GroupMemoryTest, WhatAnotherKeepsGivesWay) {
  EXPECT_EQ(map_own(8), CUDA_SUCCESS);
  EXPECT_TRUE(send(wire::MemoryUnmap{kBase, 8 * kUnit, 0, wire::kUnmapKeep}).ok());
  EXPECT_EQ(group_->memory(0), kTogether) << "it is kept";
  EXPECT_EQ(info_of(*other_).free, kTogether) << "and counts as free";
  EXPECT_EQ(map_other(8), CUDA_SUCCESS);
  EXPECT_EQ(group_->memory(0), kTogether);
}

TEST_F(GroupMemoryTest, WhatOthersOutsideKeepStays) {
  SessionInfo info;
  info.id = 3;
  info.window = kWindow + 2;
  SessionParts stranger(driver_.table(), *devices_, gate_, worker_parts_, info);
  const uint64_t there = wire::window_base(kWindow + 2);
  EXPECT_TRUE(send_to(stranger, wire::MemoryMap{there, kUnit, 0}).ok());
  const wire::MemoryUnmap freed{there, kUnit, 0, wire::kUnmapKeep};
  uint64_t ticket = 0;
  EXPECT_TRUE(stranger.memory.begin_unmap(freed, &ticket).ok());
  stranger.memory.finish_unmap(freed, ticket);
  EXPECT_EQ(map_own(9), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(worker_parts_.kept_memory.bytes(0), kUnit);
  stranger.release();
}

TEST_F(GroupMemoryTest, ALimitChangesWhileTheyRun) {
  EXPECT_EQ(map_own(6), CUDA_SUCCESS);
  set_limit(4 * kUnit);
  EXPECT_EQ(info_of(*other_).free, 0u) << "what is there stays";
  EXPECT_EQ(map_other(1), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_TRUE(send(wire::MemoryUnmap{kBase, 6 * kUnit, 0, 0}).ok());
  EXPECT_EQ(map_other(5), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(map_other(4), CUDA_SUCCESS);
  set_limit(5 * kUnit);
  EXPECT_EQ(map_own(1), CUDA_SUCCESS);
  EXPECT_EQ(map_own(1, 1), CUDA_ERROR_OUT_OF_MEMORY);
  set_limit(0);
  EXPECT_EQ(map_own(20, 1), CUDA_SUCCESS);
}

TEST_F(GroupMemoryTest, WhatTheDriverRefusesCountsForNobody) {
  for (const char* call : {"create", "map", "access"}) {
    driver_.fail(call, CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(map_own(2), CUDA_ERROR_OUT_OF_MEMORY);
    driver_.fail(call, CUDA_SUCCESS);
    EXPECT_EQ(group_->memory(0), 0u) << call;
    EXPECT_EQ(session_->memory.granted(0), 0u) << call;
  }
}

TEST_F(GroupMemoryTest, AMembersEndGivesBackWhatItHad) {
  EXPECT_EQ(map_other(3), CUDA_SUCCESS);
  EXPECT_TRUE(send_to(*other_, wire::PhysicalCreate{1, 0, 5 * kUnit, 0}).ok());
  EXPECT_EQ(map_own(1), CUDA_ERROR_OUT_OF_MEMORY);
  other_->release();
  other_.reset();
  EXPECT_EQ(group_->memory(0), 0u);
  EXPECT_EQ(map_own(8), CUDA_SUCCESS);
}

TEST_F(GroupMemoryTest, WhatSeveralMembersHoldCountsOnce) {
  EXPECT_EQ(map_own(6), CUDA_SUCCESS);
  EXPECT_TRUE(send(wire::MemoryPublish{kBase, 6 * kUnit}).ok());
  const auto key = reply<wire::ShareKey>();
  EXPECT_TRUE(send_to(*other_, wire::MemoryOpen{key, kThere, 6 * kUnit}).ok());
  EXPECT_EQ(other_->memory.granted(0), 6 * kUnit) << "of what it may have by itself";
  EXPECT_EQ(group_->memory(0), 6 * kUnit);
  EXPECT_EQ(map_other(2, 6), CUDA_SUCCESS);
  EXPECT_TRUE(send(wire::MemoryWithdraw{key}).ok());
  EXPECT_TRUE(send(wire::MemoryUnmap{kBase, 6 * kUnit, 0, 0}).ok());
  EXPECT_EQ(group_->memory(0), kTogether) << "the second one has it still";
  EXPECT_TRUE(other_->memory.unmap(kThere, 6 * kUnit).ok());
  EXPECT_EQ(group_->memory(0), 2 * kUnit);
}

// What the server says of a session puts it into a group.
class GroupWorkerTest : public WorkerFixture {
 protected:
  static wire::ClientLimits limits(uint64_t units) {
    wire::ClientLimits made;
    made.memory_limit[0] = units * kUnit;
    return made;
  }
  std::unique_ptr<TestClient> join(uint32_t session, uint32_t group, uint64_t units) {
    wire::Grant grant;
    grant.group = group;
    return connect(session, session + 10, grant, limits(units));
  }
  static CUresult map(TestClient& client, uint64_t units, uint64_t at = 0) {
    return client.call(wire::MemoryMap{client.base() + at * kUnit, units * kUnit, 0});
  }
};

TEST_F(GroupWorkerTest, TheServerSaysWhoIsInWhich) {
  const auto first = join(1, 5, 4), second = join(2, 5, 4), third = join(3, 6, 4);
  const auto alone = connect(4, 14);
  EXPECT_EQ(map(*first, 3), CUDA_SUCCESS);
  EXPECT_EQ(map(*second, 2), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(map(*third, 4), CUDA_SUCCESS);
  EXPECT_EQ(map(*alone, 9), CUDA_SUCCESS);
  server_->change_group(7, limits(1));  // a group without a session
  server_->change_group(5, limits(6));
  EXPECT_TRUE(second->wait([&] { return map(*second, 3) == CUDA_SUCCESS; }));
  EXPECT_EQ(map(*second, 1, 3), CUDA_ERROR_OUT_OF_MEMORY);
  close(*first);
  EXPECT_EQ(map(*second, 3, 3), CUDA_SUCCESS) << "the first has left";
  EXPECT_EQ(map(*second, 1, 6), CUDA_ERROR_OUT_OF_MEMORY);
  close(*second);
  const auto later = join(5, 5, 2);
  EXPECT_EQ(map(*later, 2), CUDA_SUCCESS);
  EXPECT_EQ(map(*later, 1, 2), CUDA_ERROR_OUT_OF_MEMORY);
  close(*later);
  close(*third);
  close(*alone);
}

}  // namespace
}  // namespace openmps::worker
