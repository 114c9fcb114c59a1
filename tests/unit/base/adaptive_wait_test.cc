// SPDX-License-Identifier: Apache-2.0
// The phases of a wait, what a thread learns from its waits, and how many threads may spin.
#include "base/adaptive_wait.h"

#include <gtest/gtest.h>

#include "manual_clock.h"

namespace openmps {
namespace {

constexpr WaitPlan kAllPhases{.spin_until_ns = 100,
                              .spare_spin_until_ns = 1'000,
                              .nap_until_ns = 5'000,
                              .crowded_nap_until_ns = 9'000,
                              .nap = {20, 400, 10}};

class AdaptiveWaitTest : public ::testing::Test {
 protected:
  void make_cores_short() {
    for (int i = 0; i < 2; ++i) shortage_.note_gap(1, std::nullopt, clock_.now_ns());
  }
  void expect(WaitPhase phase, uint64_t pause_ns) {
    const WaitStep step = wait_.next();
    EXPECT_EQ(step.phase, phase) << wait_.waited_ns();
    EXPECT_EQ(step.pause_ns, pause_ns) << wait_.waited_ns();
  }

  ManualClock clock_;
  CoreShortage shortage_;
  AdaptiveWait wait_{clock_, kAllPhases, &shortage_};
};

TEST_F(AdaptiveWaitTest, SpinsThenNapsThenSleeps) {
  expect(WaitPhase::kSpin, 0);
  clock_.advance(999);
  expect(WaitPhase::kSpin, 0);
  clock_.advance(1);
  expect(WaitPhase::kNap, 100);
  clock_.advance(3'999);
  expect(WaitPhase::kNap, 400);
  clock_.advance(1);
  expect(WaitPhase::kSleep, kNever);
}

TEST_F(AdaptiveWaitTest, SpinsLessAndNapsLongerWhileCoresAreShort) {
  make_cores_short();
  expect(WaitPhase::kSpin, 0);
  clock_.advance(100);
  expect(WaitPhase::kNap, 20);
  clock_.advance(8'899);
  expect(WaitPhase::kNap, 400);
  clock_.advance(1);
  expect(WaitPhase::kSleep, kNever);
}

TEST_F(AdaptiveWaitTest, AStoppedSpinDoesNotBeginAgain) {
  wait_.stop_spinning();
  expect(WaitPhase::kNap, 20);
  wait_.restart();
  expect(WaitPhase::kNap, 20);
}

TEST_F(AdaptiveWaitTest, ASpinCanBeExtended) {
  clock_.advance(5'000);
  wait_.spin_until(6'000);
  expect(WaitPhase::kSpin, 0);
  clock_.advance(1'000);
  expect(WaitPhase::kSleep, kNever);
}

TEST_F(AdaptiveWaitTest, ALookRepeatsTheCheckUntilItSucceedsOrTimeIsUp) {
  int looks = 0;
  EXPECT_TRUE(wait_.look([&] { return ++looks == 3; }));
  EXPECT_EQ(looks, 3);
  EXPECT_FALSE(wait_.look([] { return false; })) << "a look whose check never succeeds ends";
}

TEST(SpinHistoryTest, SpinsLessAndLessWhileWaitsAreLong) {
  SpinHistory history(40'000);
  EXPECT_EQ(history.spin_ns(), 40'000u);
  history.note(40'000);
  EXPECT_EQ(history.spin_ns(), 20'000u);
  for (int i = 0; i < 9; ++i) history.note(40'000);
  EXPECT_EQ(history.spin_ns(), 5'000u) << "never below the time that a wake-up takes";
  history.note(39'999);
  EXPECT_EQ(history.spin_ns(), 40'000u);
}

TEST(SpinHistoryTest, DoesNotSpinAfterManyInterruptions) {
  SpinHistory history(40'000);
  for (int i = 0; i < 40; ++i) history.note_interruption();
  EXPECT_EQ(history.spin_ns(), 0u);
  history.note(39'999);
  EXPECT_EQ(history.spin_ns(), 40'000u);
}

TEST(SpinHistoryTest, NeverSpinsWithALimitOfZero) {
  SpinHistory history(0);
  EXPECT_EQ(history.spin_ns(), 0u);
  history.note(1);
  EXPECT_EQ(history.spin_ns(), 0u);
}

TEST(SpinHistoryTest, SpinsForLongAfterSomeWaitsOfMilliseconds) {
  SpinHistory history(1'000);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(history.long_spin_ns(), 0u) << i;
    history.note(SpinHistory::kLongSpinNs);
    history.note(1);  // tells nothing about longer waits
  }
  EXPECT_EQ(history.long_spin_ns(), SpinHistory::kLongSpinNs);
  history.note(SpinHistory::kLongSpinNs + 1);
  EXPECT_EQ(history.long_spin_ns(), 0u);
}

TEST(SpinBudgetTest, LimitsHowManyThreadsSpin) {
  SpinBudget budget(1);
  {
    const SpinBudget::Permit first = budget.request();
    EXPECT_TRUE(first);
    EXPECT_FALSE(budget.request());
    EXPECT_FALSE(budget.request()) << "a refused request does not change the budget";
  }
  EXPECT_TRUE(budget.request());
  SpinBudget none(0);
  EXPECT_FALSE(none.request());
}

}  // namespace
}  // namespace openmps
