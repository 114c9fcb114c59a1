// SPDX-License-Identifier: Apache-2.0
// Descriptors that outlive a worker.
#include "server/kept.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/clock.h"
#include "server/worker_state.h"
#include "wire/message.h"

namespace openmps::server {
namespace {

class KeptTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(loop_.open().ok()); }

  // A pipe's end, whose close shows at the other end.
  UniqueFd file() {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    other_end_.reset(ends[0]);
    return UniqueFd(ends[1]);
  }
  void keep(uint32_t session, uint64_t number, uint64_t bytes = 100) {
    kept_.keep_memory({.session = session, .number = number, .bytes = bytes, .device = 1}, file());
  }
  std::vector<wire::Give> given(uint32_t session) {
    given_.clear();
    kept_.give_memory(session, give());
    return given_;
  }
  Kept::Send give() {
    return [this](std::span<const std::byte> message, std::span<const int> fds) {
      wire::Give one;
      EXPECT_TRUE(wire::read_message(message, &one).ok());
      EXPECT_TRUE(fds.size() == 1 && fcntl(fds[0], F_GETFD) != -1);
      given_.push_back(one);
    };
  }

  EventLoop loop_;
  std::vector<std::pair<const Worker*, uint64_t>> answers_;
  static constexpr uint64_t kMost = 4;
  Kept kept_{loop_, kMost, [this](const Worker& worker, uint64_t ticket) {
               answers_.emplace_back(&worker, ticket);
               loop_.stop();
             }};
  std::vector<wire::Give> given_;
  UniqueFd other_end_;
  Worker one_;
  Worker two_;
};

TEST_F(KeptTest, ASessionsMemoryIsGivenAsItIs) {
  keep(1, 7, 700);
  keep(1, 9, 900);
  keep(2, 7);
  kept_.forget_memory(1, 8);
  std::vector<wire::Give> memory = given(1);
  ASSERT_EQ(memory.size(), 2u);
  EXPECT_EQ(memory[0].session, 1u);
  EXPECT_EQ(memory[0].what, wire::Kept::kMemory);
  EXPECT_EQ(memory[0].number, 7u);
  EXPECT_EQ(memory[0].bytes, 700u);
  EXPECT_EQ(memory[0].device, 1u);
  EXPECT_EQ(memory[1].number, 9u);
  kept_.forget_memory(1, 7);
  EXPECT_EQ(given(1).size(), 1u);
  kept_.erase(1);
  EXPECT_TRUE(given(1).empty());
  EXPECT_EQ(given(2).size(), 1u);
  EXPECT_EQ(kept_.count(), 1u);
}

TEST_F(KeptTest, ContentsAndMemoryReplaceEachOther) {
  keep(1, 7, 700);
  kept_.share_memory({.session = 1, .has_no_key = 1, .number = 7});
  const UniqueFd former = std::move(other_end_);
  kept_.keep_memory({.session = 1,
                     .what = wire::Kept::kContents,
                     .number = 7,
                     .bytes = 700,
                     .device = 1,
                     .offset = 4096},
                    file());
  EXPECT_EQ(kept_.count(), 1u);
  ASSERT_EQ(given(1).size(), 1u);
  EXPECT_EQ(given_[0].what, wire::Kept::kContents);
  EXPECT_EQ(given_[0].offset, 4096u);
  EXPECT_EQ(given_[0].is_shared, 1u) << "for good";
  kept_.answer_when_closed(one_, 3);
  EXPECT_TRUE(loop_.run().ok());
  char byte = 0;
  EXPECT_EQ(read(former.get(), &byte, 1), 0) << "what it replaces is closed";
  keep(1, 7, 700);
  EXPECT_EQ(given(1)[0].what, wire::Kept::kMemory);
  EXPECT_FALSE(kept_.lacks_memory(1));
}

TEST_F(KeptTest, SharedMemoryIsFoundByItsKey) {
  const auto find = [&](unsigned char key) {
    given_.clear();
    wire::FindMemory message{.ticket = 30};
    message.key[5] = key;
    size_t files = 0;
    kept_.give_found(message, [&](std::span<const std::byte> bytes, std::span<const int> fds) {
      wire::Give one;
      EXPECT_TRUE(wire::read_message(bytes, &one).ok());
      EXPECT_EQ(one.what, wire::Kept::kShared);
      EXPECT_EQ(one.number, 30u);
      files = fds.size();
      given_.push_back(one);
    });
    EXPECT_EQ(given_.size(), 1u) << "each question has an answer";
    return files == 1 ? given_[0].bytes : 0;
  };
  const auto share = [&](uint32_t session, uint64_t number, unsigned char key) {
    wire::ShareMemory message{.session = session, .number = number};
    message.key[5] = key;
    kept_.share_memory(message);
  };
  keep(1, 7, 700);
  keep(1, 8, 800);
  keep(2, 7, 900);
  share(1, 7, 'a');
  share(1, 8, 'b');
  share(2, 7, 'c');
  EXPECT_EQ(find('a'), 700u);
  EXPECT_EQ(find('b'), 800u);
  EXPECT_EQ(find('c'), 900u);
  EXPECT_EQ(find('d'), 0u);
  share(2, 0, 'a');
  EXPECT_EQ(find('a'), 700u) << "withdrawn by a session that does not share it";
  share(1, 0, 'a');
  EXPECT_EQ(find('a'), 0u);
  kept_.forget_memory(1, 8);
  EXPECT_EQ(find('b'), 0u) << "the memory is freed";
  kept_.erase(2);
  keep(2, 7);
  EXPECT_EQ(find('c'), 0u) << "the session has ended, and another one has its number";
}

TEST_F(KeptTest, AnAnswerComesWhenTheMemoryIsClosed) {
  keep(1, 1);
  kept_.forget_memory(1, 1);
  kept_.answer_when_closed(one_, 5);
  ASSERT_TRUE(loop_.run().ok());
  EXPECT_EQ(answers_, (std::vector<std::pair<const Worker*, uint64_t>>{{&one_, 5}}));
  char nothing = 0;
  EXPECT_EQ(read(other_end_.get(), &nothing, 1), 0) << "nobody has it any more";
}

TEST_F(KeptTest, AWorkerThatHasEndedIsToldNothing) {
  kept_.answer_when_closed(one_, 5);
  kept_.on_worker_gone(one_);
  kept_.answer_when_closed(two_, 6);
  ASSERT_TRUE(loop_.run().ok());
  EXPECT_EQ(answers_, (std::vector<std::pair<const Worker*, uint64_t>>{{&two_, 6}}));
}

TEST_F(KeptTest, ASessionLacksWhatDoesNotFit) {
  for (uint64_t number = 1; number <= kMost; ++number) keep(1, number);
  EXPECT_FALSE(kept_.lacks_memory(1));
  keep(2, 1);
  EXPECT_TRUE(kept_.lacks_memory(2));
  EXPECT_FALSE(kept_.lacks_memory(1));
  kept_.forget_memory(1, 2);
  keep(3, 1);
  EXPECT_FALSE(kept_.lacks_memory(3));
  kept_.keep_memory({.session = 4, .number = 1}, UniqueFd());
  EXPECT_TRUE(kept_.lacks_memory(4)) << "its descriptor was lost";
  kept_.erase(2);
  EXPECT_FALSE(kept_.lacks_memory(2));
}

TEST_F(KeptTest, AnImageIsKeptWhileAWorkerHasIt) {
  const wire::Keep image{.what = wire::Kept::kImage, .number = 77, .bytes = 5};
  EXPECT_TRUE(kept_.keep_image(one_, image, file()));
  EXPECT_FALSE(kept_.keep_image(two_, image, file())) << "it is known";
  EXPECT_FALSE(kept_.keep_image(two_, image, file()));
  kept_.give_images(give());
  ASSERT_EQ(given_.size(), 1u);
  EXPECT_EQ(given_[0].what, wire::Kept::kImage);
  EXPECT_EQ(given_[0].number, 77u);
  EXPECT_EQ(given_[0].bytes, 5u);
  EXPECT_EQ(kept_.forget_image(one_, 77, false), Kept::Forgotten::kLeft) << "the other has it";
  EXPECT_EQ(kept_.forget_image(one_, 77, false), Kept::Forgotten::kNo)
      << "it does not have it any more";
  EXPECT_EQ(kept_.forget_image(two_, 77, false), Kept::Forgotten::kNo) << "it has it once more";
  EXPECT_EQ(kept_.forget_image(two_, 77, false), Kept::Forgotten::kClosed) << "the last";
  EXPECT_EQ(kept_.count(), 0u);
}

TEST_F(KeptTest, AnImageOutlivesItsWorkerForAWhile) {
  EXPECT_TRUE(kept_.keep_image(one_, {.what = wire::Kept::kImage, .number = 77}, file()));
  EXPECT_TRUE(kept_.keep_image(two_, {.what = wire::Kept::kImage, .number = 78}, file()));
  kept_.on_worker_gone(one_);
  const uint64_t now = now_ns();
  EXPECT_TRUE(kept_.close_old_images(now).empty());
  // The next worker takes it.
  EXPECT_FALSE(kept_.keep_image(two_, {.what = wire::Kept::kImage, .number = 77}, file()));
  const uint64_t later = now + kKeptImageMs * kNsPerMs;
  EXPECT_TRUE(kept_.close_old_images(later).empty());
  kept_.on_worker_gone(two_);
  EXPECT_EQ(kept_.close_old_images(later + kKeptImageMs * kNsPerMs).size(), 2u);
}

}  // namespace
}  // namespace openmps::server
