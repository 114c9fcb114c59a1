// SPDX-License-Identifier: Apache-2.0
// Memory of a session that goes to the host and comes back.
#include "base/clock.h"
#include "session_fixture.h"
#include "wire/commands/memory.h"
#include "worker/memory/transfer.h"

namespace openmps::worker {
namespace {

uint64_t available = ~0ull;  // to the host store

class MemoryOnHostTest : public SessionFixture {
 protected:
  static constexpr uint64_t kBlocks = HostStore::kBlockBytes / kUnit;

  void prepare() override {
    available = ~0ull;
    worker_parts_.store = std::make_shared<HostStore>(
        driver_.table(), [] { return available; }, 16 * HostStore::kBlockBytes);
  }
  void TearDown() override {
    const uint64_t later = now_ns() + 2 * HostStore::kUnusedNs;
    session_->memory.release_all();
    worker_parts_.store->give_back_old(session_->core.releases, session_->core.context({0}), later);
    EXPECT_EQ(worker_parts_.store->bytes(), 0u) << "all of it goes back to the system";
    SessionFixture::TearDown();
  }
  Status out(uint64_t most = ~0ull) {
    moved_ = {};
    return session_->memory.move_to_host(
        0, [&](uint64_t under_way) { return moved_.moved + under_way < most; }, &moved_);
  }
  Status back() {
    return session_->memory.move_back([this](uint32_t, uint64_t bytes) { found_ += bytes; });
  }
  [[nodiscard]] uint64_t on_host() { return session_->core.usage.on_host()[0]; }

  SessionMemory::Moved moved_;
  uint64_t found_ = 0;
};

TEST_F(MemoryOnHostTest, GoesAndComesBack) {
  map(kBase, kUnit);
  map(kBase + kUnit, 2 * kUnit);
  driver_.take_calls();
  ASSERT_TRUE(out().ok());
  EXPECT_EQ(moved_.moved, 3 * kUnit);
  EXPECT_EQ(driver_.physical_bytes(), 0u);
  EXPECT_EQ(on_host(), 3 * kUnit);
  EXPECT_EQ(session_->memory.granted(0), 3 * kUnit) << "it counts as before";
  EXPECT_TRUE(session_->memory.is_away());
  EXPECT_EQ(worker_parts_.store->bytes(), HostStore::kBlockBytes);
  ASSERT_TRUE(out().ok());
  EXPECT_EQ(moved_.moved, 0u);

  driver_.take_calls();
  ASSERT_TRUE(back().ok());
  EXPECT_EQ(found_, 3 * kUnit);
  EXPECT_FALSE(session_->memory.is_away());
  EXPECT_EQ(on_host(), 0u);
  EXPECT_EQ(driver_.physical_bytes(), 3 * kUnit);
  const Calls made = calls();
  EXPECT_EQ(std::ranges::count(made, "create rdma"), 2) << "as it was made at first";
  EXPECT_EQ(std::ranges::count(made, "access"), 2);
  EXPECT_TRUE(session_->memory.contains(kBase, 3 * kUnit, true));
}

TEST_F(MemoryOnHostTest, AsMuchAsIsWanted) {
  for (uint64_t i = 0; i < 4; ++i) map(kBase + i * kUnit, kUnit);
  ASSERT_TRUE(out(2 * kUnit).ok());
  EXPECT_EQ(moved_.moved, 2 * kUnit);
  EXPECT_EQ(driver_.physical_bytes(), 2 * kUnit);
  ASSERT_TRUE(back().ok());
}

TEST_F(MemoryOnHostTest, ACopyLiesInOneBlock) {
  map(kBase, kUnit);
  map(kBase + kUnit, HostStore::kBlockBytes);
  driver_.take_calls();
  ASSERT_TRUE(out().ok());
  uint64_t bytes = 0;
  for (const std::string& call : calls()) {
    if (!call.starts_with("to host ")) continue;
    const uint64_t piece = std::stoull(call.substr(8));
    EXPECT_LE(piece, Transfer::kPieceBytes);
    bytes += piece;
  }
  EXPECT_EQ(bytes, kUnit + HostStore::kBlockBytes);
  EXPECT_EQ(worker_parts_.store->bytes(), 2 * HostStore::kBlockBytes);
}

TEST_F(MemoryOnHostTest, StaysWhereOthersMayHaveIt) {
  map(kBase, kUnit);
  map(kBase + kUnit, kUnit);
  session_->memory.lend(kBase, kUnit);
  ASSERT_TRUE(out().ok());
  EXPECT_EQ(moved_.moved, kUnit);
  EXPECT_EQ(moved_.stays, kUnit);
}

TEST_F(MemoryOnHostTest, AHandleThatIsMappedNowhere) {
  EXPECT_TRUE(send(wire::PhysicalCreate{1, 0, 2 * kUnit, 0}).ok());
  driver_.take_calls();
  ASSERT_TRUE(out().ok());
  EXPECT_EQ(moved_.moved, 2 * kUnit);
  EXPECT_EQ(driver_.live(), "registrations 2") << "the view is gone, too";
  ASSERT_TRUE(back().ok());
  EXPECT_EQ(std::ranges::count(calls(), "create"), 1);
  EXPECT_TRUE(send(wire::PhysicalRelease{1}).ok());
}

TEST_F(MemoryOnHostTest, AHostWithoutMemory) {
  map(kBase, kUnit);
  available = HostStore::kLeftBytes;
  EXPECT_EQ(out().code(), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(driver_.physical_bytes(), kUnit);
  EXPECT_FALSE(session_->memory.is_away());
}

TEST_F(MemoryOnHostTest, ACopyFails) {
  map(kBase, kUnit);
  driver_.fail("to host", CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(out().code(), CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(driver_.physical_bytes(), kUnit);
  EXPECT_EQ(on_host(), 0u);
  driver_.fail("to host", CUDA_SUCCESS);
  ASSERT_TRUE(out().ok());
  driver_.fail("to device", CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(back().code(), CUDA_ERROR_UNKNOWN);
  EXPECT_TRUE(session_->memory.is_away());
  EXPECT_EQ(driver_.physical_bytes(), 0u) << "what was made for it is released";
  driver_.fail("to device", CUDA_SUCCESS);
  ASSERT_TRUE(back().ok());
}

TEST_F(MemoryOnHostTest, ADeviceWithoutMemory) {
  map(kBase, kUnit);
  ASSERT_TRUE(out().ok());
  driver_.limit_physical(0);
  session_->stop = true;  // else it waits for others
  EXPECT_EQ(back().code(), CUDA_ERROR_NOT_READY);
  EXPECT_TRUE(session_->memory.is_away());
  session_->stop = false;
  driver_.limit_physical(kUnit);
  ASSERT_TRUE(back().ok());
}

TEST_F(MemoryOnHostTest, AnAllocationThatNobodyCanHelpFailsAtOnce) {
  driver_.limit_physical(kUnit);
  map(kBase, kUnit);
  EXPECT_EQ(send(wire::MemoryMap{kBase + kUnit, kUnit, 0}).code(), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_F(MemoryOnHostTest, EndsWhileItIsThere) {
  map(kBase, kUnit);
  EXPECT_TRUE(send(wire::PhysicalCreate{1, 0, kUnit, 0}).ok());
  ASSERT_TRUE(out().ok());
  session_->drain();
  session_->release();
  EXPECT_EQ(on_host(), 0u);
  EXPECT_EQ(session_->memory.granted(0), 0u);
}

TEST_F(MemoryOnHostTest, WhatIsBorrowed) {
  map(kBase, 4 * kUnit);
  EXPECT_EQ(session_->memory.borrowed(0), 0u) << "nothing is stated: all of it stays";
  SessionLimits limits;
  limits.client.memory_limit[0] = kLimit;
  limits.client.guaranteed_memory[0] = kUnit;
  session_->core.change(limits);
  EXPECT_EQ(session_->memory.borrowed(0), 3 * kUnit);
  ASSERT_TRUE(out().ok());
  EXPECT_EQ(session_->memory.borrowed(0), 0u);
}

class GroupOnHostTest : public MemoryOnHostTest {
 protected:
  GroupOnHostTest() : group_(std::make_shared<SessionGroup>()) {
    group_->set_memory_limit(0, 8 * kUnit);
    group_->set_guaranteed(0, 2 * kUnit);
  }
  void describe(SessionInfo& info) const override { info.group = group_; }
  const std::shared_ptr<SessionGroup> group_;
};

TEST_F(GroupOnHostTest, TheGroupsGuaranteeCounts) {
  map(kBase, 3 * kUnit);
  map(kBase + 3 * kUnit, kUnit);
  EXPECT_EQ(session_->memory.borrowed(0), 2 * kUnit);
  ASSERT_TRUE(out().ok());
  EXPECT_EQ(group_->on_host(0), 4 * kUnit);
  EXPECT_EQ(group_->memory(0), 4 * kUnit);
  EXPECT_EQ(send(wire::MemoryMap{kBase + 4 * kUnit, 8 * kUnit, 0}).code(), CUDA_ERROR_OUT_OF_MEMORY)
      << "what is on the host counts against the limit";
  ASSERT_TRUE(back().ok());
  EXPECT_EQ(group_->on_host(0), 0u);
  ASSERT_TRUE(out().ok());
  session_->drain();
  session_->release();
  EXPECT_EQ(group_->on_host(0), 0u);
  EXPECT_EQ(group_->memory(0), 0u);
}

}  // namespace
}  // namespace openmps::worker
