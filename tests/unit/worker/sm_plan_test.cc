// SPDX-License-Identifier: Apache-2.0
// Which SMs each session is to have, and what follows from what its work needs: values alone.
#include <gtest/gtest.h>

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
