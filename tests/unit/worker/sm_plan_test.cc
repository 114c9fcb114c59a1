// SPDX-License-Identifier: Apache-2.0
// Which SMs each session is to have, and what follows from what its work needs: values alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "worker/partitions/demand.h"
#include "worker/partitions/plan.h"
#include "worker/partitions/sm_set.h"

namespace openmps::worker {
namespace {

// As text, from group 0 on: "0110".
SmGroups groups_of(const std::string& text) {
  SmGroups made;
  for (size_t i = 0; i < text.size(); ++i) made[i] = text[i] == '1';
  return made;
}

TEST(SmSetTest, GroupsWithTheFewestUsers) {
  const auto least = [](const std::vector<uint32_t>& users, size_t count,
                        const std::string& allowed, const std::string& preferred = "") {
    return least_used(users, count, groups_of(allowed), groups_of(preferred));
  };
  EXPECT_EQ(least({0, 0, 0, 0}, 2, "1111"), groups_of("1100"));
  EXPECT_EQ(least({1, 1, 0, 0}, 2, "1111"), groups_of("0011"));
  EXPECT_EQ(least({1, 1, 0, 0}, 3, "1111"), groups_of("1011"));
  EXPECT_EQ(least({2, 1, 2, 1}, 2, "1111"), groups_of("0101"));
  EXPECT_EQ(least({0, 0}, 5, "1111"), groups_of("11"));
  EXPECT_EQ(least({0, 0, 1, 0}, 3, "0111"), groups_of("0111"));
  EXPECT_EQ(least({0, 0, 0, 0}, 2, "1111", "0110"), groups_of("0110"));
}

TEST(SmSetTest, ASetIncludesWhatHasNoOtherGroups) {
  const SmSet set{SmSet::Kind::kGroups, groups_of("1110"), 6};
  EXPECT_TRUE(set.includes({SmSet::Kind::kGroups, groups_of("0110"), 4}));
  EXPECT_FALSE(set.includes({SmSet::Kind::kGroups, groups_of("0011"), 4}));
  EXPECT_FALSE(set.includes({SmSet::Kind::kGroups, groups_of("1110"), 8}))
      << "more of the last group";
  EXPECT_FALSE(set.includes({SmSet::Kind::kFew, {}, 2}));
}

// 18 SMs: three groups of four, and six SMs that fill none; two of these are few.
class SmPlanTest : public ::testing::Test {
 protected:
  SmPlanTest() {
    SmLayout& layout = plan_.layout(0);
    layout.sms = 18;
    layout.step = 4;
    layout.few_sms = 2;
    layout.group_sms = {4, 4, 4, 6};
    layout.has_partial_group = true;
  }
  SmWish& add(const SmTerms& terms, const SmWish* whole = nullptr) {
    wishes_.push_back(std::make_unique<SmWish>(SmWish{.whole = whole, .terms = terms}));
    plan_.add(*wishes_.back());
    return *wishes_.back();
  }
  static SmGroups of(const SmWish& wish) {
    return wish.assignment.is_whole_device ? groups_of("1111") : wish.assignment.set.groups;
  }

  SmPlan plan_;
  std::vector<std::unique_ptr<SmWish>> wishes_;
};

TEST_F(SmPlanTest, LimitsAreWholeStepsApartFromEachOther) {
  const SmWish &one = add({.sms = 4}), &two = add({.sms = 9}), &three = add({.sms = 16});
  EXPECT_EQ(of(one), groups_of("1000"));
  EXPECT_EQ(of(two), groups_of("0110"));
  EXPECT_EQ(two.assignment.set.sms, 8u);
  EXPECT_EQ(three.assignment.set.sms, 16u) << "of 18 that its groups have";
  EXPECT_TRUE(add({}).assignment.is_whole_device);
  EXPECT_TRUE(add({.sms = 18}).assignment.is_whole_device);
}

TEST_F(SmPlanTest, WhoHasOthersSmsHasItsOwnAgainAfterwards) {
  SmWish &one = add({.sms = 4, .borrows = true}), &two = add({.sms = 4});
  EXPECT_EQ(of(one), groups_of("1000"));
  one.is_lifted = true;
  plan_.assign_all(0);
  EXPECT_TRUE(one.assignment.is_whole_device && plan_.is_lifted(one));
  EXPECT_FALSE(one.assignment.has_limit());
  const SmWish& three = add({.sms = 4});
  EXPECT_EQ(of(three), groups_of("0010")) << "those of the first count as used";
  one.is_lifted = false;
  plan_.assign_all(0);
  EXPECT_EQ(of(one), groups_of("1000"));
  EXPECT_EQ(of(two), groups_of("0100"));
  EXPECT_EQ(one.assignment.set.sms, 4u);
}

TEST_F(SmPlanTest, AContextHasAPartOfItsSessionsSet) {
  SmWish& session = add({.sms = 8});
  const SmWish& context = add({.sms = 4}, &session);
  EXPECT_EQ(of(context), groups_of("1000"));
  EXPECT_EQ(of(add({.sms = 4})), groups_of("0010")) << "the context uses no group twice";
  session.terms.sms = 4;
  plan_.assign_all(0);
  EXPECT_EQ(of(context), of(session));
}

TEST_F(SmPlanTest, WhoGoesLeavesNothingUsed) {
  SmWish& first = add({.sms = 8});
  plan_.remove(first);
  EXPECT_EQ(of(add({.sms = 8})), groups_of("1100"));
}

TEST_F(SmPlanTest, LowerRanksKeepOffWhatIsReservedForRanksWhileThatIsSaid) {
  SmWish &quick = add({.rank = Rank::kLatency}), &low = add({.rank = Rank::kBestEffort});
  plan_.for_ranks(0).groups = groups_of("0001");
  plan_.assign_all(0);
  EXPECT_TRUE(low.assignment.is_whole_device);
  plan_.for_ranks(0).excludes_from = Rank::kNormal;
  plan_.assign_all(0);
  EXPECT_TRUE(quick.assignment.is_whole_device);
  EXPECT_EQ(of(low), groups_of("1110"));
  EXPECT_EQ(low.assignment.too_few_for, RecentDemand::kWhole);
  low.needs_whole_device = true;
  plan_.assign_all(0);
  EXPECT_TRUE(low.assignment.is_whole_device);
  EXPECT_EQ(low.assignment.too_few_for, RecentDemand::kNone);
}

TEST_F(SmPlanTest, PlacesHoldForWhoHasNoLimit) {
  SmWish &small = add({}), &limited = add({.sms = 4}), &filler = add({});
  small.place = limited.place = SmSet::Kind::kFew;
  filler.place = SmSet::Kind::kRemaining;
  plan_.assign_all(0);
  EXPECT_EQ(small.assignment.set, plan_.layout(0).few());
  EXPECT_EQ(small.assignment.too_few_for, RecentDemand::kWide);
  EXPECT_EQ(filler.assignment.set.sms, 16u);
  EXPECT_EQ(of(limited), groups_of("1000"));
  ASSERT_TRUE(plan_.reserve(7, {.device = 0, .sms = 4}).ok());
  plan_.assign_all(0);
  EXPECT_EQ(of(small), of(filler)) << "reservations go first";
}

// Ten groups of two SMs, of which the partition 1 has the first two and 2 the next two; 3 has two
// that it does not lend.
class LendingPlanTest : public ::testing::Test {
 protected:
  LendingPlanTest() {
    SmLayout& layout = plan_.layout(0);
    layout.sms = 20;
    layout.step = 2;
    layout.group_sms.assign(10, 2);
    reserve(1, "11", true, 8);
    reserve(2, "0011", true, 8);
    reserve(3, "000011", false, 8);
    for (uint32_t number = 1; number <= 3; ++number) {
      wishes_[number - 1].terms.reservation = number;
      plan_.add(wishes_[number - 1]);
    }
  }
  void reserve(uint32_t number, const std::string& groups, bool lends, uint32_t most) {
    ASSERT_TRUE(plan_
                    .reserve(number, {.device = 0,
                                      .sms = 4,
                                      .lends = lends,
                                      .groups = groups_of(groups),
                                      .most_sms = most})
                    .ok());
  }
  // Which of the partitions have work, and whether nobody else has.
  void set(const std::vector<uint32_t>& working, bool has_free) {
    for (auto& [number, one] : plan_.reservations()) {
      const bool works = std::ranges::find(working, number) != working.end();
      one.is_lent = one.lease != nullptr && !works;
      one.has_free = has_free && works;
    }
    plan_.assign_all(0);
  }
  static SmGroups of(const SmWish& wish) { return wish.assignment.set.groups; }

  SmPlan plan_;
  std::array<SmWish, 3> wishes_;
};

TEST_F(LendingPlanTest, APartitionGrowsByWhatOthersLendUpToItsMost) {
  SmWish& first = wishes_[0];
  set({1}, false);
  EXPECT_EQ(of(first), groups_of("1111")) << "with what 2 lends, and nothing of 3";
  EXPECT_TRUE(plan_.is_lifted(first) && plan_.has_borrowed(first));
  EXPECT_EQ(plan_.own_set(first).groups, groups_of("11")) << "which is what it is told";
  EXPECT_EQ(of(wishes_[2]), groups_of("000011")) << "who does not lend does not borrow";
  set({1, 2}, false);
  EXPECT_EQ(of(wishes_[0]), groups_of("11"));
  EXPECT_EQ(of(wishes_[1]), groups_of("0011"));
  EXPECT_FALSE(plan_.is_lifted(wishes_[0]));
  set({1, 2, 3}, true);
  EXPECT_EQ(of(wishes_[0]), groups_of("11000011"));
  EXPECT_EQ(of(wishes_[1]), groups_of("0011000011")) << "of what is free each has other groups";
  EXPECT_EQ(of(wishes_[2]), groups_of("000011"));
  set({1}, true);
  EXPECT_EQ(of(wishes_[0]), groups_of("11000011")) << "it keeps what it has";
  EXPECT_EQ(of(wishes_[1]), groups_of("0011")) << "without work it has its own";
}

TEST_F(LendingPlanTest, LimitsWithinAPartitionStayWithinIt) {
  SmWish inside{.terms = {.sms = 2, .reservation = 1}};
  SmWish context{.whole = &wishes_[0], .terms = {.sms = 4, .reservation = 1}};
  SmWish small{.whole = &wishes_[0], .terms = {.sms = 2, .reservation = 1}};
  plan_.add(inside);
  plan_.add(context);
  plan_.add(small);
  set({1}, true);
  EXPECT_EQ(of(wishes_[0]).count(), 4u);
  EXPECT_TRUE((of(inside) & ~groups_of("11")).none());
  EXPECT_EQ(of(context), groups_of("11"));
  EXPECT_TRUE((of(small) & ~groups_of("11")).none());
  EXPECT_FALSE(plan_.has_borrowed(inside) || plan_.has_borrowed(context));
}

TEST_F(LendingPlanTest, OthersHaveWhatIsLentToo) {
  SmWish whole, limited{.terms = {.sms = 4}}, wide{.terms = {.sms = 10}};
  plan_.add(whole);
  plan_.add(limited);
  set({}, false);
  EXPECT_EQ(of(whole), groups_of("1111001111")) << "all but what 3 has";
  EXPECT_EQ(of(limited), groups_of("0000001100")) << "such as it need not leave";
  plan_.add(wide);
  EXPECT_EQ(of(wide).count(), 5u);
  EXPECT_TRUE((of(wide) & groups_of("000011")).none());
  set({1, 2}, false);
  EXPECT_EQ(of(whole), groups_of("0000001111"));
  reserve(4, "0000001111", true, 0);
  set({}, false);
  EXPECT_EQ(whole.assignment.set.sms, 0u) << "it would have to stay when the SMs are wanted back";
}

TEST_F(LendingPlanTest, WhatFillsNoGroupIsLentToNoPartition) {
  SmLayout& layout = plan_.layout(0);
  layout.group_sms.back() = 3;
  layout.has_partial_group = true;
  for (const uint32_t number : {2, 3}) plan_.reservations().erase(number);
  plan_.reservations().at(1).most_sms = 20;
  set({1}, true);
  EXPECT_EQ(of(wishes_[0]), groups_of("111111111"));
}

TEST_F(LendingPlanTest, AllSmsAreTheWholeDevice) {
  for (const uint32_t number : {2, 3}) plan_.reservations().erase(number);
  plan_.reservations().at(1).most_sms = 20;
  set({1}, true);
  EXPECT_TRUE(wishes_[0].assignment.is_whole_device && plan_.is_lifted(wishes_[0]));
  EXPECT_EQ(plan_.own_set(wishes_[0]).groups, groups_of("11"));
}

// ---- Demand -------------------------------------------------------------------------------------

TEST(LeaseTest, ItIsUsedFromTheFirstWorkOnUntilThatIsNotRecent) {
  Lease lease;
  EXPECT_EQ(lease.review(1), 0u);
  EXPECT_TRUE(lease.use(Rank::kNormal, 5));
  EXPECT_FALSE(lease.use(Rank::kNormal, 10)) << "a review is due already";
  EXPECT_EQ(lease.review(11), 10 + kRecentNs);
  EXPECT_EQ(lease.review(10 + kRecentNs), 0u);
  EXPECT_TRUE(lease.use(Rank::kNormal, 10 + kRecentNs));
}

TEST(LeaseTest, RanksBelowTheHighestThatWorksKeepOffWhileTheyFillTheDevice) {
  Lease lease;
  bool is_crowded = false;
  const auto review = [&](uint64_t now) {
    return lease.review_ranks(now, [&](Rank) { return is_crowded; });
  };
  lease.use(Rank::kNormal, 5);
  EXPECT_EQ(review(6).excludes_from, std::nullopt) << "there is room";
  EXPECT_EQ(review(6).next_ns, 6 + kCrowdLookNs);
  is_crowded = true;
  EXPECT_EQ(review(7).excludes_from, Rank::kBestEffort);
  lease.use(Rank::kLatency, 8);
  EXPECT_EQ(review(8).excludes_from, Rank::kNormal);
  is_crowded = false;
  EXPECT_EQ(review(9).excludes_from, Rank::kNormal) << "of late they did";
}

class SmallWorkTest : public ::testing::Test {
 protected:
  using Kind = SmSet::Kind;
  // Where the two go after such work, of which the second is beside the first.
  std::vector<Kind> places(const Demand& first, const Demand& second, bool is_crowded = true) {
    now_ += kRecentNs;
    for (RecentDemand* demand : {&first_, &second_}) {
      demand->note(demand == &first_ ? first : second, kFewSms, now_);
    }
    std::vector<SmallWorkReview::Session> sessions{{.demand = &first_}, {.demand = &second_}};
    review_.review(sessions, true, is_crowded, kFewSms, now_);
    return {sessions[0].place, sessions[1].place};
  }

  static constexpr uint32_t kFewSms = 4;
  static constexpr Demand kSmall{.sms_needed = 2, .ns = 10'000};
  static constexpr Demand kLong{.sms_needed = 128, .ns = Demand::kLongNs};
  static constexpr Demand kWide{.sms_needed = 3, .ns = 10'000};
  static constexpr Demand kSlow{.sms_needed = 1, .ns = Demand::kShortNs + 1};
  static constexpr Demand kCooperative{.sms_needed = kWholeDevice, .ns = Demand::kLongNs};
  const std::vector<Kind> kAnywhere{Kind::kGroups, Kind::kGroups};
  RecentDemand first_, second_;
  SmallWorkReview review_;
  uint64_t now_ = 1;
};

TEST_F(SmallWorkTest, ItHasTheFewBesideLongKernelsAlone) {
  EXPECT_EQ(places(kSmall, kLong), (std::vector{Kind::kFew, Kind::kRemaining}));
  EXPECT_EQ(places(kSmall, kSmall), kAnywhere);
  EXPECT_EQ(places(kLong, kLong), kAnywhere);
  EXPECT_EQ(places(kWide, kLong), kAnywhere);
  EXPECT_EQ(places(kSlow, kLong), kAnywhere);
  EXPECT_EQ(places(kSmall, kCooperative), kAnywhere) << "which can't be kept off the few";
  EXPECT_EQ(places(kSmall, kLong, false), kAnywhere) << "there is room";
}

}  // namespace
}  // namespace openmps::worker
