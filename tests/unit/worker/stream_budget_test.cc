// SPDX-License-Identifier: Apache-2.0
// The driver gets only so much of a stream's work at a time, in the program's order.
#include <algorithm>
#include <array>
#include <atomic>
#include <iterator>
#include <vector>

#include "session_fixture.h"

namespace openmps::worker {
namespace {

using wire::StreamKind;

class StreamBudgetTest : public SessionFixture {
 protected:
  void prepare() override {
    worker_parts_.performance.budgets = true;
    worker_parts_.performance.batches = false;
  }
  void SetUp() override {
    SessionFixture::SetUp();
    load_module();
    create_stream(1, StreamKind::kNonBlocking);
    create_stream(2, StreamKind::kNonBlocking);
    EXPECT_TRUE(send(wire::EventCreate{1, 0, 0}).ok());
  }
  // How many calls begin so since the last time.
  size_t count(const std::string& what) {
    const Calls made = calls();
    return static_cast<size_t>(std::count_if(
        made.begin(), made.end(), [&](const auto& call) { return call.rfind(what, 0) == 0; }));
  }
  // The stream's first use, which makes it s<number> of the driver's, and teaches how long the
  // kernel takes: no time.
  void learn(wire::Id stream) {
    launch(stream);
    EXPECT_TRUE(send(wire::Fence{stream, stream, 1}).ok());
    // Once to see the end, once more to see that nothing has come since.
    for (int i = 0; i < 2; ++i) look();
    EXPECT_FALSE(session_->streams.has_streams_to_look_at());
    const uint32_t number = session_->modules.functions().find(1)->duration(1);
    session_->streams.durations.learn({&number, 1}, {1'000'000'000, 0, 0});
    calls();
  }
  // A kernel that is known to take long and does not end before the driver's stream is let go.
  void launch_long(wire::Id stream) {
    learn(stream);
    const uint32_t number = session_->modules.functions().find(1)->duration(1);
    session_->streams.durations.learn({&number, 1}, {500, 10 * kShortTermNs, 10 * kShortTermNs});
    driver_.hold(stream, true);
    launch(stream);
  }
  // When the next look at what runs is due.
  void look(int times = 1) {
    for (; times != 0; --times) {
      const uint64_t next = session_->streams.next_look_ns();
      if (next > now()) clock_.advance(next - now());
      session_->streams.look_at_streams(now());
    }
  }
  void advance() {
    if (session_->streams.has_streams_to_look_at()) look();
    session_->submitter.advance();
  }
  [[nodiscard]] uint64_t now() const { return clock_.now_ns(); }
  // So many streams' first items are held back for that reason, as the last look said.
  uint64_t standing(wire::HeldFor why) {
    return session_->core.usage.row().held_now[static_cast<size_t>(why)];
  }
  // Looks until nothing is held: a full budget is not looked at for a while.
  void settle() {
    for (int i = 0; i < 2000 && !session_->backlog.empty(); ++i) {
      advance();
      clock_.advance(50'000);
    }
    EXPECT_TRUE(session_->backlog.empty());
  }
};

TEST_F(StreamBudgetTest, OfWorkOfUnknownLengthTheDriverGetsLittle) {
  launch(1);
  driver_.hold(1, true);
  for (int i = 1; i < 10; ++i) launch(1);
  EXPECT_EQ(count("launch s1"), kBudgetUnknown);
  EXPECT_EQ(session_->backlog.size(), 10u - kBudgetUnknown);
  EXPECT_EQ(session_->core.view.executor().held, 10u - kBudgetUnknown);
  advance();
  EXPECT_EQ(count("launch s1"), 0u) << "none has ended";
  driver_.hold(1, false);
  settle();
  EXPECT_EQ(count("launch s1"), 10u - kBudgetUnknown);
}

// Of a long copy over the bus it is seen how long it takes; a short one teaches nothing.
TEST_F(StreamBudgetTest, LongCopiesTeachHowFastTheBusIs) {
  constexpr uint64_t kLong = 64 * wire::kMiB;
  map(kBase, kLong);
  ASSERT_TRUE(send(wire::HostRegister{kPinned, kLong}).ok());
  const auto known = [&](uint32_t number) {
    return session_->streams.durations.of({.learnt = number});
  };
  // So many that the budget fills, and is looked at; the driver's copies take no time here.
  const auto copy = [&](uint64_t to, uint64_t from, uint64_t bytes) {
    for (uint64_t copied = 0; copied < 4 * kLong; copied += bytes) {
      EXPECT_TRUE(send(wire::Memcpy{1, 0, to, from, bytes}).ok());
    }
    EXPECT_TRUE(session_->backlog.empty());
  };
  copy(kBase, kPinned, wire::kMiB);
  copy(kPinned, kBase, wire::kMiB);
  EXPECT_EQ(known(Durations::kMiBToDevice), Durations::kBusNsPerMiB);
  EXPECT_EQ(known(Durations::kMiBFromDevice), Durations::kBusNsPerMiB);
  copy(kBase, kPinned, kLong);
  EXPECT_LT(known(Durations::kMiBToDevice), Durations::kBusNsPerMiB);
  EXPECT_EQ(known(Durations::kMiBFromDevice), Durations::kBusNsPerMiB);
  copy(kPinned, kBase, kLong);
  EXPECT_LT(known(Durations::kMiBFromDevice), Durations::kBusNsPerMiB);
}

// Whoever asks with it whether the driver takes it is told.
TEST_F(StreamBudgetTest, AHeldLaunchIsJudgedBeforehand) {
  launch(1);
  driver_.hold(1, true);
  for (uint32_t i = 1; i < kBudgetUnknown; ++i) launch(1);
  calls();
  driver_.fail("node", CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(send(launch_of(1), std::string(16, '\0')).code(), CUDA_ERROR_INVALID_VALUE);
  EXPECT_TRUE(session_->backlog.empty());
  driver_.fail("node", CUDA_SUCCESS);
  calls();
  for (int i = 0; i < 2; ++i) launch(1);
  EXPECT_EQ(session_->backlog.size(), 2u);
  EXPECT_EQ(count("kernel behind"), 1u) << "for a shape that it has taken it is not asked again";
  wire::Launch other = launch_of(1);
  other.block[0] = 64;
  driver_.fail("node", CUDA_ERROR_INVALID_VALUE);
  EXPECT_FALSE(send(other, std::string(16, '\0')).ok());
  driver_.fail("node", CUDA_SUCCESS);
  driver_.hold(1, false);
  settle();
}

TEST_F(StreamBudgetTest, TimesAreLearntByTheSizeOfTheGrid) {
  learn(1);
  Function& function = *session_->modules.functions().find(1);
  EXPECT_TRUE(session_->streams.durations.is_known({.learnt = function.duration(1)}));
  wire::Launch large = launch_of(1);
  large.grid[0] = 1000;
  EXPECT_TRUE(send(large, std::string(16, '\0')).ok());
  EXPECT_NE(function.duration(1000), function.duration(1));
  EXPECT_EQ(function.duration(1000), function.duration(1023));
  EXPECT_FALSE(session_->streams.durations.is_known({.learnt = function.duration(1000)}));
  // Whatever a client calls a grid.
  EXPECT_EQ(function.duration(0), function.duration(1));
  EXPECT_EQ(function.duration(~0ull), function.duration(1ull << 40));
}

// Credits are not counted, so no stream is looked at for the sake of its credit.
class UnconnectedTest : public StreamBudgetTest {
 protected:
  void prepare() override {
    StreamBudgetTest::prepare();
    worker_parts_.performance.connections = false;
  }
};

TEST_F(UnconnectedTest, AFullWindowIsLookedAtAlsoAfterSomethingElseCouldGo) {
  learn(1);
  driver_.hold(1, true);
  for (uint32_t i = 0; i <= kBudgetItems; ++i) launch(1);
  EXPECT_EQ(session_->backlog.size(), 1u);
  session_->submitter.flush();
  EXPECT_TRUE(send(wire::EventRecord{1, 1, wire::kNoFence}).ok());
  EXPECT_TRUE(session_->backlog.empty());
  launch(1);
  driver_.hold(1, false);
  settle();
}

TEST_F(StreamBudgetTest, ManyShortItemsAreCounted) {
  learn(1);
  driver_.hold(1, true);
  constexpr uint32_t kMore = 100;
  for (uint32_t i = 0; i < kBudgetItems + kMore; ++i) launch(1);
  EXPECT_EQ(count("launch s1"), kBudgetItems);
  EXPECT_EQ(session_->backlog.size(), kMore);
  driver_.hold(1, false);
  settle();
  EXPECT_EQ(count("launch s1"), kMore);
}

// Only a budget without room is looked at by itself.
TEST_F(StreamBudgetTest, WhatWaitsForAValueAloneHasNoTimeToLookAt) {
  launch(1);
  driver_.hold(1, true);
  for (int i = 1; i < 10; ++i) launch(1);
  EXPECT_NE(session_->backlog.next_look_ns(), ~0ull);
  driver_.hold(1, false);
  settle();
  EXPECT_TRUE(send(wire::StreamWaitValue{{kStaging + 4096, 1, 4, 0}, 1}).ok());
  launch(1);
  session_->submitter.advance();
  EXPECT_EQ(session_->backlog.size(), 2u);
  EXPECT_EQ(session_->backlog.next_look_ns(), ~0ull);
}

TEST_F(StreamBudgetTest, AFenceOfTheProgramIsAMark) {
  launch(1);
  EXPECT_TRUE(send(wire::Fence{1, 0, 5}).ok());
  launch(1);
  EXPECT_EQ(count("record"), 0u);
  launch(1);
  EXPECT_EQ(count("record"), 1u) << "behind what is not known yet, once more comes";
}

// What comes next has no part in how long that took.
TEST_F(StreamBudgetTest, AMarkIsBetweenWhatItDivides) {
  launch(1);
  calls();
  launch(1);
  const Calls made = calls();
  ASSERT_FALSE(made.empty());
  EXPECT_EQ(made.back(), "launch s1 16");
  EXPECT_TRUE(std::any_of(made.begin(), made.end(),
                          [](const auto& call) { return call.rfind("record", 0) == 0; }));
}

// What follows is not taken to begin when the end is seen.
TEST_F(StreamBudgetTest, AnEndThatIsSeenLateIsDatedBack) {
  constexpr uint64_t kLength = 900'000;
  learn(1);
  const uint32_t number = session_->modules.functions().find(1)->duration(1);
  session_->streams.durations.learn({&number, 1}, {500, kLength, kLength});
  driver_.hold(1, true);
  launch(1);
  EXPECT_TRUE(send(wire::Fence{1, 0, 5}).ok());
  launch(1);
  const uint64_t begin = now();
  session_->core.view.fence(0).value = 5;  // the first one's end
  Stream& stream = *session_->streams.streams().find(1);
  stream.budget->look(begin + 2 * kLength - 1);
  EXPECT_GT(stream.listed->ends_ns, kLength);
  EXPECT_LE(stream.listed->ends_ns, begin + 2 * kLength);
  driver_.hold(1, false);
  settle();
}

TEST_F(StreamBudgetTest, OthersGoOn) {
  learn(1);
  learn(2);
  driver_.hold(1, true);
  for (uint32_t i = 0; i <= kBudgetItems; ++i) launch(1);
  calls();
  launch(2);
  EXPECT_TRUE(send(wire::Fence{2, 1, 5}).ok());
  EXPECT_EQ(calls(), (Calls{"launch s2 16", "write s2 5"}));
  EXPECT_TRUE(send(wire::Fence{1, 0, 5}).ok());
  EXPECT_EQ(calls(), Calls{}) << "behind what is held";
  driver_.hold(1, false);
  settle();
  EXPECT_EQ(calls().back(), "write s1 5");
}

// It would hold a hardware queue until then.
TEST_F(StreamBudgetTest, BehindLongWorkNothingIsQueued) {
  launch_long(1);
  EXPECT_TRUE(send(wire::Fence{1, 0, 5}).ok());
  EXPECT_EQ(count("write"), 0u);
  EXPECT_EQ(session_->backlog.size(), 1u);
  driver_.hold(1, false);
  settle();
  EXPECT_EQ(count("write s1 5"), 1u);
  EXPECT_EQ(session_->core.view.fence(0).value.load(), 5u);
}

// The driver takes its time for the answer that the work has not ended, and meanwhile that ends.
TEST_F(StreamBudgetTest, WhatIsHeldHasATimeToBeLookedAtAgain) {
  launch_long(1);
  EXPECT_TRUE(send(wire::EventRecord{1, 1, wire::kNoFence, 0, 0}).ok());
  EXPECT_EQ(session_->backlog.size(), 1u);
  bool asked = false;
  driver_.after_query = [&] {
    asked = true;
    driver_.hold(1, false);
    clock_.advance(kShortTermNs);
  };
  while (!asked) {
    clock_.advance(10'000);
    session_->submitter.advance();
  }
  EXPECT_EQ(session_->backlog.size(), 1u);
  EXPECT_LE(session_->backlog.next_look_ns(), now());
  settle();
}

TEST_F(StreamBudgetTest, WhoWaitsForAHeldRecordIsHeld) {
  learn(1);
  learn(2);
  driver_.hold(1, true);
  for (uint32_t i = 0; i <= kBudgetItems; ++i) launch(1);
  EXPECT_TRUE(send(wire::EventRecord{1, 1, wire::kNoFence, 0, 0}).ok());
  EXPECT_TRUE(send(wire::StreamWaitEvent{2, 1}).ok());
  launch(2);
  EXPECT_EQ(count("launch s2"), 0u);
  driver_.hold(1, false);
  settle();
  const Calls made = calls();
  EXPECT_EQ(made.back(), "launch s2 16");
  const auto waits = std::find_if(made.begin(), made.end(),
                                  [](const auto& call) { return call.rfind("wait s2", 0) == 0; });
  EXPECT_NE(waits, made.end());
}

// Loading code waits for what is submitted, and that ends by itself.
class GpuWaitsTest : public StreamBudgetTest {
 protected:
  void prepare() override {
    StreamBudgetTest::prepare();
    worker_parts_.performance.holds_waits = false;
  }
};

TEST_F(GpuWaitsTest, LoadingCodeLeavesItHeld) {
  learn(1);
  driver_.hold(1, true);
  for (uint32_t i = 0; i <= kBudgetItems; ++i) launch(1);
  EXPECT_EQ(session_->backlog.size(), 1u);
  session_->submitter.prepare_to_wait();
  EXPECT_EQ(session_->backlog.size(), 1u);
  EXPECT_FALSE(session_->submitter.may_advance());
  // A stream that waits on the GPU may wait for held work.
  EXPECT_TRUE(send(wire::StreamWaitValue{{kStaging + 4096, 1, 4, 0}, 2}).ok());
  EXPECT_EQ(session_->backlog.size(), 1u);
  EXPECT_FALSE(session_->submitter.may_advance()) << "no command waits";
  session_->submitter.prepare_to_wait();
  EXPECT_TRUE(session_->submitter.may_advance());
  EXPECT_EQ(session_->backlog.size(), 1u) << "it goes when it can";
  driver_.hold(1, false);
}

// A kernel runs until the session's stream 1 has gone on, which waits for a value that comes while
// the session loads code: what is held then goes while the load waits.
TEST_F(StreamBudgetTest, HeldWorkGoesOnWhileALoadWaits) {
  auto& word = *reinterpret_cast<uint32_t*>(kStaging + 4096);
  struct Meanwhile {
    SessionParts& session;
    FakeDriver& driver;
    uint32_t& word;
    int calls = 0;
  } meanwhile{*session_, driver_, word};
  GateClient& gate_client = session_->core.gate_client;
  gate_client.meanwhile_context = &meanwhile;
  gate_client.meanwhile = [](void* context) noexcept {
    auto& [session, driver, value, calls] = *static_cast<Meanwhile*>(context);
    ++calls;
    std::atomic_ref(value).store(1);
    if (session.submitter.may_advance()) session.submitter.advance();
    if (session.backlog.empty()) driver.hold(2, false);
  };
  learn(1);
  EXPECT_TRUE(send(wire::StreamWaitValue{{kStaging + 4096, 1, 4, 0}, 1}).ok());
  launch(1);
  driver_.hold(2, true);
  launch(2);
  EXPECT_EQ(session_->backlog.size(), 2u);
  EXPECT_TRUE(send(wire::BlobBegin{5, 2}).ok());
  memcpy(session_->core.view.staging(), "other", 5);
  EXPECT_TRUE(send(wire::BlobData{2, 5, 0, kStaging}).ok());
  EXPECT_TRUE(send(wire::ModuleLoad{2, 2, 0, wire::ModuleKind::kModule, 0, 0}).ok());
  EXPECT_GT(meanwhile.calls, 0);
  EXPECT_TRUE(session_->backlog.empty());
  gate_client.meanwhile = nullptr;
}

// Natively it returns at once, and what it was given still runs.
TEST_F(StreamBudgetTest, AStreamThatIsDestroyedKeepsItsPlaceUntilItsWorkHasGone) {
  learn(1);
  driver_.hold(1, true);
  for (uint32_t i = 0; i < kBudgetItems + 2; ++i) launch(1);
  calls();
  EXPECT_TRUE(send(wire::StreamDestroy{1}).ok());
  EXPECT_EQ(calls(), Calls{});
  EXPECT_EQ(session_->backlog.size(), 2u);
  EXPECT_FALSE(session_->streams.idle());
  create_stream(1, StreamKind::kNonBlocking);
  launch(1);
  EXPECT_EQ(count("launch s2"), 1u) << "another stream of that number has its own place";
  driver_.hold(1, false);
  settle();
  const Calls made = calls();
  EXPECT_EQ(std::ranges::count(made, "launch s1 16"), 2);
  EXPECT_EQ(std::ranges::count(made, "destroy stream"), 1) << "and is at its end";
}

TEST_F(StreamBudgetTest, ASessionEndsWithDestroyedStreamsThatHaveWork) {
  learn(1);
  driver_.hold(1, true);
  for (uint32_t i = 0; i <= kBudgetItems; ++i) launch(1);
  EXPECT_TRUE(send(wire::StreamDestroy{1}).ok());
  session_->backlog.drop();
  driver_.hold(1, false);
  session_->streams.release_all();
  EXPECT_EQ(count("destroy stream"), 1u);
}

TEST_F(StreamBudgetTest, WhatConcernsNothingHeldLeavesIt) {
  learn(1);
  driver_.hold(1, true);
  for (uint32_t i = 0; i <= kBudgetItems; ++i) launch(1);
  ASSERT_EQ(session_->backlog.size(), 1u);
  EXPECT_TRUE(send(wire::LinkCreate{1, 0, 0, 0}).ok());
  EXPECT_TRUE(send(wire::LinkDestroy{1}).ok());
  EXPECT_EQ(session_->backlog.size(), 1u);
  constexpr auto kCache = wire::FunctionSetting::kCacheConfiguration;
  EXPECT_TRUE(send(wire::FunctionSetAttribute{1, kCache, 0, 1, 0}).ok());
  EXPECT_TRUE(session_->backlog.empty()) << "the launches that came before have the old setting";
  driver_.hold(1, false);
}

TEST_F(StreamBudgetTest, AProgramIsToldThatItsStreamIsFull) {
  learn(1);
  driver_.hold(1, true);
  const std::atomic<uint32_t>& is_full = session_->core.view.is_full(1);
  for (size_t i = 1; i < kBudgetItems + kMostHeldItems; ++i) launch(1);
  EXPECT_EQ(is_full.load(), 0u);
  launch(1);
  EXPECT_EQ(is_full.load(), 1u);
  EXPECT_EQ(session_->core.view.is_full(2).load(), 0u) << "others are not";
  launch(2);
  calls();
  launch(2);
  EXPECT_EQ(calls(), Calls{"launch s2 16"});
  while (is_full.load() != 0) {
    clock_.advance(1'000'000);
    driver_.hold(1, false);
    driver_.hold(1, true);
    session_->submitter.advance();
  }
  EXPECT_LT(session_->backlog.size(), kMostHeldItems / 2);
  EXPECT_GE(session_->backlog.size(), kMostHeldItems / 2 - kBudgetItems);
  session_->backlog.drop();
  driver_.hold(1, false);
}

TEST(DurationsTest, WhatWasSeenIsLearnt) {
  Durations durations;
  const uint32_t number = durations.add();
  const Cost cost{.learnt = number};
  EXPECT_FALSE(durations.is_known(cost));
  EXPECT_EQ(durations.of(cost), Durations::kUnknownNs);
  // It ended at some time between 0 and 1 s: nothing is known.
  durations.learn({&number, 1}, {Durations::kUnknownNs, 0, 1'000'000'000});
  EXPECT_FALSE(durations.is_known(cost));
  const uint32_t waiting = durations.add();
  for (int i = 0; i < 100; ++i) durations.miss({&waiting, 1});
  EXPECT_TRUE(durations.is_known({.learnt = waiting})) << "nobody looks for ever";
  EXPECT_EQ(durations.of({.learnt = waiting}), Durations::kUnknownNs);
  durations.learn({&number, 1}, {Durations::kUnknownNs, 40'000'000, 50'000'000});
  EXPECT_EQ(durations.of(cost), 40'000'000u);
  // Three of them took 10 to 90 ms: fewer than expected.
  durations.learn({&number, 1}, {120'000'000, 10'000'000, 90'000'000});
  EXPECT_EQ(durations.of(cost), 30'000'000u);
  durations.learn({&number, 1}, {30'000'000, 0, 0});
  EXPECT_GT(durations.of(cost), 0u);
  EXPECT_EQ(durations.of(Cost{.ns = 7}), 7u);
}

TEST(DurationsTest, NumbersAreGivenAgain) {
  Durations durations;
  constexpr uint32_t kFirst = Durations::kMiBFromDevice + 1;
  for (uint32_t i = kFirst; i < 1u << 16; ++i) ASSERT_EQ(durations.add(), i);
  for (uint32_t i = 0; i < 1u << 17; ++i) {
    const uint32_t number = durations.add();
    ASSERT_GE(number, kFirst) << "copies have these";
    ASSERT_LT(number, 1u << 16);
  }
}

TEST(DurationsTest, CopiesAreLearntByTheMiB) {
  Durations durations;
  const Cost copy{.learnt = Durations::kMiBToDevice, .times = 1024};
  EXPECT_TRUE(durations.is_known(copy)) << "nobody looks for its end all the time";
  EXPECT_EQ(durations.of(copy), 1024u * Durations::kBusNsPerMiB);
  const uint32_t number = copy.learnt;
  durations.learn({&number, 1}, {durations.of(copy), 40'960'000, 41'000'000});
  EXPECT_EQ(durations.of(copy), 40'960'000u);
  EXPECT_EQ(durations.alone(copy), 40'960'000u);
  EXPECT_EQ(durations.of({.learnt = number, .times = 16}), 640'000u);
  EXPECT_EQ(durations.of({.learnt = Durations::kMiBFromDevice}), Durations::kBusNsPerMiB);
}

// ---- Credits for hardware queues ----------------------------------------------------------------

class QueueCreditTest : public StreamBudgetTest {
 protected:
  QueueCredits& credits() { return worker_parts_.credits[0]; }
  // Takes one more, as a stream does that has a claim and gives its credit back soon.
  bool take_one() {
    QueueCredit credit = credits().try_take(true, CreditTerm::kShort);
    if (credit == nullptr) return false;
    taken_.push_back(std::move(credit));
    return true;
  }
  bool can_take(bool has_claim, CreditTerm term) {
    return credits().try_take(has_claim, term) != nullptr;
  }
  void give_one() { taken_.pop_back(); }
  // Others have all of them.
  void SetUp() override {
    StreamBudgetTest::SetUp();
    learn(1);
    learn(2);
    while (take_one()) {
    }
    driver_.hold(1, true);
  }
  void TearDown() override {
    taken_.clear();
    driver_.hold(1, false);
    StreamBudgetTest::TearDown();
  }
  std::vector<QueueCredit> taken_;
};

TEST_F(QueueCreditTest, AllAreThere) { EXPECT_EQ(taken_.size(), 28u); }

TEST(QueueCreditsTest, OfFewQueuesOneIsGivenOut) {
  QueueCredits credits;
  credits.set_queues(2);
  EXPECT_EQ(credits.most(), 1);
  const QueueCredit only = credits.try_take(false, CreditTerm::kUnknown);
  EXPECT_NE(only, nullptr);
  EXPECT_EQ(credits.try_take(true, CreditTerm::kShort), nullptr);
}

TEST(QueueCreditsTest, ACreditGivesItselfBack) {
  QueueCredits credits;
  credits.set_queues(5);
  {
    QueueCredit first = credits.try_take(false, CreditTerm::kUnknown);
    const QueueCredit only = std::move(first);
    EXPECT_EQ(credits.try_take(true, CreditTerm::kShort), nullptr);
  }
  QueueCredit again = credits.try_take(false, CreditTerm::kUnknown);
  ASSERT_NE(again, nullptr);
  static_cast<void>(again.release());  // a callback adopts it
  EXPECT_EQ(credits.try_take(true, CreditTerm::kShort), nullptr);
  static_cast<void>(credits.adopt());
  EXPECT_NE(credits.try_take(true, CreditTerm::kShort), nullptr);
}

// The free ones are left to streams with claims; for a short term to those of a short term.
TEST(QueueCreditsTest, AnUnknownTermWaitsForAllClaims) {
  QueueCredits credits;
  credits.set_queues(8);  // of which four may be taken, two of them for an unknown term
  std::vector<QueueCredit> taken;
  const auto take = [&](bool has_claim, CreditTerm term) {
    QueueCredit credit = credits.try_take(has_claim, term);
    const bool is_there = credit != nullptr;
    if (is_there) taken.push_back(std::move(credit));
    return is_there;
  };
  QueueCreditClaim claim = credits.claim(CreditTerm::kUnknown);
  EXPECT_TRUE(take(false, CreditTerm::kShort));
  EXPECT_TRUE(take(true, CreditTerm::kUnknown));
  taken.pop_back();
  claim = credits.claim(CreditTerm::kShort);
  EXPECT_FALSE(take(false, CreditTerm::kUnknown))
      << "one would be left of three, but one is claimed";
  EXPECT_TRUE(take(false, CreditTerm::kShort));
  EXPECT_TRUE(take(true, CreditTerm::kShort));
  EXPECT_FALSE(take(false, CreditTerm::kShort));
  claim = {};
  EXPECT_FALSE(credits.are_wanted());
  EXPECT_TRUE(take(false, CreditTerm::kShort));
}

TEST_F(QueueCreditTest, WithoutOneItemsGoOneByOne) {
  for (int i = 0; i < 3; ++i) launch(1);
  EXPECT_EQ(count("launch s1"), 1u) << "it needs none";
  EXPECT_EQ(session_->backlog.size(), 2u);
  EXPECT_TRUE(credits().are_wanted());
  driver_.hold(1, false);
  settle();
  EXPECT_EQ(count("launch s1"), 2u);
}

TEST_F(QueueCreditTest, AFenceBehindWorkNeedsOneToo) {
  launch(1);
  EXPECT_TRUE(send(wire::Fence{1, 0, 5}).ok());
  EXPECT_EQ(count("write"), 0u);
  driver_.hold(1, false);
  settle();
  EXPECT_EQ(count("write s1 5"), 1u);
}

TEST_F(QueueCreditTest, OneThatBecomesFreeIsTaken) {
  for (int i = 0; i < 3; ++i) launch(1);
  give_one();
  settle();
  EXPECT_EQ(count("launch s1"), 3u);
  EXPECT_FALSE(credits().are_wanted());
}

TEST_F(QueueCreditTest, WhoHasWaitedComesFirst) {
  for (int i = 0; i < 2; ++i) launch(1);
  give_one();
  EXPECT_FALSE(can_take(false, CreditTerm::kShort));
  EXPECT_TRUE(can_take(true, CreditTerm::kShort));
}

TEST_F(QueueCreditTest, WorkOfUnknownLengthLeavesSomeToOthers) {
  while (taken_.size() > static_cast<size_t>(credits().unknown_limit())) {
    give_one();
  }
  EXPECT_FALSE(can_take(false, CreditTerm::kUnknown));
  EXPECT_TRUE(can_take(false, CreditTerm::kShort));
}

TEST_F(QueueCreditTest, OneThatIsNotUsedIsGivenBack) {
  give_one();
  for (int i = 0; i < 2; ++i) launch(1);
  EXPECT_FALSE(can_take(true, CreditTerm::kShort)) << "it was taken";
  driver_.hold(1, false);
  look(3);
  EXPECT_FALSE(session_->streams.has_streams_to_look_at());
  EXPECT_TRUE(can_take(true, CreditTerm::kShort));
}

// A look each millisecond is enough for a credit, and far too rare to learn a duration.
TEST_F(QueueCreditTest, WorkOfUnknownLengthIsLookedAtSoonAllTheSame) {
  give_one();
  for (int i = 0; i < 2; ++i) launch(1);
  ASSERT_TRUE(session_->streams.has_streams_to_look_at());
  const uint64_t before = session_->streams.next_look_ns();
  session_->modules.functions().find(1)->duration(1) = 0;
  launch(1);
  EXPECT_LT(session_->streams.next_look_ns(), before);
}

// With work without end a stream would keep it for ever.
TEST_F(QueueCreditTest, OneThatOthersWantGoesRound) {
  give_one();
  for (int i = 0; i < 2; ++i) launch(1);
  QueueCreditClaim claim = credits().claim(CreditTerm::kShort);
  clock_.advance(6'000'000);  // longer than a turn
  for (uint32_t i = 0; i < kBudgetItems / 4; ++i) launch(1);
  EXPECT_FALSE(session_->backlog.empty()) << "it takes no more until all has ended";
  driver_.hold(1, false);
  advance();
  EXPECT_TRUE(can_take(true, CreditTerm::kShort));
  claim = {};
  settle();
}

// A fence holds a hardware queue for as long as what is before it runs, which nobody knew.
TEST_F(QueueCreditTest, WithSomethingBehindItALongKernelKeepsIt) {
  give_one();
  launch(1);
  EXPECT_TRUE(send(wire::Fence{1, 0, 5}).ok());
  EXPECT_EQ(count("write s1 5"), 1u);
  clock_.advance(2 * kShortTermNs);
  session_->streams.look_at_streams(now());
  EXPECT_TRUE(session_->streams.streams().find(1)->budget->has_credit());
}

// A kernel of a tenth of a second, by itself, in a stream that has a credit.
class LongKernelTest : public QueueCreditTest {
 protected:
  static constexpr uint64_t kLength = 100'000'000;
  void SetUp() override {
    QueueCreditTest::SetUp();
    give_one();
    for (int i = 0; i < 2; ++i) launch(1);
    driver_.hold(1, false);
    look();
    driver_.hold(1, true);
    make_long();
    launch(1);
    ASSERT_TRUE(has_credit(1));
  }
  // By now the kernel is known to take so long.
  void make_long() {
    const uint32_t number = session_->modules.functions().find(1)->duration(1);
    Durations& durations = session_->streams.durations;
    durations.learn({&number, 1}, {durations.of({.learnt = number}), kLength, kLength});
  }
  bool has_credit(wire::Id stream) {
    return session_->streams.streams().find(stream)->budget->has_credit();
  }
};

TEST_F(LongKernelTest, HoldsNoHardwareQueueByItselfAndGivesTheRightBack) {
  look();
  EXPECT_FALSE(has_credit(1));
}

TEST_F(LongKernelTest, ThatIsLateIsTakenToBeTwiceAsLateAtLast) {
  const Stream& stream = *session_->streams.streams().find(1);
  const uint64_t end = stream.listed->ends_ns;
  stream.budget->look(end + kShortTermNs);
  EXPECT_TRUE(has_credit(1)) << "it should be over soon";
  stream.budget->look(end + kShortTermNs + 1);
  EXPECT_FALSE(has_credit(1));
}

// Stream 2 has a short kernel, and its next one would keep the credit for as long as it runs.
TEST_F(LongKernelTest, LeavesTheLastRightsToWhatGoesQuickly) {
  look();  // stream 1 gives its credit back
  driver_.hold(2, true);
  const uint32_t number = session_->modules.functions().find(1)->duration(1);
  session_->streams.durations.learn({&number, 1}, {kLength, 0, 0});
  launch(2);
  make_long();
  launch(2);
  EXPECT_EQ(session_->backlog.size(), 1u);
  EXPECT_FALSE(has_credit(2));
  driver_.hold(2, false);
}

TEST_F(LongKernelTest, IsLookedAtRarely) {
  clock_.advance(20'000'000);
  const uint64_t begin = now();
  session_->streams.look_at_streams(begin);
  EXPECT_GT(session_->streams.next_look_ns() - begin, 2'000'000u) << "twice as long as usual";
}

TEST_F(QueueCreditTest, AStreamThatGoesTakesNoneAlong) {
  give_one();
  driver_.hold(2, true);
  for (int i = 0; i < 2; ++i) launch(1);
  for (int i = 0; i < 2; ++i) launch(2);
  EXPECT_TRUE(credits().are_wanted());
  driver_.hold(1, false);
  driver_.hold(2, false);
  EXPECT_TRUE(send(wire::StreamDestroy{1}).ok());
  EXPECT_TRUE(send(wire::StreamDestroy{2}).ok());
  settle();
  EXPECT_FALSE(credits().are_wanted());
  EXPECT_TRUE(can_take(false, CreditTerm::kShort));
}

// ---- Waits on the GPU ---------------------------------------------------------------------------

// Stream 1 is to wait for stream 2, which has not come to its event.
class OpenWaitTest : public QueueCreditTest {
 protected:
  static constexpr uint64_t kWord = kBase;
  static constexpr uint64_t kHostWord = kStaging + 4096;

  void prepare() override {
    QueueCreditTest::prepare();
    worker_parts_.shares[0].set_policy(fair_share_policy, kFakeSms);
  }
  void SetUp() override {
    QueueCreditTest::SetUp();
    driver_.hold(1, false);
    driver_.hold(2, true);
    EXPECT_TRUE(send(wire::EventRecord{1, 2, wire::kNoFence}).ok());
    map(kBase, wire::kMemoryGranularity);
    driver_.words[kWord] = 0;
    calls();
  }
  void TearDown() override {
    driver_.hold(2, false);
    driver_.words[kWord] = 1;
    QueueCreditTest::TearDown();
  }
  // So many may be taken for what nobody knows the end of.
  void free(int count) {
    for (count += credits().most() - credits().unknown_limit(); count != 0; --count) give_one();
  }
  // All that are left.
  int take_all() {
    int taken = 0;
    while (take_one()) ++taken;
    return taken;
  }
  void wait_for_event(wire::Id stream) { EXPECT_TRUE(send(wire::StreamWaitEvent{stream, 1}).ok()); }
  void wait_for_word(wire::Id stream) {
    EXPECT_TRUE(send(wire::StreamWaitValue{{kWord, 1, 4, CU_STREAM_WAIT_VALUE_EQ}, stream}).ok());
  }
  size_t held() { return session_->backlog.size(); }
  // All that other sessions' streams may still take to wait on the GPU.
  std::vector<WaitCredit> take_waits() {
    std::vector<WaitCredit> taken;
    for (;;) {
      WaitCredit credit = others_[taken.size() / WaitCredits::kMost].try_take(credits());
      if (!credit) return taken;
      taken.push_back(std::move(credit));
    }
  }
  // So many streams may still wait on the GPU, whichever program's they are.
  int free_waits() { return static_cast<int>(take_waits().size()); }

  std::array<WaitCredits, 3> others_;  // of so many sessions
};

TEST_F(OpenWaitTest, OneForAnEventTakesARightUntilItIsOver) {
  free(1);
  wait_for_event(1);
  EXPECT_EQ(count("wait s1"), 1u);
  look(3);
  EXPECT_FALSE(can_take(true, CreditTerm::kUnknown)) << "it has the only one";
  driver_.hold(2, false);
  look(4);
  EXPECT_EQ(take_all(), credits().most() - credits().unknown_limit() + 1);
}

TEST_F(OpenWaitTest, WithoutARightOneForAnEventStaysHere) {
  wait_for_event(1);
  launch(1);
  EXPECT_EQ(held(), 2u);
  EXPECT_TRUE(credits().are_wanted()) << "others give theirs back in time";
  EXPECT_EQ(count("wait s1"), 0u);
  EXPECT_NE(session_->backlog.next_look_ns(), ~0ull);
  driver_.hold(2, false);
  settle();
  const Calls made = calls();
  EXPECT_LT(std::find(made.begin(), made.end(), "wait s1 e1") - made.begin(),
            std::find(made.begin(), made.end(), "launch s1 16") - made.begin())
      << "the GPU sees it, too";
}

TEST_F(OpenWaitTest, ARightThatBecomesFreeLetsItGo) {
  wait_for_event(1);
  EXPECT_EQ(held(), 1u);
  free(1);
  session_->submitter.advance();
  EXPECT_EQ(held(), 0u);
  EXPECT_EQ(count("wait s1"), 1u);
  EXPECT_FALSE(credits().are_wanted());
}

TEST_F(OpenWaitTest, OneForWhatHasBeenReachedNeedsNone) {
  driver_.hold(2, false);
  wait_for_event(1);
  EXPECT_EQ(held(), 0u);
  EXPECT_EQ(count("wait s1"), 1u);
}

TEST_F(OpenWaitTest, TheFirstUseOfAStreamCounts) {
  create_stream(3, StreamKind::kNonBlocking);
  wait_for_event(3);
  EXPECT_EQ(held(), 1u);
  EXPECT_EQ(count("wait s3"), 0u);
}

TEST_F(OpenWaitTest, ASessionHasAsManyAsAProgramMayHaveByItself) {
  free(WaitCredits::kMost + 2);
  for (wire::Id stream = 3; stream < 3 + WaitCredits::kMost + 2; ++stream) {
    create_stream(stream, StreamKind::kNonBlocking);
    wait_for_event(stream);
  }
  EXPECT_EQ(held(), 2u);
  driver_.hold(2, false);
  settle();
  look(4);
  take_all();
  EXPECT_EQ(taken_.size(), static_cast<size_t>(credits().most())) << "all were given back";
}

TEST_F(OpenWaitTest, ARightIsKeptAsLongAsItIsUsed) {
  free(1);
  driver_.hold(2, false);
  wait_for_event(1);
  look(1);
  EXPECT_FALSE(can_take(true, CreditTerm::kUnknown));
  look(1);
  EXPECT_TRUE(can_take(true, CreditTerm::kUnknown));
}

TEST_F(OpenWaitTest, HowLongItLastsSaysNothingAboutWork) {
  const Cost cost{.learnt = session_->modules.functions().find(1)->duration(1)};
  const uint64_t known = session_->streams.durations.of(cost);
  free(1);
  wait_for_event(1);
  launch(1);
  look(1);
  clock_.advance(2'000'000);
  look(1);
  driver_.hold(2, false);
  look(1);
  EXPECT_EQ(session_->streams.durations.of(cost), known);
}

// The stream keeps its queue credit, and works on.
TEST_F(OpenWaitTest, AStreamThatHasWaitedIsNoLongerCounted) {
  free(1);
  for (int i = 0; i < 2; ++i) {
    wait_for_event(1);
    look(1);
  }
  driver_.hold(2, false);
  driver_.hold(1, true);
  for (int i = 0; i < 2; ++i) launch(1);
  look(1);
  EXPECT_FALSE(can_take(true, CreditTerm::kUnknown)) << "it keeps its right";
  EXPECT_EQ(free_waits(), credits().unknown_limit());
}

// Streams 3 and 4 are a legacy and a blocking one of the same context, which come behind each
// other.
class ImpliedWaitTest : public OpenWaitTest {
 protected:
  void SetUp() override {
    OpenWaitTest::SetUp();
    create_stream(3, StreamKind::kLegacy);
    create_stream(4, StreamKind::kBlocking);
    for (const wire::Id stream : {3, 4}) begin(stream);
  }
  void TearDown() override {
    for (uint32_t stream = 3; stream <= 4; ++stream) driver_.hold(stream, false);
    OpenWaitTest::TearDown();
  }
  // The driver has a stream for it, which does not go on.
  void begin(wire::Id stream) {
    EXPECT_TRUE(send(wire::Fence{stream, 0, 1}).ok());
    driver_.hold(static_cast<uint32_t>(stream), true);
    calls();
  }
  // Nobody knows how long the next launches take.
  void forget_durations() { session_->modules.functions().find(1)->duration(1) = 0; }
};

TEST_F(ImpliedWaitTest, WithoutARightABlockingStreamWaitsHereForTheLegacyStream) {
  launch(3);
  launch(4);
  EXPECT_EQ(held(), 1u);
  EXPECT_TRUE(credits().are_wanted());
  EXPECT_EQ(count("wait s4"), 0u);
  EXPECT_NE(session_->backlog.next_look_ns(), ~0ull);
  driver_.hold(3, false);
  settle();
  EXPECT_EQ(count("launch s4"), 1u);
}

TEST_F(ImpliedWaitTest, WithoutARightTheLegacyStreamWaitsHereForBlockingOnes) {
  launch(4);
  launch(3);
  EXPECT_EQ(held(), 1u);
  EXPECT_EQ(count("wait s3"), 0u);
  driver_.hold(4, false);
  settle();
  EXPECT_EQ(count("launch s3"), 1u);
}

TEST_F(ImpliedWaitTest, OneThatIsOverSoonNeedsTheRightToQueueAlone) {
  give_one();
  launch(3);
  launch(4);
  EXPECT_EQ(held(), 0u);
  EXPECT_EQ(count("wait s4"), 1u);
  EXPECT_EQ(take_all(), 0) << "and has it";
  EXPECT_EQ(free_waits(), credits().unknown_limit());
}

TEST_F(ImpliedWaitTest, OneOfWhichNobodyKnowsTheEndIsAnOpenWait) {
  give_one();
  forget_durations();
  launch(3);
  launch(4);
  EXPECT_EQ(held(), 1u);
  free(1);
  session_->submitter.advance();
  EXPECT_EQ(held(), 0u);
  EXPECT_EQ(count("wait s4"), 1u);
  look(2);
  EXPECT_EQ(free_waits(), credits().unknown_limit() - 1) << "until it is over";
}

// Stream 2 waits for nobody by itself, and is not in anybody's way.
TEST_F(ImpliedWaitTest, AnOrderedCopyIsWaitedForHereAsWell) {
  driver_.hold(1, true);
  driver_.hold(2, false);
  EXPECT_TRUE(send(wire::Memcpy{1, wire::kOrderAllStreams, kBase, kBase + 64, 64}).ok());
  launch(2);
  EXPECT_EQ(held(), 1u);
  EXPECT_EQ(count("wait s2"), 0u);
  driver_.hold(1, false);
  settle();
  EXPECT_EQ(count("launch s2"), 1u);
}

TEST_F(ImpliedWaitTest, TheEndOfADestroyedStreamCounts) {
  give_one();
  launch(4);
  EXPECT_TRUE(send(wire::StreamDestroy{4}).ok());
  launch(3);
  EXPECT_EQ(held(), 1u) << "and nobody knows when it comes";
  driver_.hold(4, false);
  settle();
  EXPECT_EQ(count("launch s3"), 1u);
}

TEST_F(ImpliedWaitTest, ARefusalIsForgottenWhenItGoes) {
  launch(3);
  launch(4);
  EXPECT_EQ(held(), 1u);
  session_->submitter.advance();
  EXPECT_EQ(standing(wire::HeldFor::kQueueCredit), 1u);
  give_one();
  session_->submitter.advance();
  EXPECT_EQ(held(), 0u);
  EXPECT_EQ(standing(wire::HeldFor::kQueueCredit), 0u);
}

// What blocking streams are given behind a fence of the legacy stream may wait for whoever waits
// for that fence.
TEST_F(ImpliedWaitTest, AFenceDoesNotWaitHere) {
  driver_.hold(3, false);
  launch(4);
  EXPECT_TRUE(send(wire::Fence{3, 3, 5}).ok());
  EXPECT_EQ(held(), 0u);
  EXPECT_EQ(count("wait s3"), 1u);
  EXPECT_TRUE(send(wire::Fence{4, 4, 5}).ok()) << "that of a blocking stream waits for nobody";
}

// The fence waits for stream 4, whose work may depend on that of stream 5.
TEST_F(ImpliedWaitTest, ThatForTheLegacyStreamIsOverWhateverAFenceOfItWaitsFor) {
  create_stream(5, StreamKind::kBlocking);
  begin(5);
  driver_.hold(3, false);
  launch(3);
  launch(4);
  EXPECT_TRUE(send(wire::Fence{3, 3, 5}).ok());
  EXPECT_EQ(count("wait s3"), 1u);
  launch(5);
  EXPECT_EQ(held(), 0u);
  EXPECT_EQ(count("launch s5"), 1u);
  driver_.hold(5, false);
}

// The pause between two looks is for both.
TEST_F(ImpliedWaitTest, OneBesideOneForAnEventIsSeenToBeOverAsWell) {
  launch(3);
  wait_for_event(4);
  EXPECT_EQ(held(), 1u);
  driver_.hold(2, false);
  driver_.hold(3, false);
  settle();
  EXPECT_EQ(count("wait s4"), 2u);
}

// Work that may queue and may not wait gives the credit to queue back.
TEST_F(ImpliedWaitTest, ARefusedWaitTakesNoCredit) {
  launch(4);
  free(1);
  launch(3);
  ASSERT_EQ(held(), 0u) << "it has the credit";
  forget_durations();
  launch(3);
  launch(4);
  ASSERT_EQ(held(), 1u);
  while (taken_.size() > 1) give_one();
  const std::vector<WaitCredit> waits = take_waits();
  session_->submitter.advance();
  ASSERT_EQ(held(), 1u);
  EXPECT_FALSE(session_->streams.streams().find(4)->budget->has_credit());
  EXPECT_FALSE(credits().are_wanted());
  for (const uint32_t stream : {3, 4}) driver_.hold(stream, false);
  settle();
}

TEST(QueueCreditsTest, HalfOfThemAreForWaits) {
  QueueCredits credits;
  std::array<WaitCredits, 3> sessions;
  std::vector<WaitCredit> taken;
  for (int32_t i = 0; i < credits.unknown_limit(); ++i) {
    taken.push_back(sessions[static_cast<size_t>(i / WaitCredits::kMost)].try_take(credits));
    EXPECT_TRUE(taken.back());
  }
  EXPECT_FALSE(sessions[2].try_take(credits));
  taken.pop_back();
  EXPECT_TRUE(sessions[2].try_take(credits));
}

TEST(QueueCreditsTest, ASessionThatIsRefusedByTheDeviceKeepsNothing) {
  QueueCredits credits;
  credits.set_queues(5);  // one, for waits as well
  WaitCredits session;
  const WaitCredit only = session.try_take(credits);
  EXPECT_TRUE(only);
  for (int i = 0; i < 2 * WaitCredits::kMost; ++i) EXPECT_FALSE(session.try_take(credits));
  QueueCredits other_device;
  EXPECT_TRUE(session.try_take(other_device));
}

TEST_F(OpenWaitTest, AStreamThatOnlyWaitsDoesNotCompete) {
  free(1);
  driver_.hold(2, false);
  session_->streams.end_budgets(now());
  const FairShare neighbour(worker_parts_.shares[0], Rank::kNormal, session_->core.bell);
  EXPECT_FALSE(neighbour.is_contested());
  wait_for_word(1);
  EXPECT_EQ(count("await s1"), 1u);
  EXPECT_FALSE(neighbour.is_contested());
  launch(1);
  EXPECT_TRUE(neighbour.is_contested());
  driver_.words[kWord] = 1;
  look(2);
  EXPECT_FALSE(neighbour.is_contested());
  driver_.hold(1, true);
  for (int i = 0; i < 2; ++i) launch(1);  // so that it is looked after
  look(1);
  driver_.words[kWord] = 0;
  wait_for_word(1);
  look(1);
  EXPECT_TRUE(neighbour.is_contested());
  driver_.hold(1, false);
  look(1);
  EXPECT_FALSE(neighbour.is_contested()) << "what it had to do has ended";
}

// The client is asked to run it at once, and once.
TEST_F(OpenWaitTest, AHostFunctionWithoutARightRunsAllTheSame) {
  EXPECT_TRUE(send(wire::HostFunction{1, 2, 7, 3, wire::kAnswersSoon}).ok());
  EXPECT_EQ(held(), 1u);
  wire::CallbackSlot& slot = session_->core.view.callback(2);
  EXPECT_EQ(slot.posted.load(), 1u);
  slot.posted = 0;
  advance();
  EXPECT_EQ(held(), 1u);
  slot.done = 1;
  settle();
  EXPECT_EQ(slot.posted.load(), 0u);
  EXPECT_EQ(session_->core.view.fence(3).value.load(), 7u);
}

TEST_F(OpenWaitTest, ABatchGoesAsFarAsItDoesNotWait) {
  using wire::ValueKind;
  const wire::ValueOperation operations[] = {{{kHostWord, 5, 4, 0}, ValueKind::kWrite},
                                             {{kHostWord + 8, 1, 4, 0}, ValueKind::kWait},
                                             {{kHostWord + 16, 6, 4, 0}, ValueKind::kWrite},
                                             {{kWord, 1, 4, 0}, ValueKind::kWait},
                                             {{kHostWord + 24, 7, 4, 0}, ValueKind::kWrite}};
  const auto at = [](int word) {
    return std::atomic_ref(*reinterpret_cast<uint32_t*>(kHostWord + 8 * word)).load();
  };
  EXPECT_TRUE(send(wire::StreamBatch{1, std::size(operations)},
                   std::string(reinterpret_cast<const char*>(operations), sizeof(operations)))
                  .ok());
  EXPECT_EQ(at(0), 5u);
  EXPECT_EQ(held(), 2u);
  std::atomic_ref(*reinterpret_cast<uint32_t*>(kHostWord + 8)).store(1);
  advance();
  EXPECT_EQ(at(2), 6u);
  EXPECT_EQ(held(), 1u);
  EXPECT_EQ(at(3), 0u);
  driver_.words[kWord] = 1;
  settle();
  EXPECT_EQ(at(3), 7u);
}

TEST_F(OpenWaitTest, AValueInDeviceMemoryIsReadUntilItComes) {
  wait_for_word(1);
  EXPECT_EQ(held(), 1u);
  for (int i = 0; i < 5; ++i) {
    clock_.advance(1'000'000);
    session_->submitter.advance();
  }
  EXPECT_EQ(held(), 1u);
  EXPECT_EQ(count("await s1"), 0u);
  driver_.words[kWord] = 1;
  settle();
  EXPECT_TRUE(session_->words.idle());
  // What was there is not there any more.
  driver_.words[kWord] = 0;
  wait_for_word(1);
  for (int i = 0; i < 3; ++i) {
    clock_.advance(1'000'000);
    session_->submitter.advance();
  }
  EXPECT_EQ(held(), 1u);
}

TEST_F(OpenWaitTest, AValueInDeviceMemoryIsReadOnceAtATime) {
  driver_.hold(3, true);  // the stream that reads
  wait_for_word(1);
  for (int i = 0; i < 5; ++i) {
    session_->submitter.advance();
    clock_.advance(1'000'000);
  }
  EXPECT_EQ(count("copy s3 4"), 1u);
  driver_.hold(3, false);
}

// The copy that reads it would fault for everybody.
TEST_F(OpenWaitTest, MemoryThatIsReadIsUnmappedBehindThat) {
  wait_for_word(1);
  driver_.hold(3, true);  // the stream that reads
  session_->submitter.advance();
  while (session_->words.idle()) {
    clock_.advance(10'000);
    session_->submitter.advance();
  }
  bool asked = false;
  driver_.after_query = [&] {
    asked = true;
    driver_.hold(3, false);
  };
  EXPECT_TRUE(send(wire::MemoryUnmap{kBase, wire::kMemoryGranularity, 0, wire::kUnmapAtOnce}).ok());
  EXPECT_TRUE(asked);
  EXPECT_TRUE(session_->words.idle());
  session_->backlog.drop();
}

// However many there are, the GPU waits for no more of them than may wait at once.
TEST_F(OpenWaitTest, ThousandsThatWaitStayHere) {
  constexpr wire::Id kStreams = 3000;
  for (wire::Id stream = 10; stream < 10 + kStreams; ++stream) {
    create_stream(stream, StreamKind::kNonBlocking);
    wait_for_word(stream);
  }
  EXPECT_GE(held(), kStreams - WaitCredits::kMost);
  EXPECT_LE(count("await"), WaitCredits::kMost);
  EXPECT_LE(count("stream 0"), SessionCore::kFew + 2)
      << "streams that wait need none of the driver's";
  session_->backlog.drop();
}

}  // namespace
}  // namespace openmps::worker
