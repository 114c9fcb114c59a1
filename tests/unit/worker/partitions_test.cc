// SPDX-License-Identifier: Apache-2.0
// Sessions that are limited to a part of the device: which SMs they get, and that all their kernels
// stay there.
#include "base/clock.h"
#include "session_fixture.h"
#include "wire/commands/green.h"
#include "worker/device/cold_lane.h"

namespace openmps::worker {
namespace {

SmGroups groups(std::initializer_list<size_t> numbers) {
  SmGroups made;
  for (const size_t number : numbers) made.set(number);
  return made;
}

class PartitionTest : public SessionFixture {
 protected:
  using Member = SmPartitions::Member;
  [[nodiscard]] uint32_t sms() const override { return 6; }
  // A session with so many SMs at most, until the end of the test.
  Member& join(uint32_t sms, uint32_t reservation = 0) {
    return join(SmTerms{.sms = sms, .reservation = reservation});
  }
  Member& join(const SmTerms& terms) {
    members_.push_back(std::make_unique<Member>(0, terms, changes_));
    const Status status = worker_parts_.partitions->join(*members_.back(), nullptr);
    EXPECT_TRUE(status.ok()) << status.message();
    return *members_.back();
  }
  void leave(Member& member) {
    worker_parts_.partitions->leave(member);
    std::erase_if(members_, [&](const auto& one) { return one.get() == &member; });
  }
  // Whatever work it had: all of that was long ago.
  SmPart part(Member& member) {
    constexpr uint64_t kMuchLater = ~0ull;
    return worker_parts_.partitions->part(member, kMuchLater);
  }
  SmGroups of(Member& member) {
    const SmPart part = this->part(member);
    return part == nullptr ? SmGroups().set() : part->set.groups;
  }
  void TearDown() override {
    while (!members_.empty()) leave(*members_.back());
    SessionFixture::TearDown();
  }

  std::atomic<uint64_t> changes_{0};
  std::vector<std::unique_ptr<Member>> members_;
};

TEST_F(PartitionTest, ThoseThatOverlapLeast) {
  Member &first = join(8), &second = join(8), &third = join(4), &fourth = join(4);
  EXPECT_EQ(of(first), groups({0, 1, 2, 3}));
  EXPECT_EQ(of(second), groups({4, 5, 6, 7}));
  EXPECT_EQ(of(third), groups({0, 1}));
  EXPECT_EQ(of(fourth), groups({2, 3})) << "what two have is had already";
  EXPECT_EQ(part(first)->sms, 8u);
}

TEST_F(PartitionTest, EqualSetsAreOneGreenContext) {
  Member &first = join(14), &second = join(14);
  EXPECT_EQ(of(first), groups({0, 1, 2, 3, 4, 5, 6}));
  leave(second);
  Member& third = join(14);
  EXPECT_EQ(of(third), groups({0, 1, 2, 3, 4, 5, 7})) << "the one that nobody has comes first";
  EXPECT_NE(driver_.live().find("greens 2"), std::string::npos) << driver_.live();
}

TEST_F(PartitionTest, SomeAreKeptForWhoComesNext) {
  Member& first = join(6);
  const CUgreenCtx made = part(first)->handle;
  leave(first);
  EXPECT_EQ(part(join(6))->handle, made);
  for (const uint32_t sms : {2, 4, 8, 10, 12, 14, 6, 2, 8, 4, 10, 14, 6, 12}) join(sms);
  while (!members_.empty()) leave(*members_.back());
  EXPECT_NE(driver_.live().find("greens 8"), std::string::npos) << driver_.live();
}

TEST_F(PartitionTest, WhatFailsIsHadByNobody) {
  driver_.fail("green", CUDA_ERROR_OUT_OF_MEMORY);
  Member late(0, {.sms = 6}, changes_);
  EXPECT_EQ(worker_parts_.partitions->join(late, nullptr).code(), CUDA_ERROR_OUT_OF_MEMORY);
  driver_.fail("green", CUDA_SUCCESS);
  EXPECT_EQ(of(join(6)), groups({0, 1, 2}));
}

TEST_F(PartitionTest, AChangeIsToldAndInForceOnceTheSetIsThere) {
  Member &first = join(8), &second = join(0);
  worker_parts_.partitions->set(first, {.sms = 4});
  EXPECT_EQ(of(first), groups({0, 1})) << "of those that it had";
  EXPECT_EQ(changes_, 1u);
  worker_parts_.partitions->set(second, {.sms = 4});
  EXPECT_EQ(of(second), groups({2, 3}));
  worker_parts_.partitions->set(first, {.sms = 0});
  EXPECT_EQ(of(first), SmGroups().set());
  EXPECT_EQ(changes_, 3u);
  worker_parts_.partitions->set(first, {.sms = 0});
  EXPECT_EQ(changes_, 3u) << "nothing has changed";
}

TEST_F(PartitionTest, WhoComesBesideWhatIsStuckHasItOnceThatEnds) {
  CUstream waiting = nullptr;
  driver_.table().cuStreamCreateWithPriority(&waiting, CU_STREAM_NON_BLOCKING, 0);
  driver_.hold(1, true);
  driver_.table().cuMemcpyAsync(0, 0, 1, waiting);
  ContextGate::Stream* const neighbour = gate_.add(waiting, 0);
  neighbour->set_busy();
  neighbour->waits = true;  // for its client
  Member& late = join(8);
  EXPECT_EQ(of(late), SmGroups().set());
  driver_.hold(1, false);
  while (gate_.has_deferred() || gate_.is_collecting()) gate_.run_deferred();
  EXPECT_EQ(of(late), groups({0, 1, 2, 3}));
  EXPECT_EQ(changes_, 1u) << "who has it is told";
  gate_.remove(neighbour);
  driver_.table().cuStreamDestroy_v2(waiting);
}

TEST_F(PartitionTest, WhoCantHaveItKeepsWhatHeHas) {
  Member& first = join(8);
  driver_.fail("green", CUDA_ERROR_OUT_OF_MEMORY);
  worker_parts_.partitions->set(first, {.sms = 4});
  EXPECT_EQ(of(first), groups({0, 1, 2, 3}));
  EXPECT_EQ(changes_, 0u);
  driver_.fail("green", CUDA_SUCCESS);
  worker_parts_.partitions->set(first, {.sms = 6});
  EXPECT_EQ(of(first), groups({0, 1, 2}));
}

TEST_F(PartitionTest, WhoBorrowsHasAllWhileOthersHaveNoWork) {
  constexpr uint64_t kStart = 10'000'000'000, kLater = 1'000'000'000;
  FairShares& shares = worker_parts_.shares[0];
  shares.set_policy(fair_share_policy, 16);
  int wakes = 0;
  SmPartitions& partitions = *worker_parts_.partitions;
  partitions.connect([&wakes] { ++wakes; }, [](uint32_t, Rank) { return false; },
                     &worker_parts_.shares);
  Member& member = join({.sms = 4, .borrows = true});
  EXPECT_GT(wakes, 0) << "it may borrow";
  FairShare other{shares, Rank::kNormal, std::make_shared<Bell>()};
  other.begin_work(16);
  EXPECT_NE(partitions.service(kStart), 0u) << "it looks again";
  EXPECT_EQ(of(member), groups({0, 1})) << "another has work";
  const CUgreenCtx own = part(member)->handle;
  other.end_work(kStart);
  EXPECT_NE(partitions.service(kStart + 1), 0u);
  EXPECT_EQ(of(member), groups({0, 1})) << "it has just had some";
  EXPECT_EQ(partitions.service(kStart + kLater), 0u) << "nobody has to look any more";
  EXPECT_EQ(part(member), nullptr);
  EXPECT_TRUE(partitions.is_lifted(member));
  const int before = wakes;
  other.begin_work(16);
  EXPECT_EQ(wakes, before + 1);
  EXPECT_NE(partitions.service(kStart + 2 * kLater), 0u);
  EXPECT_FALSE(partitions.is_lifted(member));
  EXPECT_EQ(part(member)->handle, own) << "its green context was there all the time";
  other.end_work(kStart + 2 * kLater);
  EXPECT_EQ(partitions.service(kStart + 3 * kLater), 0u);
  partitions.set(member, {.sms = 4});
  (void)partitions.service(kStart + 3 * kLater);
  EXPECT_EQ(of(member), groups({0, 1})) << "it may borrow no longer";
}

TEST_F(PartitionTest, OthersKeepOffWhatIsReserved) {
  Member &whole = join(0), &half = join(8);
  const Result<uint32_t> reserved = worker_parts_.partitions->reserve(7, {.device = 0, .sms = 3});
  ASSERT_TRUE(reserved.ok()) << reserved.status().message();
  EXPECT_EQ(*reserved, 4u) << "whole groups";
  EXPECT_EQ(of(whole), groups({0, 1, 2, 3, 6, 7})) << "of 4 and 5, which fewest had";
  EXPECT_EQ(of(half), groups({0, 1, 2, 3}));
  EXPECT_EQ(of(join(0, 7)), groups({4, 5}));
  EXPECT_EQ(of(join(2, 7)), groups({4})) << "a limit inside of it";
  EXPECT_EQ(of(join(0)), groups({0, 1, 2, 3, 6, 7})) << "who comes later, too";
  worker_parts_.partitions->release(7);
  EXPECT_EQ(of(whole), SmGroups().set());
}

TEST_F(PartitionTest, WhatIsLentIsTakenBackWhileItIsBusy) {
  Member &whole = join(0), &owner = join(0, 7);
  ASSERT_TRUE(worker_parts_.partitions->reserve(7, {.device = 0, .sms = 2, .lends = true}).ok());
  EXPECT_EQ(of(whole), SmGroups().set());
  EXPECT_EQ(of(owner), groups({0}));
  const auto lease = worker_parts_.partitions->lease(owner);
  EXPECT_EQ(worker_parts_.partitions->lease(whole), nullptr);
  EXPECT_EQ(worker_parts_.partitions->service(1), 0u) << "there is nothing to look at";
  int woken = 0;
  worker_parts_.partitions->connect([&woken] { ++woken; }, [](uint32_t, Rank) { return false; });
  worker_parts_.partitions->use(*lease, Rank::kNormal, 5);
  EXPECT_EQ(woken, 1);
  EXPECT_EQ(worker_parts_.partitions->service(6), 5 + kRecentNs);
  EXPECT_EQ(of(whole), groups({1, 2, 3, 4, 5, 6, 7}));
  worker_parts_.partitions->use(*lease, Rank::kNormal, 10);
  EXPECT_EQ(woken, 1) << "it is looked after already";
  const uint64_t end = 10 + kRecentNs;
  EXPECT_EQ(worker_parts_.partitions->service(end - 1), end);
  EXPECT_EQ(of(whole), groups({1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(worker_parts_.partitions->service(end), 0u);
  EXPECT_EQ(of(whole), SmGroups().set());
}

// Partition 7 has the groups 0 and 1, 8 the groups 2 and 3; both lend, and 7 may have six groups.
class SharedPartitionTest : public PartitionTest {
 protected:
  static constexpr uint64_t kStart = 10'000'000'000;
  void SetUp() override {
    PartitionTest::SetUp();
    worker_parts_.shares[0].set_policy(fair_share_policy, 16);
    partitions().connect([this] { ++wakes_; }, [](uint32_t, Rank) { return false; },
                         &worker_parts_.shares);
    ASSERT_TRUE(partitions().reserve(7, {0, 4, true, groups({0, 1}), 12}).ok());
    ASSERT_TRUE(partitions().reserve(8, {0, 4, true, groups({2, 3}), 0}).ok());
  }
  SmPartitions& partitions() { return *worker_parts_.partitions; }
  FairShares& shares() { return worker_parts_.shares[0]; }
  void use(Member& member, uint64_t now) {
    partitions().use(*partitions().lease(member), Rank::kNormal, now);
    (void)partitions().service(now);
  }
  int wakes_ = 0;
};

TEST_F(SharedPartitionTest, ItsMembersHaveWhatTheOtherLendsUntilThatHasWork) {
  Member &first = join(0, 7), &other = join(0, 8);
  const CUgreenCtx own = part(first)->handle;
  EXPECT_EQ(of(first), groups({0, 1})) << "without work";
  use(first, kStart);
  EXPECT_EQ(of(first), groups({0, 1, 2, 3, 4, 5})) << "what is lent, and what nobody has";
  EXPECT_EQ(partitions().lasting(first, part(first))->set.groups, groups({0, 1})) << "told";
  EXPECT_TRUE(partitions().is_lifted(first));
  FairShare outside{shares(), Rank::kNormal, std::make_shared<Bell>()};
  const int before = wakes_;
  outside.begin_work(16);
  EXPECT_EQ(wakes_, before + 1) << "work outside takes back what is free";
  EXPECT_NE(partitions().service(kStart + 1), 0u);
  EXPECT_EQ(of(first), groups({0, 1, 2, 3})) << "which leaves what is lent";
  EXPECT_EQ(outside.budget_ns(), kShortBudgetNs);
  use(other, kStart + 2);
  EXPECT_EQ(of(first), groups({0, 1}));
  EXPECT_EQ(part(first)->handle, own) << "its green context was there all the time";
  EXPECT_EQ(of(other), groups({2, 3})) << "which may not grow";
  EXPECT_EQ(outside.budget_ns(), kBudgetNs);
  // The other has no work any more.
  use(first, kStart + kRecentNs);
  (void)partitions().service(kStart + 2 + kRecentNs);
  EXPECT_EQ(of(first), groups({0, 1, 2, 3}));
  outside.end_work(kStart + kRecentNs);
}

TEST_F(SharedPartitionTest, WhoComesWhileItHasMoreIsToldItsOwn) {
  Member& first = join(0, 7);
  use(first, kStart);
  ASSERT_EQ(of(first).count(), 6u);
  const int before = wakes_;
  Member& next = join(0, 7);
  EXPECT_EQ(of(next), groups({0, 1}));
  EXPECT_GT(wakes_, before);
  (void)partitions().service(kStart + 1);
  EXPECT_EQ(of(next), of(first));
  EXPECT_EQ(partitions().lasting(next, part(next))->set.groups, groups({0, 1}));
}

TEST_F(SharedPartitionTest, AKernelThatTakesLongKeepsTheSms) {
  Member &other = join(0, 8), &outside = join(0);
  FairShare its{shares(), Rank::kNormal, std::make_shared<Bell>(), nullptr, &changes_};
  its.begin_work(16);
  use(other, kStart);
  const uint64_t later = kStart + 2 * kRecentNs;
  EXPECT_EQ(partitions().service(later), later + kRecentNs);
  EXPECT_EQ(of(outside), groups({0, 1, 4, 5, 6, 7}));
  its.end_work(later);
  (void)partitions().service(later + kRecentNs);
  EXPECT_EQ(of(outside), SmGroups().set());
}

TEST_F(SharedPartitionTest, OthersBorrowBesideThePartitionsThatWork) {
  Member& first = join(0, 7);
  Member& borrower = join({.sms = 4, .borrows = true});
  EXPECT_EQ(of(borrower), groups({4, 5})) << "not on SMs that are lent only";
  use(first, kStart);
  EXPECT_EQ(of(borrower), groups({2, 3, 4, 5, 6, 7})) << "all but those of the partition at work";
  EXPECT_EQ(of(first), groups({0, 1, 2, 3, 6, 7})) << "who has work shows itself by that";
}

TEST_F(PartitionTest, LowerRanksKeepOffAFewWhileTheyFillTheDevice) {
  bool crowded = false;
  Rank asked = Rank::kLatency;
  worker_parts_.partitions->connect([] {},
                                    [&](uint32_t, Rank from) { return asked = from, crowded; });
  Member &quick = join(0), &normal = join(0), &low = join(0);
  worker_parts_.partitions->set(quick, {.rank = Rank::kLatency});
  worker_parts_.partitions->set(low, {.rank = Rank::kBestEffort});
  worker_parts_.partitions->prepare_for_ranks(0);
  worker_parts_.partitions->keep_for_ranks(0);
  EXPECT_EQ(worker_parts_.partitions->lease(low), nullptr) << "nobody is below";
  const auto lease = worker_parts_.partitions->lease(quick);
  ASSERT_NE(lease, nullptr);
  worker_parts_.partitions->use(*lease, Rank::kLatency, 5);
  EXPECT_EQ(worker_parts_.partitions->service(6), 6 + kCrowdLookNs);
  EXPECT_EQ(of(normal), SmGroups().set()) << "there is room";
  crowded = true;
  worker_parts_.partitions->service(7);
  EXPECT_EQ(asked, Rank::kNormal);
  EXPECT_EQ(of(quick), SmGroups().set()) << "it has them all";
  EXPECT_EQ(of(normal), groups({0, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(of(low), groups({0, 1, 2, 3, 4, 5, 6}));
  // Once it has no work any more, it is between the others.
  const uint64_t later = 7 + kRecentNs;
  worker_parts_.partitions->use(*lease, Rank::kNormal, later);
  worker_parts_.partitions->service(later);
  EXPECT_EQ(asked, Rank::kBestEffort);
  EXPECT_EQ(of(normal), SmGroups().set());
  EXPECT_EQ(of(low), groups({0, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(worker_parts_.partitions->service(later + kRecentNs), 0u);
  EXPECT_EQ(of(low), SmGroups().set());
}

// As an H200's driver does it with 132 SMs: groups, and more than a group's SMs that are in none.
class UnevenPartitionTest : public PartitionTest {
 protected:
  UnevenPartitionTest() {
    driver_.sms = 18;
    driver_.sm_step = 4;
    driver_.ungrouped_sms = 4;
  }
  [[nodiscard]] uint32_t sms() const override { return 4; }
  void SetUp() override {
    PartitionTest::SetUp();
    worker_parts_.partitions->connect([] {}, [](uint32_t, Rank) { return true; });
  }
  uint32_t sms_of(Member& member) {
    const SmPart part = this->part(member);
    return part == nullptr ? driver_.sms : driver_.green_sms[number(part->handle)];
  }
  static uint64_t number(CUgreenCtx green) { return reinterpret_cast<uint64_t>(green); }
  // Somebody of the first rank has work.
  void work(Member& first) {
    worker_parts_.partitions->set(first, {.rank = Rank::kLatency});
    worker_parts_.partitions->use(*worker_parts_.partitions->lease(first), Rank::kLatency, 5);
    worker_parts_.partitions->service(6);
  }
};

TEST_F(UnevenPartitionTest, WhatIsLeftIsJoinedToGroupsInSteps) {
  EXPECT_EQ(sms_of(join(12)), 12u);
  EXPECT_EQ(sms_of(join(16)), 16u);
  EXPECT_EQ(sms_of(join(0)), 18u);
}

TEST_F(UnevenPartitionTest, WhatFillsNoGroupIsKeptForRanks) {
  Member &first = join(0), &other = join(0);
  worker_parts_.partitions->prepare_for_ranks(0);
  worker_parts_.partitions->keep_for_ranks(0);
  work(first);
  EXPECT_EQ(sms_of(first), 18u);
  EXPECT_EQ(sms_of(other), 12u);
  EXPECT_EQ(of(other), groups({0, 1, 2}));
}

TEST_F(UnevenPartitionTest, SoManyAreKeptForRanksAsAreWanted) {
  Member &first = join(0), &other = join(0);
  worker_parts_.partitions->prepare_for_ranks(0, 7);
  worker_parts_.partitions->keep_for_ranks(0);
  work(first);
  EXPECT_EQ(sms_of(first), 18u);
  EXPECT_EQ(of(other), groups({0, 1})) << "what fills no group is six";
  EXPECT_EQ(sms_of(other), 8u);
}

TEST_F(UnevenPartitionTest, SetsForRanksAreThereBeforeTheyAreNeeded) {
  worker_parts_.partitions->prepare_for_ranks(0);
  EXPECT_NE(driver_.live().find("greens 1"), std::string::npos) << driver_.live();
  Member &first = join(0), &other = join(0);
  worker_parts_.partitions->keep_for_ranks(0);
  driver_.take_calls();
  work(first);
  EXPECT_EQ(sms_of(other), 12u);
  EXPECT_TRUE(driver_.take_calls().empty()) << "a new set would need a quiet moment";
}

TEST_F(UnevenPartitionTest, WhoIsKeptOffAndNeedsAllHasThem) {
  Member &first = join(0), &other = join(0);
  worker_parts_.partitions->prepare_for_ranks(0);
  worker_parts_.partitions->keep_for_ranks(0);
  EXPECT_FALSE(worker_parts_.partitions->looks(0));
  work(first);
  ASSERT_EQ(sms_of(other), 12u);
  EXPECT_TRUE(worker_parts_.partitions->looks(0)) << "launches are noted while ranks are served";
  worker_parts_.partitions->note(other, {.sms_needed = 18, .needs_all_sms = true}, 7);
  EXPECT_EQ(sms_of(other), 12u) << "it takes longer";
  const uint64_t changes = changes_;
  worker_parts_.partitions->note(other, {.sms_needed = kWholeDevice}, 7);
  EXPECT_EQ(sms_of(other), 18u) << "before anybody has looked";
  EXPECT_GT(changes_, changes);
  // For as long as it has had such work of late.
  worker_parts_.partitions->service(8);
  EXPECT_EQ(sms_of(other), 18u);
  const uint64_t later = 7 + kRecentNs;
  worker_parts_.partitions->use(*worker_parts_.partitions->lease(first), Rank::kLatency, later);
  worker_parts_.partitions->service(later);
  EXPECT_EQ(sms_of(other), 12u);
  worker_parts_.partitions->service(later + kRecentNs);
  EXPECT_FALSE(worker_parts_.partitions->looks(0));
}

// All but what is another's.
TEST_F(UnevenPartitionTest, WhoIsKeptOffReservedSmsStaysOffThem) {
  Member &first = join(0), &other = join(0);
  worker_parts_.partitions->prepare_for_ranks(0);
  worker_parts_.partitions->keep_for_ranks(0);
  ASSERT_TRUE(worker_parts_.partitions->reserve(7, {.device = 0, .sms = 4}).ok());
  work(first);
  ASSERT_EQ(sms_of(other), 8u);
  worker_parts_.partitions->note(other, {.sms_needed = kWholeDevice}, 7);
  worker_parts_.partitions->service(8);
  EXPECT_EQ(sms_of(other), 14u);
}

// Nobody has said anything of ranks: two of 66 SMs are for small work.
class SmallPartitionTest : public UnevenPartitionTest {
 protected:
  SmallPartitionTest() { driver_.sms = 66; }
  void SetUp() override {
    UnevenPartitionTest::SetUp();
    worker_parts_.partitions->prepare_few(0);
    worker_parts_.partitions->connect([this] { ++woken_; },
                                      [this](uint32_t, Rank) { return is_crowded_; });
  }
  static constexpr Demand kSmall{.sms_needed = 1, .ns = 10'000};
  static constexpr Demand kLong{.sms_needed = 64, .ns = Demand::kLongNs};
  void note(Member& member, const Demand& demand) {
    worker_parts_.partitions->note(member, demand, now_);
  }
  // All have such work; when to look again.
  using Work = std::vector<std::pair<Member*, Demand>>;
  uint64_t work(const Work& work) {
    now_ += kCrowdLookNs;
    for (const auto& [member, demand] : work) note(*member, demand);
    return worker_parts_.partitions->service(now_);
  }
  int woken_ = 0;
  bool is_crowded_ = true;
  uint64_t now_ = 1;
};

TEST_F(SmallPartitionTest, SmallWorkHasTheFewBesideLongKernels) {
  Member &small = join(0), &filler = join(0), &idle = join(0);
  EXPECT_EQ(worker_parts_.partitions->few(0), 2u);
  EXPECT_EQ(work({{&small, kSmall}}), 0u);
  EXPECT_FALSE(worker_parts_.partitions->looks(0)) << "small work costs nothing";
  woken_ = 0;
  const uint64_t next = work({{&filler, kLong}, {&small, kSmall}});
  EXPECT_EQ(next, now_ + kCrowdLookNs);
  EXPECT_EQ(woken_, 1);
  EXPECT_TRUE(worker_parts_.partitions->looks(0));
  EXPECT_EQ(sms_of(small), 2u);
  EXPECT_EQ(sms_of(filler), 64u);
  EXPECT_EQ(sms_of(idle), 66u);
  // The small work ends first.
  now_ += kRecentNs;
  EXPECT_NE(work({{&filler, kLong}}), 0u);
  EXPECT_EQ(sms_of(small) + sms_of(filler), 2 * 66u);
  work({{&filler, kLong}, {&small, kSmall}});
  EXPECT_EQ(sms_of(small), 2u);
  now_ += kRecentNs;
  EXPECT_EQ(work({{&small, kSmall}}), 0u) << "nobody has long kernels";
  EXPECT_EQ(sms_of(small) + sms_of(filler), 2 * 66u);
  EXPECT_FALSE(worker_parts_.partitions->looks(0));
}

TEST_F(SmallPartitionTest, NobodyLooksAtWhoIsAlone) {
  EXPECT_EQ(work({{&join(0), kLong}}), 0u);
  EXPECT_EQ(woken_, 0);
}

TEST_F(SmallPartitionTest, WhoComesLaterIsLookedAtAtOnce) {
  Member& filler = join(0);
  work({{&filler, kLong}});
  Member& small = join(0);
  EXPECT_EQ(woken_, 1);
  EXPECT_NE(worker_parts_.partitions->service(now_), 0u);
  note(small, kSmall);
  worker_parts_.partitions->service(now_);
  EXPECT_EQ(sms_of(small), 2u);
  EXPECT_EQ(sms_of(filler), 64u) << "with its next, however far away that is";
}

TEST_F(SmallPartitionTest, SetsAreThereBeforeTheyAreNeeded) {
  EXPECT_NE(driver_.live().find("greens 2"), std::string::npos) << driver_.live();
  Member &small = join(0), &filler = join(0);
  driver_.take_calls();
  work({{&filler, kLong}, {&small, kSmall}});
  EXPECT_EQ(sms_of(small), 2u);
  EXPECT_TRUE(driver_.take_calls().empty());
}

class LargeUnevenPartitionTest : public UnevenPartitionTest {
 protected:
  LargeUnevenPartitionTest() { driver_.sms = 66; }
};

TEST_F(LargeUnevenPartitionTest, WhereTheSetsCantBeMadeNobodyLooks) {
  driver_.fail("green", CUDA_ERROR_OUT_OF_MEMORY);
  worker_parts_.partitions->prepare_few(0);
  driver_.fail("green", CUDA_SUCCESS);
  Member &small = join(0), &filler = join(0);
  worker_parts_.partitions->note(filler, {.sms_needed = 64, .ns = Demand::kLongNs}, 1);
  worker_parts_.partitions->note(small, {.sms_needed = 1}, 1);
  EXPECT_EQ(worker_parts_.partitions->service(1), 0u);
  EXPECT_EQ(sms_of(small) + sms_of(filler), 2 * 66u);
}

TEST_F(SmallPartitionTest, WhereThereIsRoomForAllNobodyMoves) {
  is_crowded_ = false;
  Member &small = join(0), &filler = join(0);
  work({{&filler, kLong}, {&small, kSmall}});
  EXPECT_EQ(sms_of(small) + sms_of(filler), 2 * 66u);
}

TEST_F(SmallPartitionTest, LongKernelsThatCantBeKeptOffHaveTheDevice) {
  Member &small = join(0), &filler = join(0);
  for (const Demand& demand :
       {Demand{.sms_needed = 66, .needs_all_sms = true, .ns = Demand::kLongNs},
        Demand{.sms_needed = kWholeDevice, .ns = Demand::kLongNs}}) {
    work({{&filler, demand}, {&small, kSmall}});
    EXPECT_EQ(sms_of(small) + sms_of(filler), 2 * 66u);
    now_ += kRecentNs;
  }
  Member& limited = join(32);
  work({{&limited, kLong}, {&filler, kLong}, {&small, kSmall}});
  EXPECT_EQ(sms_of(small) + sms_of(filler), 2 * 66u) << "it may have the few";
  now_ += kRecentNs;
  work({{&limited, kSmall}, {&filler, kLong}, {&small, kSmall}});
  EXPECT_EQ(sms_of(small), 2u);
  EXPECT_EQ(sms_of(limited), 32u);
}

TEST_F(SmallPartitionTest, WhoNeedsMoreHasItBeforeItGoes) {
  Member &small = join(0), &filler = join(0);
  const auto meet = [&] {
    now_ += kRecentNs;
    work({{&filler, kLong}, {&small, kSmall}});
    EXPECT_EQ(sms_of(small), 2u);
    EXPECT_EQ(sms_of(filler), 64u);
  };
  meet();
  note(small, {.sms_needed = 2});
  EXPECT_EQ(sms_of(small), 66u);
  work({{&filler, kLong}, {&small, kSmall}});
  EXPECT_EQ(sms_of(filler), 66u) << "nobody is there";
  for (const Demand& demand :
       {Demand{.sms_needed = 66, .needs_all_sms = true}, Demand{.sms_needed = kWholeDevice}}) {
    meet();
    note(filler, demand);
    EXPECT_EQ(sms_of(filler), 66u);
    work({{&filler, kLong}, {&small, kSmall}});
    EXPECT_EQ(sms_of(small), 66u) << "the long kernels are everywhere";
  }
}

// What comes between is as good as what came before.
TEST_F(SmallPartitionTest, WhatIsGivenMeanwhileDoesForWhatHasBeenNoted) {
  Member &small = join(0), &filler = join(0);
  work({{&filler, kLong}, {&small, kSmall}});
  const uint64_t noted = now_;
  note(filler, {.sms_needed = kWholeDevice});
  now_ += kRecentNs;  // as if service() had not seen it
  work({{&filler, kLong}, {&small, kSmall}});
  ASSERT_EQ(sms_of(filler), 64u);
  EXPECT_EQ(worker_parts_.partitions->part(filler, noted), nullptr);
}

TEST_F(SmallPartitionTest, SlowWorkStaysOut) {
  Member &small = join(0), &filler = join(0);
  work({{&filler, kLong}, {&small, {.sms_needed = 1, .ns = Demand::kLongNs / 2}}});
  EXPECT_EQ(sms_of(small) + sms_of(filler), 2 * 66u);
}

// What waits for others' blocks seems to be slow, and to be long.
TEST_F(SmallPartitionTest, SmallWorkThatHasOnlyBeenSeenBesideOthersIsTakenToBeShort) {
  Member &small = join(0), &filler = join(0);
  for (const uint64_t ns : {Demand::kLongNs / 2, 2 * Demand::kLongNs}) {
    now_ += kRecentNs;
    work({{&filler, kLong}, {&small, {.sms_needed = 1, .ns = ns, .is_guess = true}}});
    EXPECT_EQ(sms_of(small), 2u) << ns;
    EXPECT_EQ(sms_of(filler), 64u);
  }
  now_ += kRecentNs;
  Demand guess = kLong;
  guess.is_guess = true;
  work({{&filler, guess}, {&small, kSmall}});
  EXPECT_EQ(sms_of(filler), 64u) << "it would have to wait for itself";
}

TEST_F(SmallPartitionTest, ThreeHaveTheFewWhileTheirWorkIsLight) {
  Member &one = join(0), &two = join(0), &three = join(0), &filler = join(0);
  const auto work_all = [&](uint64_t sm_ns) {
    Demand demand = kSmall;
    demand.sm_ns = sm_ns;
    for (int round = 0; round < 6; ++round) {
      work({{&filler, kLong}, {&one, demand}, {&two, demand}, {&three, demand}});
    }
    return sms_of(one) + sms_of(two) + sms_of(three);
  };
  EXPECT_EQ(work_all(100'000), 3 * 2u);
  EXPECT_EQ(sms_of(filler), 64u);
  EXPECT_EQ(work_all(10'000'000), 3 * 66u);
  EXPECT_EQ(sms_of(filler), 66u);
}

TEST_F(SmallPartitionTest, ReservationsGoFirst) {
  Member &small = join(0), &filler = join(0);
  ASSERT_TRUE(worker_parts_.partitions->reserve(7, {.device = 0, .sms = 4}).ok());
  work({{&filler, kLong}, {&small, kSmall}});
  EXPECT_EQ(sms_of(small), 62u);
  EXPECT_EQ(sms_of(filler), 62u);
  worker_parts_.partitions->release(7);
  work({{&filler, kLong}, {&small, kSmall}});
  EXPECT_EQ(sms_of(small), 2u);
}

TEST_F(SmallPartitionTest, RanksGoFirst) {
  Member &small = join(0), &filler = join(0), &first = join({.rank = Rank::kLatency});
  worker_parts_.partitions->prepare_for_ranks(0);
  worker_parts_.partitions->keep_for_ranks(0);
  work({{&filler, kLong}, {&small, kSmall}});
  EXPECT_EQ(sms_of(small), 2u) << "it has no work";
  worker_parts_.partitions->use(*worker_parts_.partitions->lease(first), Rank::kLatency, now_);
  work({{&filler, kLong}, {&small, kSmall}, {&first, kSmall}});
  EXPECT_EQ(sms_of(small), 60u);
  EXPECT_EQ(sms_of(filler), 60u);
  EXPECT_EQ(sms_of(first), 66u);
  now_ += kRecentNs;
  work({{&filler, kLong}, {&small, kSmall}});
  EXPECT_EQ(sms_of(small), 2u);
  EXPECT_EQ(sms_of(filler), 64u);
}

TEST_F(UnevenPartitionTest, MoreThanThereAreLeaveAGroup) {
  worker_parts_.partitions->prepare_for_ranks(0, 1000);
  Member &first = join(0), &other = join(0);
  worker_parts_.partitions->keep_for_ranks(0);
  work(first);
  EXPECT_EQ(of(other), groups({0}));
}

TEST_F(UnevenPartitionTest, AThirtySecondAtMostIsFew) {
  worker_parts_.partitions->prepare_few(0);
  EXPECT_EQ(worker_parts_.partitions->few(0), 0u)
      << "the driver splits off 16, and leaves two of 18";
}

class EvenPartitionTest : public PartitionTest {
 protected:
  EvenPartitionTest() { driver_.sms = 64; }
};

TEST_F(EvenPartitionTest, WhereAllSmsAreInGroupsAGroupIsFew) {
  worker_parts_.partitions->prepare_few(0);
  EXPECT_EQ(worker_parts_.partitions->few(0), 2u);
}

// Nobody has said anything of ranks.
class SmallSessionTest : public UnevenPartitionTest {
 protected:
  SmallSessionTest() { driver_.sms = 66; }
  [[nodiscard]] uint32_t sms() const override { return 0; }
  void SetUp() override {
    UnevenPartitionTest::SetUp();
    worker_parts_.partitions->prepare_few(0);
    neighbour_ = &join(0);
    create_stream(1, wire::StreamKind::kNonBlocking);
    load_module();
    worker_parts_.partitions->service(clock_.now_ns());
    launch(1);  // while no session has long kernels
    note(*neighbour_, {.sms_needed = 64, .ns = Demand::kLongNs});
    calls();
  }
  void note(Member& member, const Demand& demand) {
    worker_parts_.partitions->note(member, demand, clock_.now_ns());
    worker_parts_.partitions->service(clock_.now_ns());
  }
  Member* neighbour_ = nullptr;
};

TEST_F(SmallSessionTest, SmallWorkGoesToTheFew) {
  launch(1);
  EXPECT_EQ(calls(), (Calls{"launch s1 16"})) << "nobody knew that it is small";
  worker_parts_.partitions->service(clock_.now_ns());
  calls();
  launch(1);
  EXPECT_EQ(calls(), (Calls{"stream in g2", "destroy stream", "launch s2 16"}));
  wire::Launch wide = launch_of(1);
  wide.grid[0] = 6;  // five fit on an SM
  EXPECT_TRUE(send(wide, std::string(16, '\0')).ok());
  EXPECT_EQ(calls().back(), "launch s3 16");
}

// It is in the few SMs.
class FewSessionTest : public SmallSessionTest {
 protected:
  void SetUp() override {
    SmallSessionTest::SetUp();
    launch(1);
    worker_parts_.partitions->service(clock_.now_ns());
    calls();
    launch(1);
  }
};

TEST_F(FewSessionTest, WhatFindsRoomGoesThere) {
  EXPECT_EQ(calls(), (Calls{"stream in g2", "destroy stream", "launch s2 16"}));
  EXPECT_FALSE(session_->core.parts.is_limited(0)) << "its code may come by the cold lane";
  SmPart part;
  ASSERT_TRUE(session_->core.parts.get_limit(0, 0, &part).ok());
  EXPECT_EQ(part, nullptr) << "and it is told of the whole device";
}

TEST_F(FewSessionTest, WhatNeedsMoreGoesToTheWholeDevice) {
  wire::Launch wide = launch_of(1);
  wide.grid[0] = 6;  // five fit on an SM
  launch(1);
  calls();
  EXPECT_TRUE(send(wide, std::string(16, '\0')).ok());
  EXPECT_EQ(calls(), (Calls{"stream 0", "destroy stream", "launch s3 16"}));
  launch(1);
  EXPECT_EQ(calls(), (Calls{"launch s3 16"})) << "and what comes soon after it";
}

TEST_F(FewSessionTest, WhatMayNotFindRoomInPartsDoes) {
  launch(1);
  calls();
  wire::Launch cooperative = launch_of(1);
  cooperative.flags = wire::kLaunchCooperative;
  EXPECT_TRUE(send(cooperative, std::string(16, '\0')).ok());
  EXPECT_EQ(calls().front(), "stream 0");
}

TEST_F(FewSessionTest, GraphsGoThereWhenTheyAreLaunchedIfTheyCan) {
  launch(1);
  for (const bool is_cooperative : {false, true}) {
    wire::Launch node = launch_of(0);
    node.flags = is_cooperative ? wire::kLaunchCooperative : 0;
    const std::string body =
        std::string(reinterpret_cast<const char*>(&node), sizeof node) + std::string(16, '\0');
    const wire::Id graph = is_cooperative ? 2 : 1;
    EXPECT_TRUE(send(wire::GraphBegin{graph, 0}).ok());
    EXPECT_TRUE(send(wire::GraphNode{graph, wire::GraphNodeKind::kKernel, 0,
                                     static_cast<uint32_t>(body.size()), 0},
                     body)
                    .ok());
    EXPECT_TRUE(send(wire::GraphInstantiate{0, graph}).ok());
    const Calls made = calls();
    EXPECT_EQ(std::ranges::count(made, "kernel in g2"), 0) << ::testing::PrintToString(made);
    const Status status = send(wire::GraphLaunch{graph, 1});
    ASSERT_TRUE(status.ok()) << is_cooperative << status.message();
    const Calls launched = calls();
    EXPECT_EQ(std::ranges::count(launched, "refresh kernel in g2"), is_cooperative ? 0 : 1)
        << ::testing::PrintToString(launched);
    EXPECT_EQ(launched.back(), is_cooperative ? "graph s3" : "graph s2");
  }
}

class ClusterFewSessionTest : public FewSessionTest {
 protected:
  ClusterFewSessionTest() { driver_.cluster_width = 2; }
};

TEST_F(ClusterFewSessionTest, SoDoClusters) {
  calls();
  launch(1);
  EXPECT_EQ(calls(), (Calls{"launch s1 16"}));
}

// Its kernels count, not how many they are.
TEST_F(SmallSessionTest, AGraphOfSmallKernelsIsSmall) {
  constexpr uint32_t kNodes = 3;
  describe_kernels(kNodes);
  EXPECT_TRUE(send(wire::GraphInstantiate{0, 1}).ok());
  Durations& durations = session_->streams.durations;
  const uint32_t number = durations.add() + 1;  // the graph's, from its first launch on
  EXPECT_TRUE(send(wire::GraphLaunch{1, 1}).ok());
  constexpr uint64_t kEachNs = Demand::kLongNs / 5;
  durations.learn({&number, 1}, {Durations::kUnknownNs, kNodes * kEachNs, kNodes * kEachNs});
  ASSERT_EQ(durations.alone({.learnt = number}), kNodes * kEachNs);
  EXPECT_TRUE(send(wire::GraphLaunch{1, 1}).ok());
  worker_parts_.partitions->service(clock_.now_ns());
  calls();
  EXPECT_TRUE(send(wire::GraphLaunch{1, 1}).ok());
  const Calls launched = calls();
  EXPECT_EQ(std::ranges::count(launched, "refresh kernel in g2"), kNodes)
      << ::testing::PrintToString(launched);
}

class SmallStreamsTest : public SmallSessionTest {
 protected:
  SmallStreamsTest() {
    worker_parts_.performance.budgets = true;
    worker_parts_.performance.batches = false;
  }
};

TEST_F(SmallStreamsTest, WhatSeveralHaveAtATimeIsTogether) {
  create_stream(2, wire::StreamKind::kNonBlocking);
  driver_.hold(1, true);
  launch(1);
  launch(2);
  worker_parts_.partitions->service(clock_.now_ns());
  calls();
  launch(1);
  EXPECT_EQ(calls().back(), "launch s1 16") << "two SMs";
  driver_.hold(1, false);
}

class PartitionOfGroupTest : public PartitionTest {
 protected:
  // Of a group: its own at most, and together.
  Member& join_group(const SessionGroup& group, uint32_t sms = 0, uint32_t reservation = 0) {
    return join({.sms = sms, .reservation = reservation, .group = &group});
  }
  void set(SessionGroup& group, uint32_t sms) {
    group.set_sms(0, sms);
    worker_parts_.partitions->change(group);
  }
  void SetUp() override {
    PartitionTest::SetUp();
    set(eight_, 8);
  }
  SessionGroup eight_, other_;
};

TEST_F(PartitionOfGroupTest, MembersHaveOneSet) {
  Member &first = join_group(eight_), &second = join_group(eight_);
  EXPECT_EQ(of(first), groups({0, 1, 2, 3}));
  EXPECT_EQ(of(second), groups({0, 1, 2, 3}));
  EXPECT_EQ(of(join(8)), groups({4, 5, 6, 7})) << "the set counts once";
  set(other_, 4);
  EXPECT_EQ(of(join_group(other_)), groups({0, 1}));
  Member &small = join_group(eight_, 4), &next = join_group(eight_, 4);
  EXPECT_EQ(of(small), groups({2, 3})) << "a limit of its own, inside the set";
  EXPECT_EQ(of(next), groups({0, 1}));
  EXPECT_EQ(of(join_group(eight_, 10)), groups({0, 1, 2, 3}));
}

TEST_F(PartitionOfGroupTest, AllFollowAChange) {
  Member &first = join_group(eight_), &second = join_group(eight_), &small = join_group(eight_, 2);
  Member& whole = join_group(other_);
  join(4);
  EXPECT_EQ(of(whole), SmGroups().set()) << "a group without a limit";
  set(eight_, 4);
  EXPECT_EQ(of(first), groups({0, 1}));
  EXPECT_EQ(of(second), groups({0, 1}));
  EXPECT_EQ(of(small), groups({0}));
  const uint64_t changes = changes_;
  set(eight_, 4);
  EXPECT_EQ(changes_, changes) << "they have it already";
  set(eight_, 12);
  EXPECT_EQ(of(first), of(second));
  EXPECT_EQ(of(first).count(), 6u);
  EXPECT_EQ((of(first) | groups({0, 1})), of(first)) << "with those that it had";
  set(eight_, 0);
  EXPECT_EQ(of(first), SmGroups().set());
  EXPECT_EQ(of(second), SmGroups().set());
  EXPECT_EQ(of(small).count(), 1u);
  set(other_, 2);
  EXPECT_EQ(of(whole).count(), 1u);
}

TEST_F(PartitionOfGroupTest, ItStaysWhereItIs) {
  set(other_, 8);
  Member &first = join_group(eight_), &inside = join_group(eight_, 4), &other = join_group(other_);
  const SmGroups mine = of(first), within = of(inside), theirs = of(other);
  for (const uint32_t sms : {6, 0, 2}) {
    worker_parts_.partitions->set(join(0), {.sms = sms});
    EXPECT_EQ(of(first), mine);
    EXPECT_EQ(of(inside), within);
    EXPECT_EQ(of(other), theirs);
  }
}

TEST_F(PartitionOfGroupTest, ItEndsWithTheLastMember) {
  Member &first = join_group(eight_), &second = join_group(eight_);
  leave(first);
  EXPECT_EQ(of(join(8)), groups({4, 5, 6, 7}));
  EXPECT_EQ(of(second), groups({0, 1, 2, 3}));
  leave(second);
  EXPECT_EQ(of(join(8)), groups({0, 1, 2, 3}));
  set(eight_, 4);
  EXPECT_EQ(of(join_group(eight_)), groups({0, 1})) << "and is chosen anew";
}

TEST_F(PartitionOfGroupTest, ItKeepsOffWhatIsReserved) {
  Member &first = join_group(eight_), &second = join_group(eight_);
  ASSERT_TRUE(worker_parts_.partitions->reserve(7, {.device = 0, .sms = 10}).ok());
  EXPECT_EQ(of(first).count(), 3u) << "all that is left";
  EXPECT_EQ(of(first), of(second));
  Member& owner = join_group(eight_, 0, 7);
  EXPECT_EQ(of(owner) & of(first), SmGroups()) << "its own reservation goes before its group";
  EXPECT_EQ(of(owner).count(), 5u);
  worker_parts_.partitions->release(7);
  EXPECT_EQ(of(first).count(), 4u);
}

TEST_F(PartitionTest, OneGroupIsLeftToTheOthers) {
  EXPECT_EQ(worker_parts_.partitions->reserve(7, {.device = 0, .sms = 16}).status().code(),
            CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
  ASSERT_TRUE(worker_parts_.partitions->reserve(7, {.device = 0, .sms = 10}).ok());
  EXPECT_EQ(worker_parts_.partitions->reserve(8, {.device = 0, .sms = 6}).status().code(),
            CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
  EXPECT_EQ(worker_parts_.partitions->reserve(7, {.device = 0, .sms = 2}).status().code(),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_TRUE(worker_parts_.partitions->reserve(8, {.device = 0, .sms = 4}).ok());
}

TEST_F(PartitionTest, NamedGroupsAreThoseAndNothingElse) {
  SmPartitions& partitions = *worker_parts_.partitions;
  const auto keep = [&](uint32_t number, uint32_t sms, const SmGroups& named) {
    return partitions.reserve(number, {.device = 0, .sms = sms, .groups = named});
  };
  EXPECT_EQ(keep(1, 4, groups({1, 6})).value(), 4u);
  EXPECT_TRUE(partitions.keeps(1));
  EXPECT_EQ(of(join(0, 1)), groups({1, 6}));
  EXPECT_EQ(of(join(2, 1)), groups({1})) << "a limit holds inside, too";
  for (const auto& [sms, named] :
       {std::pair(4u, groups({0, 6})), std::pair(2u, groups({20})), std::pair(4u, groups({0}))}) {
    EXPECT_EQ(keep(2, sms, named).status().code(), CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION)
        << "another's, not there, fewer than that";
    EXPECT_FALSE(partitions.keeps(2));
  }
  EXPECT_EQ(keep(2, 12, groups({0, 2, 3, 4, 5, 7})).value(), 12u) << "nothing is left to others";
  EXPECT_EQ(of(join(0, 2)), groups({0, 2, 3, 4, 5, 7}));
  Member other(0, SmTerms{}, changes_);
  EXPECT_EQ(partitions.join(other, nullptr).code(), CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
  partitions.release(2);
  EXPECT_FALSE(partitions.keeps(2));
  EXPECT_EQ(of(join(0)), groups({0, 2, 3, 4, 5, 7}));
}

TEST_F(PartitionTest, AStreamFollows) {
  create_stream(1, wire::StreamKind::kNonBlocking);
  load_module();
  launch(1);
  EXPECT_EQ(calls(), (Calls{"stream in g1", "launch s1 16"}));
  session_->core.parts.set(0, {.sms = 4});
  calls();
  launch(1);
  EXPECT_EQ(calls(), (Calls{"stream in g2", "destroy stream", "launch s2 16"}));
  session_->core.parts.set(0, {.sms = 0});
  launch(1);
  EXPECT_EQ(calls(), (Calls{"stream 0", "destroy stream", "launch s3 16"}));
}

TEST_F(PartitionTest, WhatComesIsBehindWhatTheStreamHas) {
  leave(join(4));  // it is kept
  create_stream(1, wire::StreamKind::kNonBlocking);
  load_module();
  driver_.hold(1, true);
  launch(1);
  calls();
  session_->core.parts.set(0, {.sms = 4});
  launch(1);
  const Calls moved = calls();
  driver_.hold(1, false);
  EXPECT_EQ(moved, (Calls{"stream in g1", "event", "record e1 s1", "wait s2 e1", "destroy event",
                          "launch s2 16"}));
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

TEST_F(PartitionTest, ExecutableGraphsFollow) {
  load_module();
  create_stream(1, wire::StreamKind::kNonBlocking);
  const auto describe = [this] { describe_kernels(2); };
  describe();
  EXPECT_TRUE(send(wire::GraphInstantiate{0, 1}).ok());
  EXPECT_TRUE(send(wire::GraphEnableNode{1, 1, 0}).ok());
  EXPECT_TRUE(send(wire::GraphLaunch{1, 1}).ok());
  calls();
  session_->core.parts.set(0, {.sms = 4});
  calls();
  EXPECT_TRUE(send(wire::GraphLaunch{1, 1}).ok());
  EXPECT_EQ(calls(),
            (Calls{"stream in g2", "destroy stream", "read kernel", "refresh kernel in g2",
                   "read kernel", "refresh kernel in g2", "instantiate", "enable 0", "graph s2"}));
  session_->service();
  EXPECT_EQ(calls(), (Calls{"destroy exec"})) << "the one that was left";
  EXPECT_TRUE(send(wire::GraphLaunch{1, 1}).ok());
  EXPECT_EQ(calls(), (Calls{"graph s2"})) << "once";
  // What it was updated from is what it is made of from then on.
  describe();
  calls();
  EXPECT_TRUE(send(wire::GraphUpdate{1}).ok());
  EXPECT_EQ(calls(), (Calls{"update"}));
  session_->core.parts.set(0, {.sms = 0});
  EXPECT_TRUE(send(wire::GraphLaunch{1, 1}).ok());
  const Calls moved = calls();
  EXPECT_NE(std::ranges::find(moved, "refresh kernel"), moved.end())
      << ::testing::PrintToString(moved);
  EXPECT_NE(std::ranges::find(moved, "destroy graph"), moved.end())
      << ::testing::PrintToString(moved);
}

// Launches of one executable graph come one behind the other, which the driver sees to only as long
// as it is the same one.
TEST_F(PartitionTest, AGraphThatRunsFollowsBehindItsEnd) {
  load_module();
  create_stream(1, wire::StreamKind::kNonBlocking);
  create_stream(2, wire::StreamKind::kNonBlocking);
  const auto describe = [this] { describe_kernels(1); };
  describe();
  EXPECT_TRUE(send(wire::GraphInstantiate{0, 1}).ok());
  for (const uint32_t sms : {4, 0}) {  // the part is there from then on
    session_->core.parts.set(0, {.sms = sms});
    EXPECT_TRUE(send(wire::GraphLaunch{1, 1}).ok());
    EXPECT_TRUE(send(wire::GraphLaunch{1, 2}).ok());
  }
  const auto instantiated = [](const Calls& made) {
    return std::ranges::count(made, "instantiate");
  };
  const auto waits = [](const Calls& made) {
    return std::ranges::any_of(made,
                               [](const std::string& call) { return call.starts_with("wait "); });
  };
  // What it is to be updated from is for the SMs that it has.
  describe();
  session_->core.parts.set(0, {.sms = 4});
  calls();
  EXPECT_TRUE(send(wire::GraphLaunch{1, 1}).ok());
  EXPECT_EQ(instantiated(calls()), 0);
  EXPECT_TRUE(send(wire::GraphUpdate{1}).ok());
  calls();
  EXPECT_TRUE(send(wire::GraphLaunch{1, 1}).ok());
  EXPECT_EQ(instantiated(calls()), 1);
  // It runs: its next launch is the last of that one, and the one behind that waits for it.
  const CUstream runs = session_->streams.streams().find(1)->handle;
  driver_.hold(static_cast<uint32_t>(reinterpret_cast<uintptr_t>(runs)), true);
  EXPECT_TRUE(send(wire::GraphLaunch{1, 1}).ok());
  session_->core.parts.set(0, {.sms = 0});
  calls();
  EXPECT_TRUE(send(wire::GraphLaunch{1, 2}).ok());
  const Calls first = calls();
  EXPECT_EQ(instantiated(first), 0);
  EXPECT_TRUE(first.back().starts_with("record ")) << ::testing::PrintToString(first);
  EXPECT_TRUE(send(wire::GraphLaunch{1, 2}).ok());
  const Calls second = calls();
  EXPECT_EQ(instantiated(second), 1);
  EXPECT_TRUE(waits(second)) << ::testing::PrintToString(second);
  driver_.hold(static_cast<uint32_t>(reinterpret_cast<uintptr_t>(runs)), false);
}

// To follow, it looks at the streams while the one that it is launched in has nothing yet.
TEST_F(PartitionTest, WhatComesIsBehindAGraphThatHasFollowed) {
  load_module();
  create_stream(1, wire::StreamKind::kNonBlocking);
  describe_kernels(1);
  EXPECT_TRUE(send(wire::GraphInstantiate{0, 1}).ok());
  EXPECT_TRUE(send(wire::GraphLaunch{1, 1}).ok());
  driver_.hold(2, true);
  session_->core.parts.set(0, {.sms = 4});
  calls();
  EXPECT_TRUE(send(wire::GraphLaunch{1, 1}).ok());
  const Calls followed = calls();
  EXPECT_EQ(followed.back(), "graph s2") << ::testing::PrintToString(followed);
  session_->core.parts.set(0, {.sms = 0});
  launch(1);
  const Calls moved = calls();
  driver_.hold(2, false);
  const auto behind = std::ranges::find_if(
      moved, [](const std::string& call) { return call.starts_with("wait s3 "); });
  EXPECT_NE(behind, moved.end()) << ::testing::PrintToString(moved);
}

// The blocks of a cooperative kernel have to run at once: five fit on an SM.
TEST_F(PartitionTest, CooperativeKernelsOfGraphsFollowWhereTheyFindRoom) {
  load_module();
  create_stream(1, wire::StreamKind::kNonBlocking);
  wire::Launch launch = launch_of(0);
  launch.flags = wire::kLaunchCooperative;
  launch.grid[0] = 20;
  launch.grid[1] = launch.grid[2] = 1;
  describe_kernels(1, launch);
  EXPECT_TRUE(send(wire::GraphInstantiate{0, 1}).ok());
  const auto moves = [&](uint32_t sms) {
    session_->core.parts.set(0, {.sms = sms});
    calls();
    EXPECT_TRUE(send(wire::GraphLaunch{1, 1}).ok());
    const Calls made = calls();
    return std::ranges::find(made, "instantiate") != made.end();
  };
  const auto& counts = session_->core.usage.row().counts;
  const auto& beyond = counts[static_cast<size_t>(wire::UsageCount::kBeyondLimit)];
  EXPECT_TRUE(moves(4));
  EXPECT_EQ(beyond.load(), 0u);
  EXPECT_FALSE(moves(2)) << "it stays where it is";
  EXPECT_TRUE(send(wire::GraphLaunch{1, 1}).ok());
  EXPECT_EQ(beyond.load(), 2u);
  EXPECT_TRUE(moves(6));
  EXPECT_EQ(beyond.load(), 2u);
  driver_.cluster_width = 2;
  EXPECT_FALSE(moves(8)) << "how many clusters find room is not asked";
}

// What a context may use at most is a part of what the session has.
TEST_F(PartitionTest, ContextsHaveLess) {
  const auto create = [&](wire::Id stream, uint32_t sms) {
    EXPECT_TRUE(send(wire::StreamCreate{.stream = stream,
                                        .context = stream,
                                        .kind = wire::StreamKind::kNonBlocking,
                                        .sms = sms})
                    .ok());
  };
  load_module();
  create(1, 0);
  create(2, 4);
  create(3, 5);      // in whole steps
  create(4, 1'000);  // as many as the session
  calls();
  for (const wire::Id stream : {1, 2, 3, 4}) launch(stream);
  EXPECT_EQ(calls(), (Calls{"stream in g1", "launch s1 16", "stream in g2", "launch s2 16",
                            "stream in g2", "launch s3 16", "stream in g1", "launch s4 16"}));
  EXPECT_TRUE(send(wire::DeviceResource{0, 0, CU_DEV_RESOURCE_TYPE_SM, 4}).ok());
  EXPECT_EQ(reply<wire::DeviceResource::Reply>().resource._internal_padding[1], 2) << "that of g2";
  // Of the least that the session or the context may have.
  session_->core.parts.set(0, {.sms = 2});
  calls();
  launch(2);
  launch(1);
  const Calls less = calls();
  EXPECT_EQ(less.front(), "stream in g3") << ::testing::PrintToString(less);
  EXPECT_EQ(std::ranges::count(less, "stream in g3"), 2) << ::testing::PrintToString(less);
  session_->core.parts.set(0, {.sms = 0});
  launch(2);
  launch(1);
  const Calls more = calls();
  EXPECT_EQ(std::ranges::count(more, "stream in g2"), 1) << ::testing::PrintToString(more);
  EXPECT_EQ(std::ranges::count(more, "stream 0"), 1) << ::testing::PrintToString(more);
}

TEST_F(PartitionTest, KernelsOfGraphsAreInTheirContextsPart) {
  load_module();
  create_stream(1, wire::StreamKind::kNonBlocking);
  const wire::Launch launch = launch_of(0);
  const std::string body =
      std::string(reinterpret_cast<const char*>(&launch), sizeof launch) + std::string(16, '\0');
  const auto bytes = static_cast<uint32_t>(body.size());
  const auto kernel = [&](uint32_t sms, uint32_t parent = 0) {
    calls();
    EXPECT_TRUE(
        send(wire::GraphNode{1, wire::GraphNodeKind::kKernel, 0, bytes, parent, sms}, body).ok());
    return calls().back();
  };
  EXPECT_TRUE(send(wire::GraphBegin{1, 0}).ok());
  EXPECT_EQ(kernel(0), "kernel in g1 behind 0");
  EXPECT_EQ(kernel(4), "kernel in g2 behind 0");
  EXPECT_TRUE(send(wire::GraphInstantiate{0, 1}).ok());
  // A node that is switched off stays so, whatever is changed.
  EXPECT_TRUE(send(wire::GraphEnableNode{1, 1, 0}).ok());
  EXPECT_TRUE(send(wire::GraphSetNode{1, 1, wire::GraphNodeKind::kKernel, bytes}, body).ok());
  session_->core.parts.set(0, {.sms = 2});
  calls();
  EXPECT_TRUE(send(wire::GraphLaunch{1, 1}).ok());
  const Calls moved = calls();
  EXPECT_EQ(std::ranges::count(moved, "refresh kernel in g3"), 2)
      << ::testing::PrintToString(moved);
  EXPECT_EQ(std::ranges::count(moved, "enable 0"), 1) << ::testing::PrintToString(moved);
}

// Handle, node and bodies have to be of one context.
TEST_F(PartitionTest, BodiesAreInTheirHandlesPart) {
  load_module();
  EXPECT_TRUE(send(wire::ConditionCreate{5, 0, 1, 1, 4}).ok());
  const wire::GraphConditional conditional{reply<wire::ConditionCreate::Reply>().handle,
                                           CU_GRAPH_COND_TYPE_IF, 1};
  EXPECT_TRUE(send(wire::GraphBegin{1, 0, 5}).ok());
  EXPECT_TRUE(send(wire::GraphNode{1, wire::GraphNodeKind::kConditional, 0, sizeof conditional},
                   std::string(reinterpret_cast<const char*>(&conditional), sizeof conditional))
                  .ok());
  const wire::Launch launch = launch_of(0);
  const std::string body =
      std::string(reinterpret_cast<const char*>(&launch), sizeof launch) + std::string(16, '\0');
  const auto bytes = static_cast<uint32_t>(body.size());
  for (const uint32_t parent : {1, 0}) {
    calls();
    const uint32_t sms = parent == 1 ? 4 : 0;
    EXPECT_TRUE(
        send(wire::GraphNode{1, wire::GraphNodeKind::kKernel, 0, bytes, parent, sms}, body).ok());
    EXPECT_EQ(calls().back(), parent == 1 ? "kernel in g2 behind 0" : "kernel in g1 behind 0");
  }
}

TEST_F(PartitionTest, ItsPartIsTheDeviceThatItCanSplit) {
  EXPECT_TRUE(send(wire::DeviceResource{0, 0, CU_DEV_RESOURCE_TYPE_SM}).ok());
  EXPECT_EQ(reply<wire::DeviceResource::Reply>().resource._internal_padding[1], 1) << "that of g1";
}

// The cold lane's context has all SMs.
class LimitedBesideTest : public PartitionTest {
 protected:
  void prepare() override {
    PartitionTest::prepare();
    worker_parts_.cold =
        std::make_unique<ColdLanes>(driver_.table(), *devices_, worker_parts_.limits);
    worker_parts_.cold->share();
  }
  void SetUp() override {
    PartitionTest::SetUp();
    create_stream(2, wire::StreamKind::kNonBlocking);  // its SMs are there
    CUstream busy = nullptr;
    driver_.table().cuStreamCreateWithPriority(&busy, CU_STREAM_NON_BLOCKING, 0);
    driver_.hold(1, true);
    driver_.table().cuMemcpyAsync(0, 0, 1, busy);
    neighbour_ = gate_.add(busy, 0);
    neighbour_->set_busy();
    EXPECT_TRUE(send(wire::BlobBegin{4, 1}).ok());
    memcpy(session_->core.view.staging(), "code", 4);
    EXPECT_TRUE(send(wire::BlobData{1, 4, 0, kStaging}).ok());
    calls();
  }
  void TearDown() override {
    driver_.hold(1, false);
    const CUstream handle = neighbour_->handle;
    gate_.remove(neighbour_);
    driver_.table().cuStreamDestroy_v2(handle);
    PartitionTest::TearDown();
  }
  Status load() { return send(wire::ModuleLoad{1, 1, 0, wire::ModuleKind::kModule, 0, 0}); }
  bool has_called(const std::string& wanted) {
    const Calls made = calls();
    return std::ranges::find(made, wanted) != made.end();
  }

  ContextGate::Stream* neighbour_ = nullptr;
};

TEST_F(LimitedBesideTest, CodeWaitsForTheMainContext) {
  session_->stop = true;
  EXPECT_EQ(load().code(), CUDA_ERROR_NOT_READY);
  session_->stop = false;
}

// Which may never come: it leaves the cold one again when it can.
TEST_F(LimitedBesideTest, ButNotForWhatWaitsForItsClient) {
  neighbour_->waits = true;
  EXPECT_TRUE(load().ok());
  EXPECT_TRUE(has_called("place cold"));
  EXPECT_TRUE(send(wire::GetFunction{1, 1, wire::ModuleKind::kModule, 4}, "kern").ok());
  launch(2);
  const auto& counts = session_->core.usage.row().counts;
  const auto& beyond = counts[static_cast<size_t>(wire::UsageCount::kBeyondLimit)];
  EXPECT_EQ(beyond.load(), 1u);
  driver_.hold(1, false);
  uint64_t before = 0;
  do {  // it looks at times
    before = beyond.load();
    launch(2);
  } while (beyond.load() != before);
  calls();
  launch(2);
  EXPECT_EQ(calls(), (Calls{"launch s2 16"}));
}

class WholePartitionTest : public SessionFixture {
 protected:
  [[nodiscard]] uint32_t sms() const override { return kFakeSms; }
};

// Its code must not come by the cold lane's context, which has all SMs.
TEST_F(WholePartitionTest, WhoHasReservedSmsIsLimitedFromTheStart) {
  DeviceParts& parts = session_->core.parts;
  EXPECT_FALSE(parts.is_limited(0));
  ASSERT_TRUE(
      worker_parts_.partitions->reserve(7, {.device = 0, .sms = 2, .groups = groups({1})}).ok());
  parts.set(0, {.sms = 0, .reservation = 7});
  EXPECT_TRUE(parts.is_limited(0)) << "before its first stream";
}

TEST_F(WholePartitionTest, WhoKeepsOffReservedSmsIsLimitedFromTheStart) {
  DeviceParts& parts = session_->core.parts;
  ASSERT_TRUE(
      worker_parts_.partitions->reserve(7, {.device = 0, .sms = 2, .groups = groups({1})}).ok());
  EXPECT_TRUE(parts.is_limited(0)) << "before its first stream";
  worker_parts_.partitions->release(7);
  EXPECT_FALSE(parts.is_limited(0));
}

TEST_F(WholePartitionTest, AllSmsAreNoPart) {
  create_stream(1, wire::StreamKind::kNonBlocking);
  load_module();
  launch(1);
  EXPECT_EQ(calls(), (Calls{"stream 0", "launch s1 16"}));
}

}  // namespace
}  // namespace openmps::worker
