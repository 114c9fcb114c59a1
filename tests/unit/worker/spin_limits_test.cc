// SPDX-License-Identifier: Apache-2.0
// How much the executors of a worker may spin together.
#include <gtest/gtest.h>

#include <optional>

#include "worker/session/executor.h"

namespace openmps::worker {
namespace {

TEST(SpinLimitsTest, LeaveCoresToOtherThreads) {
  SpinLimits large(16, 50'000);
  const SpinBudget::Permit first = large.extended.request();
  const SpinBudget::Permit second = large.extended.request();
  EXPECT_TRUE(first);
  EXPECT_TRUE(second);
  EXPECT_FALSE(large.extended.request());
  SpinLimits small(4, 20'000);
  EXPECT_TRUE(small.brief.request());
  EXPECT_FALSE(small.extended.request()) << "no core is spare";
}

TEST(SpinLimitsTest, LongSpinsCanBeSwitchedOff) {
  SpinLimits without(64, 50'000, false);
  EXPECT_FALSE(without.extended.request());
  SpinLimits no_spins(64, 0);
  EXPECT_FALSE(no_spins.extended.request());
}

TEST(SpinLimitsTest, SparingCoresCanBeSwitchedOff) {
  constexpr uint64_t kNow = 3'600'000'000'000;
  const auto is_short = [](SpinLimits& limits) {
    for (int i = 0; i < 2; ++i) limits.shortage.note_gap(1, std::nullopt, kNow);
    return limits.shortage.lasts(kNow);
  };
  SpinLimits with(16, 50'000);
  EXPECT_TRUE(is_short(with));
  SpinLimits without(16, 50'000, true, false);
  EXPECT_FALSE(is_short(without));
}

}  // namespace
}  // namespace openmps::worker
