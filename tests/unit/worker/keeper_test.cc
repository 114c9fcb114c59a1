// SPDX-License-Identifier: Apache-2.0
// Memory that the server keeps, and that another worker takes.
#include "worker/core/keeper.h"

#include <fcntl.h>

#include <algorithm>
#include <future>
#include <map>
#include <thread>

#include "empty_journal.h"
#include "session_fixture.h"
#include "wire/journal.h"
#include "wire/message.h"
#include "worker/session/adoption.h"

namespace openmps::worker {
namespace {

// What a keeper has sent, in the order in which it was sent.
struct Sent {
  std::vector<wire::Keep> keeps;
  std::vector<wire::Forget> forgets;
  std::vector<wire::ShareMemory> shares;
  std::promise<wire::FindMemory> find;
  bool works = true;

  Keeper::Send send() {
    return [this](std::span<const std::byte> message, std::span<const int> fds) {
      wire::Keep keep;
      wire::Forget forget;
      wire::ShareMemory share;
      wire::FindMemory asked;
      if (wire::read_message(message, &keep).ok()) {
        EXPECT_TRUE(fds.size() == 1 && fcntl(fds[0], F_GETFD) != -1);
        keeps.push_back(keep);
      } else if (wire::read_message(message, &forget).ok()) {
        forgets.push_back(forget);
      } else if (wire::read_message(message, &share).ok()) {
        shares.push_back(share);
        return false;  // nobody answers
      } else if (wire::read_message(message, &asked).ok()) {
        find.set_value(asked);
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

// Contents take the place of memory that the server has, which is free when that is closed; memory
// that it does not have yet is not exported any more.
TEST(KeeperTest, ContentsReplaceMemory) {
  Sent sent;
  Keeper keeper(10, kLater, sent.send());
  const UniqueFd file = any_file();
  KeptMemory exported = keeper.keep_now(1, 1, 100, 0, file.get());
  KeptMemory young = keeper.keep(1, 2, 50, 0, [] { return any_file(); });
  EXPECT_TRUE(keeper.has_waiting(1));
  keeper.set_contents(exported, file.get(), 4096);
  keeper.set_contents(young, file.get(), 8192);
  EXPECT_FALSE(keeper.has_waiting(1));
  ASSERT_EQ(sent.keeps.size(), 3u);
  EXPECT_EQ(sent.keeps[1].what, wire::Kept::kContents);
  EXPECT_EQ(sent.keeps[1].number, 1u);
  EXPECT_EQ(sent.keeps[1].bytes, 100u);
  EXPECT_EQ(sent.keeps[1].offset, 4096u);
  EXPECT_EQ(sent.keeps[1].ticket, 1u);
  EXPECT_EQ(sent.keeps[2].number, 2u);
  EXPECT_EQ(sent.keeps[2].ticket, 0u);
  EXPECT_EQ(keeper.on_way(0), 100u) << "of the device";
  keeper.on_forgotten({.ticket = 1});
  EXPECT_EQ(keeper.on_way(0), 0u);

  // Back on the device: the server closes the contents, and gets the memory later.
  keeper.set_memory(exported, 100, [] { return any_file(); });
  ASSERT_EQ(sent.forgets.size(), 1u);
  EXPECT_EQ(sent.forgets[0].number, 1u);
  EXPECT_TRUE(keeper.has_waiting(1));
  keeper.keep_all_now(1);
  ASSERT_EQ(sent.keeps.size(), 4u);
  EXPECT_EQ(sent.keeps[3].what, wire::Kept::kMemory);
  EXPECT_EQ(sent.keeps[3].bytes, 100u);
  young = KeptMemory();
  EXPECT_EQ(sent.forgets.back().number, 2u);
  EXPECT_EQ(keeper.on_way(0), 0u) << "contents are on no device";
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
  EXPECT_EQ(keeper.on_way(0), 100u) << "what is exported holds the memory";
  EXPECT_FALSE(keeper.wait_forgotten(1));
  ended.set_value();
  EXPECT_TRUE(keeper.wait_forgotten(60'000) || keeper.on_way(0) == 0);
  EXPECT_TRUE(sent.keeps.empty());
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

// ---- A session that is made again in another worker ---------------------------------------------

// The session of the fixture, and the same one in the next worker, which the server has given what
// it has kept.
class AdoptedMemoryTest : public SessionFixture {
 protected:
  AdoptedMemoryTest() : next_worker_(clock_) {}
  void prepare() override {
    worker_parts_.keeper = std::make_unique<Keeper>(
        100, kLater, [this](std::span<const std::byte> message, std::span<const int> fds) {
          wire::Keep keep;
          wire::Forget forget;
          if (wire::read_message(message, &keep).ok()) {
            EXPECT_EQ(fds.size(), 1u);
            kept_[keep.number] = keep;
          } else if (wire::read_message(message, &forget).ok()) {
            kept_.erase(forget.number);
          }
          return true;
        });
    next_worker_.keeper = std::make_unique<Keeper>(100, kLater, next_sent_.send());
    next_worker_.partitions =
        std::make_shared<SmPartitions>(driver_.table(), *devices_, gate_, next_worker_.descriptors);
  }
  void SetUp() override {
    SessionFixture::SetUp();
    journal_ = make_empty_journal();
    ASSERT_TRUE(session_->core.journal.open(journal_file()).ok());
  }
  void TearDown() override {
    if (next_ != nullptr) {
      next_->drain();
      next_->release();
      next_.reset();
    }
    next_worker_.partitions.reset();
    SessionFixture::TearDown();
  }
  [[nodiscard]] UniqueFd journal_file() const {
    return UniqueFd(fcntl(journal_.get(), F_DUPFD_CLOEXEC, 0));
  }
  // All that is kept is given, but not `lost`.
  Status adopt_in_next(uint64_t lost = 0) {
    session_->memory.keep_all_now();
    for (const auto& [number, keep] : kept_) {
      if (number == lost) continue;
      next_worker_.keeper->on_give(
          {.session = keep.session, .number = number, .bytes = keep.bytes, .device = keep.device},
          any_file());
    }
    SessionInfo info;
    info.id = 1;
    info.window = kWindow;
    info.limits.client.memory_limit[0] = limit();
    next_ = std::make_unique<SessionParts>(driver_.table(), *devices_, gate_, next_worker_, info);
    next_->core.view = wire::ChannelView(channel_.address());
    EXPECT_TRUE(next_->memory.open_channel().ok());
    EXPECT_TRUE(next_->core.journal.open(journal_file()).ok());
    driver_.take_calls();
    Adopted adopted;
    return adopt(*next_, &adopted);
  }

  UniqueFd journal_;
  std::map<uint64_t, wire::Keep> kept_;  // by number
  Sent next_sent_;
  WorkerParts next_worker_;
  std::unique_ptr<SessionParts> next_;
};

TEST_F(AdoptedMemoryTest, MemoryIsImportedAndNotCreated) {
  map(kBase, kUnit);
  map(kBase + kUnit, 2 * kUnit);
  EXPECT_TRUE(send(wire::PhysicalCreate{1, 0, 2 * kUnit, 0}).ok());
  EXPECT_TRUE(send(wire::PhysicalMap{kBase + 4 * kUnit, 2 * kUnit, 0, 1}).ok());
  EXPECT_TRUE(send(wire::MemoryUnmap{kBase, kUnit, 0, 0}).ok());
  const Status status = adopt_in_next();
  ASSERT_TRUE(status.ok()) << status.message();
  const auto calls = this->calls();
  EXPECT_EQ(std::ranges::count(calls, "import"), 2) << "each object once";
  EXPECT_EQ(std::ranges::count(calls, "create") + std::ranges::count(calls, "create rdma"), 0);
  EXPECT_EQ(next_->memory.granted(0), 4 * kUnit);
  EXPECT_TRUE(next_->memory.contains(kBase + kUnit, 2 * kUnit, true));
  EXPECT_FALSE(next_->memory.contains(kBase, 1));
  EXPECT_TRUE(next_sent_.keeps.empty()) << "the server has it already";
  EXPECT_TRUE(send_to(*next_, wire::MemoryUnmap{kBase + kUnit, 2 * kUnit, 0, 0}).ok());
  ASSERT_EQ(next_sent_.forgets.size(), 1u);
  EXPECT_EQ(next_sent_.forgets[0].number, 2u);
}

TEST_F(AdoptedMemoryTest, WithoutItsMemoryASessionIsLost) {
  map(kBase, kUnit);
  map(kBase + kUnit, kUnit);
  EXPECT_EQ(adopt_in_next(2).code(), CUDA_ERROR_INVALID_HANDLE);
}

constexpr unsigned char kKey[wire::kShareKeyBytes] = {1, 2, 3};

TEST(KeeperTest, WhatIsSharedIsKeptBefore) {
  Sent sent;
  Keeper keeper(10, kLater, sent.send());
  const KeptMemory young = keeper.keep(1, 7, 100, 0, [] { return any_file(); });
  EXPECT_TRUE(sent.keeps.empty());
  keeper.share(young, kKey);
  ASSERT_EQ(sent.keeps.size(), 1u);
  EXPECT_EQ(sent.keeps[0].number, 7u);
  keeper.share(young, kKey);
  EXPECT_EQ(sent.keeps.size(), 1u);
  keeper.share(KeptMemory(), kKey);
  keeper.withdraw(1, kKey);
  ASSERT_EQ(sent.shares.size(), 3u) << "what is not kept is not shared";
  EXPECT_EQ(sent.shares[0].session, 1u);
  EXPECT_EQ(sent.shares[0].number, 7u);
  EXPECT_TRUE(std::ranges::equal(sent.shares[0].key, kKey));
  EXPECT_EQ(sent.shares[2].number, 0u);
}

TEST(KeeperTest, WhatOthersShareIsFoundByItsKey) {
  for (const bool is_there : {true, false}) {
    Sent sent;
    Keeper keeper(10, kLater, sent.send());
    auto found = std::async(std::launch::async, [&] { return keeper.find(kKey); });
    const wire::FindMemory asked = sent.find.get_future().get();
    EXPECT_TRUE(std::ranges::equal(asked.key, kKey));
    wire::Give give{.what = wire::Kept::kShared, .number = asked.ticket + 1, .bytes = 5};
    keeper.on_give(give, any_file());  // of another question
    give.number = asked.ticket;
    give.bytes = 77;
    keeper.on_give(give, is_there ? any_file() : UniqueFd());
    const Keeper::Found answer = found.get();
    EXPECT_EQ(answer.memory.valid(), is_there);
    EXPECT_EQ(answer.bytes, 77u);
    EXPECT_EQ(keeper.take(0, asked.ticket).bytes, 0u) << "it is not a session's that moves";
  }
}

TEST(KeeperTest, NothingIsFoundWithoutAServer) {
  Sent sent;
  sent.works = false;
  Keeper keeper(10, kLater, sent.send());
  EXPECT_FALSE(keeper.find(kKey).memory.valid());
}

TEST_F(AdoptedMemoryTest, WhatTheSessionHadFreedIsForgotten) {
  map(kBase, kUnit);
  EXPECT_TRUE(send(wire::MemoryUnmap{kBase, kUnit, 0, wire::kUnmapKeep}).ok());
  ASSERT_TRUE(adopt_in_next().ok());
  EXPECT_EQ(next_->memory.granted(0), 0u);
  ASSERT_EQ(next_sent_.forgets.size(), 1u);
  EXPECT_EQ(next_sent_.forgets[0].number, 1u);
}

TEST_F(AdoptedMemoryTest, ImportedMemoryNeedsNoDescriptorOfTheProgram) {
  session_->physical.inbox.put(5, any_file());
  EXPECT_TRUE(send(wire::PhysicalImport{.physical = 1, .ticket = 5}).ok());
  EXPECT_TRUE(send(wire::PhysicalMap{kBase, kUnit, 0, 1}).ok());
  const Status status = adopt_in_next();
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(next_->memory.granted(0), kUnit);
}

TEST_F(AdoptedMemoryTest, AnExtentLiesWhereItWas) {
  EXPECT_TRUE(send(wire::AddressReserve{kUnit, kUnit}).ok());
  const uint64_t first = reply<wire::AddressReserve::Reply>().address;
  EXPECT_TRUE(send(wire::AddressReserve{kUnit, kUnit}).ok());
  const uint64_t second = reply<wire::AddressReserve::Reply>().address;
  EXPECT_TRUE(send(wire::AddressFree{first, kUnit}).ok());
  const Status status = adopt_in_next();
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_TRUE(next_worker_.addresses.claim(first, kUnit)) << "nobody has it there";
  next_worker_.addresses.release(first);
  EXPECT_FALSE(next_worker_.addresses.claim(second, kUnit));
}

TEST_F(AdoptedMemoryTest, SharedMemoryIsSharedAgainUnderItsKey) {
  map(kBase, 2 * kUnit);
  map(kBase + 4 * kUnit, kUnit);
  EXPECT_TRUE(send(wire::MemoryPublish{kBase, 2 * kUnit}).ok());
  const wire::ShareKey key = reply<wire::MemoryPublish::Reply>().key;
  EXPECT_TRUE(send(wire::MemoryPublish{kBase + 4 * kUnit, kUnit}).ok());
  const wire::ShareKey withdrawn = reply<wire::MemoryPublish::Reply>().key;
  EXPECT_TRUE(send(wire::MemoryPublish{kBase + 4 * kUnit, kUnit}).ok());
  const wire::ShareKey freed = reply<wire::MemoryPublish::Reply>().key;
  EXPECT_TRUE(send(wire::MemoryWithdraw{withdrawn}).ok());
  EXPECT_TRUE(send(wire::MemoryOpen{key, kBase + 8 * kUnit, 2 * kUnit}).ok());
  EXPECT_TRUE(send(wire::MemoryUnmap{kBase + 4 * kUnit, kUnit, 0, 0}).ok());
  EXPECT_EQ(session_->core.journal.stays(), "");
  const Status status = adopt_in_next();
  ASSERT_TRUE(status.ok()) << status.message();
  const std::shared_ptr<Physical> shared = next_worker_.exchange.memory(key);
  ASSERT_NE(shared, nullptr);
  EXPECT_EQ(shared->bytes, 2 * kUnit);
  EXPECT_TRUE(shared->is_shared()) << "others may have it under another handle";
  EXPECT_EQ(next_worker_.exchange.memory(withdrawn), nullptr);
  EXPECT_EQ(next_worker_.exchange.memory(freed), nullptr);
  EXPECT_TRUE(next_->memory.contains(kBase + 8 * kUnit, 2 * kUnit, true));
  EXPECT_TRUE(send_to(*next_, wire::MemoryWithdraw{key}).ok());
}

}  // namespace
}  // namespace openmps::worker
