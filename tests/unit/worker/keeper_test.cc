// SPDX-License-Identifier: Apache-2.0
// Memory that the server keeps, and that another worker takes.
#include "worker/core/keeper.h"

#include <fcntl.h>

#include <future>
#include <thread>

#include "session_fixture.h"
#include "wire/message.h"

namespace openmps::worker {
namespace {

// What a keeper has sent, in the order in which it was sent.
struct Sent {
  std::vector<wire::Keep> keeps;
  std::vector<wire::Forget> forgets;
  bool works = true;

  Keeper::Send send() {
    return [this](std::span<const std::byte> message, std::span<const int> fds) {
      wire::Keep keep;
      wire::Forget forget;
      if (wire::read_message(message, &keep).ok()) {
        EXPECT_TRUE(fds.size() == 1 && fcntl(fds[0], F_GETFD) != -1);
        keeps.push_back(keep);
      } else if (wire::read_message(message, &forget).ok()) {
        forgets.push_back(forget);
      } else {
        ADD_FAILURE() << "another message";
      }
      return works;
    };
  }
};

constexpr uint64_t kLater = 3'600'000'000'000;  // an hour: no test waits so long

UniqueFd any_file() { return UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC)); }

TEST(KeeperTest, OneAnswerIsAskedForHoweverMuchIsFreed) {
  Sent sent;
  Keeper keeper(10, kLater, sent.send());
  const UniqueFd file = any_file();
  {
    const KeptMemory a = keeper.keep_now(1, 1, 100, 0, file.get());
    const KeptMemory b = keeper.keep_now(1, 2, 10, 0, file.get());
    const KeptMemory c = keeper.keep_now(2, 1, 1, 1, file.get());
    EXPECT_EQ(b.number(), 2u);
  }
  ASSERT_EQ(sent.forgets.size(), 3u);
  EXPECT_EQ(sent.forgets[0].ticket, 1u);
  EXPECT_EQ(sent.forgets[1].ticket, 0u);
  EXPECT_EQ(sent.forgets[2].ticket, 0u);
  EXPECT_EQ(keeper.on_way(0), 110u);
  EXPECT_EQ(keeper.on_way(1), 1u);
  keeper.on_forgotten({.ticket = 1});
  ASSERT_EQ(sent.forgets.size(), 4u) << "the rest";
  EXPECT_EQ(sent.forgets[3].number, 0u);
  EXPECT_EQ(sent.forgets[3].ticket, 2u);
  EXPECT_EQ(keeper.on_way(1), 0u);
  EXPECT_EQ(keeper.on_way(0), 110u);
  keeper.on_forgotten({.ticket = 99});
  EXPECT_EQ(keeper.on_way(0), 0u);
  EXPECT_EQ(sent.forgets.size(), 4u);
  EXPECT_FALSE(keeper.wait_forgotten(10'000)) << "nothing is on its way";
}

TEST(KeeperTest, WaitsUntilAllIsForgotten) {
  Sent sent;
  Keeper keeper(10, kLater, sent.send());
  const UniqueFd file = any_file();
  static_cast<void>(keeper.keep_now(1, 1, 100, 0, file.get()));
  static_cast<void>(keeper.keep_now(1, 2, 100, 0, file.get()));
  EXPECT_FALSE(keeper.wait_forgotten(1)) << "no answer";
  EXPECT_EQ(sent.forgets.back().ticket, 2u);
  std::thread server([&] {
    keeper.on_forgotten({.ticket = 1});
    keeper.on_forgotten({.ticket = 2});
  });
  EXPECT_TRUE(keeper.wait_forgotten(60'000) || keeper.on_way(0) == 0);
  server.join();
}

TEST(KeeperTest, KeepsNoMoreThanItMay) {
  Sent sent;
  Keeper keeper(1, kLater, sent.send());
  const UniqueFd file = any_file();
  {
    const KeptMemory first = keeper.keep_now(1, 1, 100, 0, file.get());
    EXPECT_EQ(keeper.keep_now(1, 2, 100, 0, file.get()).number(), 0u);
  }
  EXPECT_EQ(keeper.keep_now(1, 3, 100, 0, file.get()).number(), 3u);
  sent.works = false;
  EXPECT_EQ(keeper.keep_now(1, 4, 100, 0, file.get()).number(), 0u);
  EXPECT_EQ(sent.forgets.size(), 2u) << "only of what is kept";
}

TEST(KeeperTest, WhatASessionDoesNotTakeIsForgotten) {
  Sent sent;
  Keeper keeper(10, kLater, sent.send());
  keeper.on_give({.session = 7, .number = 1, .bytes = 100, .device = 0}, any_file());
  keeper.on_give({.session = 7, .number = 2, .bytes = 200, .device = 1}, any_file());
  keeper.on_give({.session = 8, .number = 2, .bytes = 300, .device = 1}, any_file());
  EXPECT_FALSE(keeper.take(9, 1).memory.valid());
  {
    const Keeper::Taken taken = keeper.take(7, 2);
    EXPECT_TRUE(taken.memory.valid());
    EXPECT_EQ(taken.bytes, 200u);
    EXPECT_EQ(taken.device, 1u);
    EXPECT_EQ(taken.kept.number(), 2u);
    EXPECT_FALSE(keeper.take(7, 2).memory.valid()) << "twice";
    keeper.drop_given(7);
    ASSERT_EQ(sent.forgets.size(), 1u);
    EXPECT_EQ(sent.forgets[0].session, 7u);
    EXPECT_EQ(sent.forgets[0].number, 1u);
    EXPECT_FALSE(keeper.take(7, 1).memory.valid());
  }
  EXPECT_EQ(sent.forgets.back().number, 2u);
  EXPECT_TRUE(keeper.take(8, 2).memory.valid());
}

TEST(KeeperTest, MemoryThatEndsSoonIsNotExported) {
  Sent sent;
  Keeper keeper(10, kLater, sent.send());
  int exports = 0;
  const auto exported = [&exports] { return ++exports, any_file(); };
  {
    const KeptMemory soon = keeper.keep(1, 1, 100, 0, exported);
    const KeptMemory other = keeper.keep(2, 1, 100, 0, exported);
    EXPECT_EQ(soon.number(), 1u);
    keeper.keep_all_now(1);
    EXPECT_EQ(exports, 1);
    ASSERT_EQ(sent.keeps.size(), 1u);
    EXPECT_EQ(sent.keeps[0].session, 1u);
    keeper.keep_all_now(1);
    EXPECT_EQ(exports, 1) << "once";
  }
  ASSERT_EQ(sent.forgets.size(), 1u);
  EXPECT_EQ(sent.forgets[0].session, 1u);
  EXPECT_EQ(exports, 1);
  EXPECT_EQ(keeper.on_way(0), 100u) << "what the server does not have is free at once";
}

TEST(KeeperTest, AThreadExports) {
  Sent sent;
  Keeper keeper(10, 0, sent.send());
  std::promise<std::thread::id> exporter;
  const KeptMemory kept = keeper.keep(1, 1, 100, 0, [&exporter] {
    exporter.set_value(std::this_thread::get_id());
    return any_file();
  });
  EXPECT_NE(exporter.get_future().get(), std::this_thread::get_id());
  keeper.keep_all_now(1);  // until it has been sent
  EXPECT_EQ(sent.keeps.size(), 1u);
}

TEST(KeeperTest, MemoryThatEndsWhileItIsExportedIsNotKept) {
  Sent sent;
  Keeper keeper(10, 0, sent.send());
  std::promise<void> begun;
  std::promise<void> ended;
  {
    const KeptMemory kept = keeper.keep(1, 1, 100, 0, [&] {
      begun.set_value();
      ended.get_future().wait();
      return any_file();
    });
    begun.get_future().wait();
  }
  ended.set_value();
  keeper.keep_all_now(1);
  EXPECT_TRUE(sent.forgets.empty());
  EXPECT_EQ(keeper.on_way(0), 0u);
}

TEST(KeeperTest, WhatCantBeExportedIsNotSent) {
  Sent sent;
  Keeper keeper(10, kLater, sent.send());
  const KeptMemory kept = keeper.keep(1, 1, 100, 0, [] { return UniqueFd(); });
  keeper.keep_all_now(1);
  EXPECT_TRUE(sent.keeps.empty());
}

class MemoryAtTheServerTest : public SessionFixture {
 protected:
  void prepare() override {
    worker_parts_.keeper = std::make_unique<Keeper>(100, kLater, sent_.send());
  }
  void keep_all() { worker_parts_.keeper->keep_all_now(1); }
  Sent sent_;
};

TEST_F(MemoryAtTheServerTest, MemoryIsKeptUntilItIsReleased) {
  map(kBase, kUnit);
  EXPECT_TRUE(sent_.keeps.empty()) << "not on the session's thread";
  keep_all();
  ASSERT_EQ(sent_.keeps.size(), 1u);
  EXPECT_EQ(sent_.keeps[0].session, 1u);
  EXPECT_EQ(sent_.keeps[0].bytes, kUnit);
  EXPECT_EQ(session_->core.journal.kept(), sent_.keeps[0].number);
  // Kept for reuse: still the session's.
  EXPECT_TRUE(send(wire::MemoryUnmap{kBase, kUnit, 0, wire::kUnmapKeep}).ok());
  EXPECT_TRUE(sent_.forgets.empty());
  session_->core.journal.note_kept(0);
  map(kBase, kUnit);
  keep_all();
  EXPECT_EQ(sent_.keeps.size(), 1u);
  EXPECT_EQ(session_->core.journal.kept(), sent_.keeps[0].number) << "as it was kept before";
  EXPECT_TRUE(send(wire::MemoryUnmap{kBase, kUnit, 0, 0}).ok());
  ASSERT_EQ(sent_.forgets.size(), 1u);
  EXPECT_EQ(sent_.forgets[0].number, sent_.keeps[0].number);
  EXPECT_EQ(worker_parts_.keeper->on_way(0), kUnit);
}

TEST_F(MemoryAtTheServerTest, MemoryThatCouldNotBeGrantedIsNotKept) {
  driver_.fail("access", CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_FALSE(send(wire::MemoryMap{kBase, kUnit, 0}).ok());
  driver_.fail("access", CUDA_SUCCESS);
  keep_all();
  EXPECT_TRUE(sent_.keeps.empty());
}

TEST_F(MemoryAtTheServerTest, ProgramsOwnMemoryIsKeptWhileAHandleOrAMappingIsThere) {
  EXPECT_TRUE(send(wire::PhysicalCreate{1, 0, 2 * kUnit, 0}).ok());
  keep_all();
  EXPECT_EQ(session_->core.journal.kept(), sent_.keeps.at(0).number);
  EXPECT_TRUE(send(wire::PhysicalMap{kBase, 2 * kUnit, 0, 1}).ok());
  EXPECT_TRUE(send(wire::PhysicalRelease{1}).ok());
  EXPECT_TRUE(sent_.forgets.empty());
  EXPECT_TRUE(send(wire::MemoryUnmap{kBase, 2 * kUnit, 0, 0}).ok());
  EXPECT_EQ(sent_.forgets.size(), 1u);
}

TEST_F(MemoryAtTheServerTest, ImportedMemoryIsKept) {
  session_->physical.inbox.put(5, any_file());
  EXPECT_TRUE(send(wire::PhysicalImport{.physical = 1, .ticket = 5}).ok());
  ASSERT_EQ(sent_.keeps.size(), 1u);
  EXPECT_EQ(sent_.keeps[0].bytes, 0u) << "the driver does not say";
  EXPECT_EQ(session_->core.journal.kept(), sent_.keeps[0].number);
}

}  // namespace
}  // namespace openmps::worker
