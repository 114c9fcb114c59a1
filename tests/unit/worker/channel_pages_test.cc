// SPDX-License-Identifier: Apache-2.0
// Which parts of a session's channel are registered with the driver, and when.
#include <cstring>

#include "session_fixture.h"

namespace openmps::worker {
namespace {

class ChannelPagesTest : public SessionFixture {
 protected:
  void SetUp() override {
    SessionFixture::SetUp();
    create_stream(1, wire::StreamKind::kNonBlocking);
    map(kBase, kUnit);
  }
  Status copy(uint64_t source, uint64_t bytes) {
    return send(wire::Memcpy{1, 0, kBase, source, bytes});
  }
  [[nodiscard]] bool registrations(int count) {
    const std::string live = driver_.live() + " ";
    return live.find("registrations " + std::to_string(count) + " ") != std::string::npos;
  }
};

TEST_F(ChannelPagesTest, ComeAsTheyAreUsed) {
  EXPECT_TRUE(registrations(1)) << "the first fences: " << driver_.live();
  EXPECT_TRUE(send(wire::Fence{1, 0, 1}).ok());
  EXPECT_TRUE(send(wire::Fence{1, 63, 1}).ok());
  EXPECT_TRUE(registrations(1)) << driver_.live();
  EXPECT_TRUE(send(wire::Fence{1, 64, 1}).ok());
  EXPECT_TRUE(send(wire::Fence{1, wire::kFenceSlots - 1, 1}).ok());
  EXPECT_TRUE(registrations(2)) << "all others: " << driver_.live();
  EXPECT_TRUE(send(wire::HostFunction{1, 0, 0, wire::kNoFence, wire::kAnswersSoon}).ok());
  EXPECT_TRUE(registrations(3)) << driver_.live();
  EXPECT_TRUE(
      send(wire::HostFunction{1, wire::kCallbackSlots - 1, 0, wire::kNoFence, wire::kAnswersSoon})
          .ok());
  EXPECT_TRUE(registrations(4)) << driver_.live();
  EXPECT_TRUE(copy(kStaging, 16).ok());
  EXPECT_TRUE(copy(kStaging + 48 * wire::kKiB, 16 * wire::kKiB).ok());
  EXPECT_TRUE(registrations(5)) << driver_.live();
  EXPECT_TRUE(copy(kStaging + wire::kSmallStagingBytes, wire::kStagingPieceBytes).ok());
  EXPECT_TRUE(copy(kStaging + wire::kStagingBytes - 1, 1).ok());
  EXPECT_TRUE(registrations(7)) << driver_.live();
  EXPECT_TRUE(copy(kStaging + 64 * wire::kKiB - 1, 2).ok()) << "across two pieces";
  EXPECT_TRUE(registrations(8)) << driver_.live();
}

TEST_F(ChannelPagesTest, ImagesNeedNone) {
  EXPECT_TRUE(send(wire::BlobBegin{4, 1}).ok());
  EXPECT_TRUE(send(wire::BlobData{1, 4, 0, kStaging}).ok());
  EXPECT_TRUE(registrations(1)) << driver_.live();
}

TEST_F(ChannelPagesTest, WhatIsNotThereIsAnError) {
  driver_.fail("register", CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(copy(kStaging, 16).code(), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(send(wire::Fence{1, 64, 1}).code(), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(send(wire::HostFunction{1, 0, 0, wire::kNoFence, wire::kAnswersSoon}).code(),
            CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_FALSE(session_->fences.ledger().pending(session_->core.view)) << "nothing is promised";
  driver_.fail("register", CUDA_SUCCESS);
  EXPECT_TRUE(copy(kStaging, 16).ok());
  EXPECT_TRUE(is_violation(copy(kStaging + wire::kStagingBytes - 8, 16)));
}

TEST_F(ChannelPagesTest, TheStagingArenaIsGivenBackBesideNobodysWork) {
  auto* staging = reinterpret_cast<char*>(kStaging);
  strcpy(staging, "of the client");
  EXPECT_TRUE(copy(kStaging, 16).ok());
  EXPECT_TRUE(copy(kStaging + wire::kSmallStagingBytes, 16).ok());
  EXPECT_TRUE(send(wire::Fence{1, 64, 0}).ok());
  EXPECT_TRUE(session_->is_idle());
  EXPECT_TRUE(registrations(4)) << driver_.live();

  CUstream neighbour = nullptr;
  ASSERT_EQ(driver_.table().cuStreamCreateWithPriority(&neighbour, CU_STREAM_NON_BLOCKING, 0),
            CUDA_SUCCESS);
  ContextGate::Stream* listed = gate_.add(neighbour, 0);
  driver_.hold(2, true);
  driver_.push(reinterpret_cast<uint64_t>(neighbour), [] { return true; });
  listed->set_busy();
  EXPECT_FALSE(session_->release_idle());
  EXPECT_TRUE(registrations(4)) << driver_.live();
  driver_.hold(2, false);
  EXPECT_TRUE(session_->release_idle());
  EXPECT_TRUE(registrations(2)) << "fences stay: " << driver_.live();
  EXPECT_STREQ(staging, "of the client");
  EXPECT_TRUE(copy(kStaging, 16).ok());
  EXPECT_TRUE(registrations(3)) << driver_.live();

  gate_.remove(listed);
  EXPECT_EQ(driver_.table().cuStreamDestroy_v2(neighbour), CUDA_SUCCESS);
}

TEST_F(ChannelPagesTest, ASessionWithWorkHasNotSettled) {
  driver_.hold(1, true);
  EXPECT_TRUE(copy(kStaging, 16).ok());
  EXPECT_FALSE(session_->is_idle());
  driver_.hold(1, false);
  EXPECT_TRUE(session_->is_idle());
}

}  // namespace
}  // namespace openmps::worker
