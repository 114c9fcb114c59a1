// SPDX-License-Identifier: Apache-2.0
// Who goes next, where sessions want the same device.
#include "worker/admission/policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "session_fixture.h"
#include "worker/admission/fair_share.h"
#include "worker/admission/verdict.h"

namespace openmps::worker {
namespace {

using wire::HeldFor;
using wire::StreamKind;

constexpr uint32_t kSms = 8;
constexpr uint64_t kLead = kLeadNs;

// ---- What is decided ----------------------------------------------------------------------------

class FairSharePolicyTest : public ::testing::Test {
 protected:
  static PolicyDecision decide(const PolicyInput& mine, const std::vector<PolicyInput>& others) {
    return fair_share_policy(mine, others, kSms);
  }
};

TEST_F(FairSharePolicyTest, WhoIsAloneHasAll) {
  const PolicyDecision decision = decide({.sms = kSms, .used_ns = 100 * kLead}, {});
  EXPECT_FALSE(decision.holds_kernels);
  EXPECT_EQ(decision.budget_ns, kBudgetNs);
}

TEST_F(FairSharePolicyTest, WhoHasHadMoreComesLater) {
  const PolicyInput little{.sms = kSms, .used_ns = 4};
  EXPECT_TRUE(decide({.sms = kSms, .used_ns = 3 * 4 + kLead + 1}, {little}).holds_kernels);
  EXPECT_FALSE(decide({.sms = kSms, .used_ns = 3 * 4 + kLead}, {little}).holds_kernels)
      << "by so little";
  EXPECT_FALSE(decide(little, {{.sms = kSms, .used_ns = 9 * kLead}}).holds_kernels);
}

TEST_F(FairSharePolicyTest, EstimatesMayBeWrong) {
  const PolicyInput other{.sms = kSms, .used_ns = 2 * kLead};
  EXPECT_FALSE(decide({.sms = kSms, .used_ns = (3 * 2 + 1) * kLead}, {other}).holds_kernels);
  EXPECT_TRUE(decide({.sms = kSms, .used_ns = (3 * 2 + 1) * kLead + 1}, {other}).holds_kernels);
}

TEST_F(FairSharePolicyTest, OneOfManyIsEnough) {
  const PolicyInput much{.sms = kSms, .used_ns = 9 * kLead};
  EXPECT_TRUE(decide(much, {much, much, {.sms = 1, .used_ns = 0}}).holds_kernels);
}

TEST_F(FairSharePolicyTest, NobodyWaitsWhileThereIsRoom) {
  const PolicyInput ahead{.sms = kSms - 2, .used_ns = 9 * kLead};
  EXPECT_FALSE(decide(ahead, {{.sms = 2}}).holds_kernels);
  EXPECT_TRUE(decide(ahead, {{.sms = 2}, {.sms = 1}}).holds_kernels);
}

TEST_F(FairSharePolicyTest, WhoCopiesOnlyIsInNobodysWay) {
  EXPECT_FALSE(decide({.sms = kSms + 1, .used_ns = 9 * kLead}, {{.sms = 0}}).holds_kernels);
}

TEST_F(FairSharePolicyTest, WeightsGiveTimeInProportion) {
  constexpr uint64_t kUsed = 100 * kWeightedLeadNs;
  const int accounts[2] = {};
  const auto input = [&](float weight, uint64_t weighed_ns, int account) {
    return PolicyInput{
        .sms = kSms, .weight = weight, .weighed_ns = weighed_ns, .account = &accounts[account]};
  };
  const PolicyInput heavy = input(3, 3 * kUsed, 0), light = input(1, kUsed, 1);
  EXPECT_FALSE(decide(heavy, {light}).holds_kernels || decide(light, {heavy}).holds_kernels);
  EXPECT_FALSE(decide(input(1, kUsed + kWeightedLeadNs, 1), {heavy}).holds_kernels);
  EXPECT_TRUE(decide(input(1, kUsed + kWeightedLeadNs + 1, 1), {heavy}).holds_kernels);
  EXPECT_FALSE(decide(input(3, 3 * (kUsed + kWeightedLeadNs), 0), {light}).holds_kernels);
  EXPECT_TRUE(decide(input(3, 3 * (kUsed + kWeightedLeadNs) + 3, 0), {light}).holds_kernels);
  EXPECT_TRUE(decide(input(0, kUsed + kWeightedLeadNs + 1, 1), {heavy}).holds_kernels)
      << "who states no weight has 1";
  EXPECT_FALSE(decide(input(3, 9 * kUsed, 0), {input(3, 9 * kUsed, 0)}).holds_kernels)
      << "they have one account";
  EXPECT_EQ(decide(heavy, {input(0, kUsed, 1)}).longest_wait_ns, kWeightedWaitNs);
  EXPECT_EQ(decide(input(0, kUsed, 1), {heavy}).longest_wait_ns, kWeightedWaitNs);
  EXPECT_FALSE(decide({.sms = 2, .weight = 1, .weighed_ns = 9 * kUsed, .account = &accounts[0]},
                      {{.sms = 2, .weight = 1, .account = &accounts[1]}})
                   .holds_kernels)
      << "there are SMs for both";
}

TEST_F(FairSharePolicyTest, AHigherRankGoesFirstHoweverMuchItHasHad) {
  const PolicyInput latency{.rank = Rank::kLatency, .sms = 2, .used_ns = 9 * kLead};
  const PolicyInput normal{.sms = kSms};
  EXPECT_TRUE(decide(normal, {latency}).holds_kernels);
  EXPECT_FALSE(decide(latency, {normal}).holds_kernels);
  const PolicyInput last{.rank = Rank::kBestEffort, .sms = kSms};
  EXPECT_TRUE(decide(last, {normal}).holds_kernels);
  EXPECT_FALSE(decide({.sms = kSms, .used_ns = 9 * kLead}, {last}).holds_kernels);
}

TEST_F(FairSharePolicyTest, BesideAHigherRankBudgetsAreShort) {
  const PolicyInput last{.rank = Rank::kBestEffort, .sms = 1};
  EXPECT_EQ(decide(last, {{.sms = 1}}).budget_ns, kShortBudgetNs);
  EXPECT_EQ(decide(last, {last}).budget_ns, kBudgetNs);
  EXPECT_EQ(decide({.sms = 1}, {last}).budget_ns, kBudgetNs);
}

// ---- Strict priority ----------------------------------------------------------------------------

TEST(StrictPriorityPolicyTest, AHigherRankGoesFirstWhateverThereIsAndForHoweverLong) {
  const PolicyInput latency[] = {{.rank = Rank::kLatency, .sms = 1, .used_ns = 100 * kLead}};
  const PolicyDecision decision = strict_policy({.rank = Rank::kNormal, .sms = 1}, latency, kSms);
  EXPECT_TRUE(decision.holds_kernels) << "there are SMs for both";
  EXPECT_EQ(decision.longest_wait_ns, kNever);
}

TEST(StrictPriorityPolicyTest, OneRankDoesNotWait) {
  const PolicyInput ahead{.sms = kSms, .used_ns = 100 * kLead};
  const PolicyInput others[] = {{.sms = kSms}, {.rank = Rank::kBestEffort, .sms = kSms}};
  EXPECT_FALSE(strict_policy(ahead, others, kSms).holds_kernels);
}

TEST(StrictPriorityPolicyTest, CopiesOfAHigherRankHoldNobodyBack) {
  const PolicyInput copies[] = {{.rank = Rank::kLatency, .sms = 0}};
  EXPECT_FALSE(strict_policy({.sms = kSms}, copies, kSms).holds_kernels);
}

TEST(PolicyNamesTest, EachNameMakesAPolicy) {
  EXPECT_EQ(policy_of("fair"), fair_share_policy);
  EXPECT_EQ(policy_of("strict"), strict_policy);
  EXPECT_NE(policy_of(kDefaultPolicy), nullptr);
  EXPECT_EQ(policy_of("lottery"), nullptr);
  EXPECT_EQ(policy_names(), "fair, strict");
}

TEST(DriverPriorityTest, RanksHaveTheirs) {
  EXPECT_EQ(driver_priority(Rank::kLatency, 0, 0, -5), -5);
  EXPECT_EQ(driver_priority(Rank::kNormal, -3, 0, -5), -3);
  EXPECT_EQ(driver_priority(Rank::kBestEffort, -5, 0, -5), 0);
}

// ---- Who decides --------------------------------------------------------------------------------

class SharesTest : public ::testing::Test {
 protected:
  SharesTest() { device_.set_policy(fair_share_policy, kSms); }
  // `mine` has had more than it is to have before the other.
  void get_ahead() {
    mine_.begin_work(kSms);
    mine_.charge(4 * kLead, kSms, kNow);
    other_.begin_work(kSms);
    other_.expect_end(kNow + kSecond);
  }

  static constexpr uint64_t kSecond = 1'000'000'000;
  static constexpr uint64_t kNow = 100 * kSecond;
  FairShares device_;
  std::shared_ptr<Bell> bell_ = std::make_shared<Bell>();
  std::shared_ptr<Bell> other_bell_ = std::make_shared<Bell>();
  FairShare mine_{device_, Rank::kNormal, bell_};
  FairShare other_{device_, Rank::kNormal, other_bell_};
};

TEST_F(SharesTest, WhoIsAheadWaitsUntilTheOtherIsDone) {
  get_ahead();
  EXPECT_TRUE(mine_.is_contested());
  EXPECT_TRUE(mine_.must_wait(kNow));
  EXPECT_TRUE(other_bell_->rung()) << "it is to look whether it is done";
  EXPECT_EQ(other_.sessions_waited_for(), 2u);
  EXPECT_FALSE(other_.must_wait(kNow));
  other_.end_work(kNow);
  EXPECT_TRUE(bell_->rung());
  EXPECT_FALSE(mine_.must_wait(kNow)) << "before the next decision is due";
  EXPECT_EQ(mine_.sessions_waited_for(), 0u);
  mine_.end_work(kNow);
}

TEST_F(SharesTest, ItWaitsAlsoWithNothingUnderWay) {
  get_ahead();
  mine_.end_work(kNow);
  EXPECT_TRUE(mine_.is_contested());
  EXPECT_TRUE(mine_.must_wait(kNow));
  other_.end_work(kNow);
  EXPECT_TRUE(bell_->rung());
  EXPECT_FALSE(mine_.is_contested());
}

TEST_F(SharesTest, ItWaitsUntilTheOtherHasHadAsMuch) {
  get_ahead();
  EXPECT_TRUE(mine_.must_wait(kNow));
  other_.charge(4 * kLead, kSms, kNow);
  EXPECT_TRUE(mine_.must_wait(mine_.next_decision_ns() - 1)) << "as decided";
  EXPECT_FALSE(mine_.must_wait(mine_.next_decision_ns()));
  mine_.end_work(kNow);
  other_.end_work(kNow);
}

// The light one, whose kernels take a while, has one of them each time that it has had less.
TEST_F(SharesTest, SessionsOfWeights) {
  mine_.set_weight(3);
  mine_.begin_work(kSms);
  other_.begin_work(kSms);
  constexpr uint64_t kKernelNs = 4'000'000;
  uint64_t now = kNow, had_mine = 0, had_other = 0, now_mine = 0;
  for (int i = 0; i < 2000; ++i) {
    const bool mine_may = !mine_.must_wait(now), other_may = !other_.must_wait(now);
    ASSERT_TRUE(mine_may || other_may) << "the device idles";
    if (mine_may && (!other_may || now_mine % 2 == 0)) {
      now += kKernelNs;
      mine_.charge(kKernelNs, kSms, now);
      had_mine += kKernelNs;
    } else {
      now += kKernelNs;
      other_.charge(kKernelNs, kSms, now);
      had_other += kKernelNs;
    }
    ++now_mine;
    mine_.expect_end(now + 2 * kKernelNs);
    other_.expect_end(now + 2 * kKernelNs);
  }
  EXPECT_TRUE(mine_.is_weighted() && other_.is_weighted());
  const double ratio = static_cast<double>(had_mine) / static_cast<double>(had_other);
  EXPECT_NEAR(ratio, 3, 0.15);
  mine_.end_work(now);
  other_.end_work(now);
}

TEST_F(SharesTest, AGroupWithAWeightHasOneAccount) {
  ShareAccount group;
  FairShare third{device_, Rank::kNormal, bell_, &group, &group};
  FairShare fourth{device_, Rank::kNormal, bell_, &group, &group};
  for (FairShare* share : {&third, &fourth, &other_}) {
    share->begin_work(kSms);
    share->expect_end(kNow + kSecond);
  }
  third.charge(4 * kLead, kSms, kNow);
  EXPECT_FALSE(fourth.must_wait(kNow)) << "each has an account of its own";
  group.set_weight(1);
  const uint64_t later = fourth.next_decision_ns();
  EXPECT_TRUE(fourth.must_wait(later)) << "what the other member has had counts";
  EXPECT_FALSE(other_.must_wait(later));
  for (FairShare* share : {&third, &fourth, &other_}) share->end_work(later);
}

TEST_F(SharesTest, WorkOfOthersIsKnownToThoseWhoBorrow) {
  int calls = 0;
  device_.on_others_work([&calls] { ++calls; });
  const void* const me = &device_;
  FairShare borrower{device_, Rank::kNormal, bell_, nullptr, me};
  EXPECT_FALSE(device_.others_work({me}, 0));
  borrower.begin_work(kSms);
  EXPECT_FALSE(device_.others_work({me}, 0)) << "its own does not count";
  device_.set_borrowers({{me}});
  EXPECT_EQ(borrower.budget_ns(), kShortBudgetNs);
  other_.begin_work(kSms);
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(device_.others_work({me}, kNow));
  other_.end_work(kNow);
  EXPECT_TRUE(device_.others_work({me}, kNow)) << "it has had some at that time";
  EXPECT_FALSE(device_.others_work({me}, kNow + 1));
  EXPECT_FALSE(device_.others_work({me, &other_}, kNow)) << "both are the borrower's";
  {
    FairShare member{device_, Rank::kNormal, bell_, nullptr, me, &member};
    member.begin_work(kSms);
    EXPECT_TRUE(device_.works(&member)) << "of the same group, and known by itself";
    EXPECT_FALSE(device_.others_work({me}, kNow + 1));
    member.end_work(kNow);
    EXPECT_FALSE(device_.works(&member));
    EXPECT_TRUE(device_.works(me) && !device_.works(&other_));
    EXPECT_TRUE(device_.others_work({&member}, kNow + 1)) << "the other member of the group works";
  }
  borrower.end_work(kNow);
  borrower.begin_work(kSms);
  EXPECT_EQ(calls, 1) << "it does not call itself back";
  device_.set_borrowers({}, true);
  EXPECT_EQ(borrower.budget_ns(), kShortBudgetNs);
  device_.set_borrowers({});
  other_.begin_work(kSms);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(borrower.budget_ns(), kBudgetNs);
  other_.end_work(kNow);
  borrower.end_work(kNow);
}

TEST_F(SharesTest, HalfOfTheSmsCountHalf) {
  get_ahead();
  other_.charge(kLead, kSms / 2, kNow);
  EXPECT_TRUE(mine_.must_wait(kNow));
  other_.charge(kLead, kSms / 2, kNow);
  EXPECT_FALSE(mine_.must_wait(mine_.next_decision_ns()));
  mine_.end_work(kNow);
  other_.end_work(kNow);
}

TEST_F(SharesTest, SomethingGoesWhateverTheOthersDo) {
  get_ahead();
  EXPECT_TRUE(mine_.must_wait(kNow));
  other_.expect_end(kNow + 2 * PolicyDecision().longest_wait_ns);
  EXPECT_TRUE(mine_.must_wait(kNow + PolicyDecision().longest_wait_ns));
  EXPECT_FALSE(mine_.must_wait(kNow + PolicyDecision().longest_wait_ns + FairShare::kDecideNs));
  EXPECT_TRUE(mine_.must_wait(kNow + PolicyDecision().longest_wait_ns + 2 * FairShare::kDecideNs))
      << "again";
  mine_.end_work(kNow);
  other_.end_work(kNow);
}

TEST_F(SharesTest, WhatShouldHaveEndedLongAgoHas) {
  mine_.begin_work(kSms);
  mine_.charge(4 * kLead, kSms, kNow);
  other_.begin_work(kSms);
  const uint64_t end = kNow + PolicyDecision().longest_wait_ns / 2;
  other_.expect_end(end);
  EXPECT_TRUE(mine_.must_wait(end + FairShare::kOverdueNs));
  EXPECT_FALSE(mine_.must_wait(end + FairShare::kOverdueNs + FairShare::kDecideNs));
  mine_.end_work(kNow);
  other_.end_work(kNow);
}

TEST_F(SharesTest, WhatWasLongAgoCountsLess) {
  get_ahead();
  EXPECT_EQ(mine_.used_ns(kNow), 4 * kLead);
  EXPECT_EQ(mine_.used_ns(kNow + ShareAccount::kHalfNs), 2 * kLead);
  mine_.charge(kLead, kSms, kNow + ShareAccount::kHalfNs);
  EXPECT_EQ(mine_.used_ns(kNow + 2 * ShareAccount::kHalfNs), 3 * kLead / 2);
  EXPECT_TRUE(mine_.must_wait(kNow + 2 * ShareAccount::kHalfNs));
  EXPECT_FALSE(mine_.must_wait(kNow + 3 * ShareAccount::kHalfNs));
  mine_.end_work(kNow);
  other_.end_work(kNow);
}

TEST_F(SharesTest, OnlyCrowdedDevicesMakeTimesUnsure) {
  mine_.begin_work(2);
  other_.begin_work(2);
  other_.expect_end(kNow);
  EXPECT_FALSE(mine_.must_wait(kNow));
  EXPECT_EQ(mine_.satisfied_since(0), 1);
  FairShare third{device_, Rank::kNormal, bell_};
  third.begin_work(kSms);
  third.expect_end(kNow + kSecond);
  EXPECT_FALSE(mine_.must_wait(mine_.next_decision_ns()));
  EXPECT_EQ(mine_.satisfied_since(kNow), kSms / (kSms + 4.0));
  third.end_work(kNow);
  other_.end_work(kNow + 1);
  EXPECT_LT(mine_.satisfied_since(kNow), 1) << "in between";
  EXPECT_EQ(mine_.satisfied_since(kNow + 1), 1);
  mine_.end_work(kNow);
}

TEST_F(SharesTest, BudgetsAreShortNoLongerThanOthersAreThere) {
  FairShare last{device_, Rank::kBestEffort, bell_};
  last.begin_work(1);
  other_.begin_work(1);
  other_.expect_end(kNow + kSecond);
  EXPECT_FALSE(last.must_wait(kNow)) << "there is room";
  EXPECT_EQ(last.budget_ns(), kShortBudgetNs);
  other_.end_work(kNow);
  EXPECT_EQ(last.budget_ns(), kBudgetNs);
  last.end_work(kNow);
}

TEST_F(SharesTest, WithoutAPolicyNobodyWaits) {
  FairShares device;
  FairShare one{device, Rank::kBestEffort, bell_};
  FairShare two{device, Rank::kLatency, other_bell_};
  one.begin_work(kSms);
  one.charge(1000 * kLead, kSms, kNow);
  two.begin_work(kSms);
  EXPECT_FALSE(one.is_contested());
  one.end_work(kNow);
  two.end_work(kNow);
}

// ---- What comes of it ---------------------------------------------------------------------------

// A session of a rank, and a neighbour that keeps the device's only SM busy.
class PolicyTest : public SessionFixture {
 protected:
  void prepare() override {
    worker_parts_.performance.budgets = true;
    worker_parts_.performance.batches = false;
    worker_parts_.shares[0].set_policy(fair_share_policy, 1);
    neighbour_ = std::make_unique<FairShare>(worker_parts_.shares[0], Rank::kNormal, bell_);
  }
  void SetUp() override {
    SessionFixture::SetUp();
    load_module();
    create_stream(1, StreamKind::kNonBlocking);
    calls();
  }
  void TearDown() override {
    if (neighbour_works_) neighbour_->end_work(now());
    SessionFixture::TearDown();
  }
  void begin_neighbour() {
    neighbour_works_ = true;
    neighbour_->begin_work(1);
    neighbour_->expect_end(now() + 60'000'000'000);
  }
  // The session has had more than it is to have before the neighbour, who has work.
  void get_ahead() {
    launch(1);
    session_->streams.share(0).charge(100 * kLead, 1, now());
    begin_neighbour();
  }
  void end_neighbour() {
    neighbour_works_ = false;
    neighbour_->end_work(now());
  }
  [[nodiscard]] uint64_t now() const { return clock_.now_ns(); }
  size_t launched() {
    const Calls made = calls();
    return static_cast<size_t>(std::count_if(made.begin(), made.end(), [](const auto& call) {
      return call.rfind("launch s1", 0) == 0;
    }));
  }
  // When that is due.
  void look() {
    clock_.advance(2'000'000);
    session_->streams.look_at_streams(now());
  }
  void advance() {
    look();
    session_->submitter.advance();
  }
  uint64_t standing(HeldFor why) {
    return session_->core.usage.row().held_now[static_cast<size_t>(why)];
  }

  const std::shared_ptr<Bell> bell_ = std::make_shared<Bell>();
  std::unique_ptr<FairShare> neighbour_;
  bool neighbour_works_ = false;
};

TEST_F(PolicyTest, WhoHasHadItsPartIsHeldBackUntilOthersAreDone) {
  get_ahead();
  EXPECT_EQ(launched(), 1u);
  launch(1);
  EXPECT_EQ(launched(), 0u);
  EXPECT_EQ(standing(HeldFor::kFairShare), 0u) << "seen with the first look";
  advance();
  EXPECT_EQ(standing(HeldFor::kFairShare), 1u);
  EXPECT_EQ(launched(), 0u);
  end_neighbour();
  advance();
  EXPECT_EQ(launched(), 1u);
  EXPECT_EQ(standing(HeldFor::kFairShare), 0u);
  EXPECT_TRUE(session_->backlog.empty());
}

TEST_F(PolicyTest, WhatIsSubmittedAllTheSameIsNotWaitedWith) {
  get_ahead();
  launch(1);
  EXPECT_EQ(launched(), 1u);
  EXPECT_NE(neighbour_->sessions_waited_for(), 0u);
  session_->submitter.flush();
  EXPECT_EQ(launched(), 1u);
  EXPECT_EQ(neighbour_->sessions_waited_for(), 0u);
}

TEST_F(PolicyTest, CopiesGoAllTheSame) {
  map(kBase, 2 * wire::kMiB);
  get_ahead();
  calls();
  EXPECT_TRUE(send(wire::Memcpy{1, 0, kBase, kBase + 64, 64}).ok());
  EXPECT_TRUE(session_->backlog.empty());
}

TEST_F(PolicyTest, WhoCopiesOnlyDoesNotCompete) {
  map(kBase, 2 * wire::kMiB);
  begin_neighbour();
  EXPECT_TRUE(send(wire::Memcpy{1, 0, kBase, kBase + 64, 64}).ok());
  EXPECT_FALSE(neighbour_->is_contested());
  launch(1);
  EXPECT_TRUE(neighbour_->is_contested()) << "kernels behind a copy do";
}

TEST_F(PolicyTest, WhoIsDoneIsNoLongerInTheWay) {
  begin_neighbour();
  launch(1);
  EXPECT_TRUE(neighbour_->is_contested());
  EXPECT_TRUE(session_->streams.has_streams_to_look_at());
  for (int i = 0; i < 2; ++i) look();
  EXPECT_FALSE(neighbour_->is_contested());
}

// The neighbour is of a higher rank, and the policy is strict.
class StrictTest : public PolicyTest {
 protected:
  void prepare() override {
    PolicyTest::prepare();
    worker_parts_.shares[0].set_policy(strict_policy, 8);
    neighbour_->set_rank(Rank::kLatency);
  }
};

TEST_F(StrictTest, ALowerRankRunsOnlyWhenTheHigherIsDone) {
  launch(1);
  EXPECT_EQ(launched(), 1u) << "the first use of a stream makes it";
  begin_neighbour();
  launch(1);
  EXPECT_EQ(launched(), 0u) << "though there are SMs for both, and it has had nothing yet";
  for (int i = 0; i < 100; ++i) advance();  // longer than fair shares let anybody wait
  EXPECT_EQ(launched(), 0u);
  EXPECT_EQ(standing(HeldFor::kFairShare), 1u);
  end_neighbour();
  advance();
  EXPECT_EQ(launched(), 1u);
}

// Its kernel takes a millisecond, and waits for four more for an SM that the neighbour has.
class CrowdedTest : public PolicyTest {
 protected:
  static constexpr uint64_t kTakesNs = 1'000'000;
  static constexpr uint64_t kWaitsNs = 4'000'000;

  void SetUp() override {
    PolicyTest::SetUp();
    launch(1);
    number_ = session_->modules.functions().find(1)->duration(1);
    look();
    session_->streams.durations.learn({&number_, 1}, {Durations::kUnknownNs, kTakesNs, kTakesNs});
    const uint64_t known = session_->streams.durations.of({.learnt = number_});
    session_->streams.durations.learn({&number_, 1}, {known, kTakesNs, kTakesNs});
    begin_neighbour();
    driver_.hold(1, true);
    launch(1);
    look();  // the mark
    clock_.advance(kWaitsNs);
    look();
  }
  uint32_t number_ = 0;
};

TEST_F(CrowdedTest, WhatItWaitsForSmsIsNotTakenForItsOwnTime) {
  driver_.hold(1, false);
  look();
  const Durations& durations = session_->streams.durations;
  EXPECT_GE(durations.of({.learnt = number_}), kTakesNs);
  EXPECT_LE(durations.of({.learnt = number_}), kTakesNs + kTakesNs / 2) << "it may have got longer";
  EXPECT_EQ(durations.alone({.learnt = number_}), kTakesNs);
  // Of the first launch as well, which took no time that has been seen.
  EXPECT_LE(session_->streams.share(0).used_ns(now()), kTakesNs + kTakesNs / 10);
  EXPECT_GE(session_->streams.share(0).used_ns(now()), kTakesNs - kTakesNs / 10);
}

TEST_F(CrowdedTest, WhoIsWaitedForLooksSooner) {
  const uint64_t rarely = session_->streams.next_look_ns();
  neighbour_->charge(100 * kLead, 1, now());
  EXPECT_TRUE(neighbour_->must_wait(now()));
  EXPECT_TRUE(session_->core.bell->rung());
  EXPECT_LT(session_->streams.next_look_ns(), rarely);
  driver_.hold(1, false);
}

TEST_F(CrowdedTest, WhoWaitsForItKnowsThatItHasNotEnded) {
  neighbour_->charge(100 * kLead, 1, now());
  EXPECT_TRUE(neighbour_->must_wait(now())) << "it should have ended long ago, but has not";
  driver_.hold(1, false);
}

TEST(DurationsTest, WhatOthersTakeOfItIsNotTheKernels) {
  Durations durations;
  const uint32_t number = durations.add();
  const Cost cost{.learnt = number};
  durations.learn_alone({&number, 1}, {Durations::kUnknownNs, 0, 1'000});
  EXPECT_EQ(durations.alone(cost), Durations::kUnknownNs) << "nothing is known yet";
  durations.learn({&number, 1}, {Durations::kUnknownNs, 4'000'000, 4'000'000}, 0.25);
  EXPECT_EQ(durations.of(cost), 4'000'000u);
  EXPECT_EQ(durations.alone(cost), 1'000'000u) << "nothing better is known";
  durations.learn_alone({&number, 1}, {1'000'000, 0, 100'000});
  EXPECT_EQ(durations.alone(cost), 100'000u);
  EXPECT_EQ(durations.of(cost), 4'000'000u);
  durations.learn({&number, 1}, {4'000'000, 5'000'000, 5'000'000}, 0.25);
  EXPECT_EQ(durations.alone(cost), 100'000u);
  durations.learn_alone({&number, 1}, {100'000, 300'000, 310'000});
  EXPECT_EQ(durations.alone(cost), 300'000u) << "it does more now";
}

class LatencyTest : public PolicyTest {
 protected:
  [[nodiscard]] Rank rank() const override { return Rank::kLatency; }
};

TEST_F(LatencyTest, ItsStreamsHaveTheHighestPriority) {
  launch(1);
  const Calls made = driver_.take_calls();
  const std::string wanted = "stream " + std::to_string(devices_->at(0).greatest_priority);
  ASSERT_NE(devices_->at(0).greatest_priority, 0);
  EXPECT_NE(std::find(made.begin(), made.end(), wanted), made.end());
}

TEST_F(LatencyTest, ItGoesHoweverMuchItHasHad) {
  launch(1);
  session_->streams.share(0).charge(1000 * kLead, 1, now());
  begin_neighbour();
  launch(1);
  EXPECT_EQ(launched(), 2u);
}

TEST_F(LatencyTest, SoDoTheKernelsOfItsGraphs) {
  EXPECT_TRUE(send(wire::GraphBegin{1, 0}).ok());
  const wire::Launch kernel = launch_of(0);
  std::string body(sizeof kernel, '\0');
  memcpy(body.data(), &kernel, sizeof kernel);
  body.resize(body.size() + kernel.parameter_bytes);
  const wire::GraphNode node{1, wire::GraphNodeKind::kKernel, 0, static_cast<uint32_t>(body.size()),
                             0};
  EXPECT_TRUE(send(node, body).ok());
  EXPECT_TRUE(send(wire::GraphInstantiate{0, 1}).ok());
  const Calls made = calls();
  const std::string wanted = "attribute " + std::to_string(CU_LAUNCH_ATTRIBUTE_PRIORITY);
  EXPECT_EQ(std::count(made.begin(), made.end(), wanted), 1);
}

class LatencyBatchTest : public LatencyTest {
 protected:
  void prepare() override {
    LatencyTest::prepare();
    worker_parts_.performance.batches = true;
  }
};

TEST_F(LatencyBatchTest, SoDoTheKernelsOfItsBatches) {
  launch(1);
  EXPECT_TRUE(send(wire::Fence{1, 0, 1}).ok());
  const uint32_t number = session_->modules.functions().find(1)->duration(1);
  session_->streams.durations.learn({&number, 1}, {Durations::kUnknownNs, 1'000, 1'000});
  session_->submitter.note_ahead(1 << 20);
  calls();
  for (int i = 0; i < 40; ++i) launch(1);
  session_->submitter.end_batch();
  const Calls made = calls();
  const std::string wanted = "attribute " + std::to_string(CU_LAUNCH_ATTRIBUTE_PRIORITY);
  EXPECT_EQ(std::count(made.begin(), made.end(), wanted), 40);
}

}  // namespace
}  // namespace openmps::worker
