// SPDX-License-Identifier: Apache-2.0
// How a process notices that there are fewer cores than threads that want to run.
#include "base/cores.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <thread>

namespace openmps {
namespace {

constexpr uint64_t kNow = 5'000'000'000;

constexpr uint64_t kGap = CoreShortage::kTakenNs;

TEST(CoreShortageTest, BeginsWhenAnotherThreadHadTheCoreTwice) {
  CoreShortage shortage;
  shortage.note_gap(kGap, kGap, kNow);
  EXPECT_FALSE(shortage.lasts(kNow)) << "once is not enough";
  shortage.note_gap(kGap, kGap, kNow + CoreShortage::kAgainNs);
  EXPECT_TRUE(shortage.lasts(kNow + CoreShortage::kAgainNs));
}

TEST(CoreShortageTest, IgnoresTimeTakenByAHypervisor) {
  CoreShortage shortage;
  for (int i = 0; i < 3; ++i) shortage.note_gap(kGap, kGap / 2 - 1, kNow);
  EXPECT_FALSE(shortage.lasts(kNow));
}

TEST(CoreShortageTest, IsAssumedIfTheSystemDoesNotReportRunDelay) {
  CoreShortage shortage;
  for (int i = 0; i < 2; ++i) shortage.note_gap(kGap, std::nullopt, kNow);
  EXPECT_TRUE(shortage.lasts(kNow));
}

TEST(CoreShortageTest, IgnoresLooksInQuickSuccession) {
  CoreShortage shortage;
  for (int i = 0; i < 3; ++i) shortage.note_look(kNow, kNow + kGap - 1);
  EXPECT_FALSE(shortage.lasts(kNow + kGap));
}

// Two threads that never sleep share one core: while one runs, the other waits.
TEST(RunDelayTest, IsTheTimeThatOtherThreadsHadTheCore) {
  std::thread([] {
    cpu_set_t core;
    CPU_ZERO(&core);
    CPU_SET(sched_getcpu(), &core);
    ASSERT_EQ(sched_setaffinity(0, sizeof core, &core), 0);  // the other thread inherits it
    if (!take_run_delay_ns()) GTEST_SKIP() << "this system has no schedstat";
    std::atomic<bool> begun{false}, over{false};
    std::thread other([&] {
      begun = true;
      while (!over) {
      }
    });
    while (!begun) {
    }
    EXPECT_GT(*take_run_delay_ns(), 0U);
    over = true;
    other.join();
  }).join();
}

TEST(CoreShortageTest, IgnoresRareGaps) {
  CoreShortage shortage;
  for (uint64_t now = kNow; now < 2 * kNow; now += CoreShortage::kAgainNs + 1) {
    shortage.note_gap(kGap, kGap, now);
    EXPECT_FALSE(shortage.lasts(now));
  }
}

TEST(CoreShortageTest, EndsByItself) {
  CoreShortage shortage;
  const uint64_t seen = kNow + CoreShortage::kTakenNs;
  for (int i = 0; i < 2; ++i) shortage.note_gap(kGap, kGap, seen);
  EXPECT_TRUE(shortage.lasts(seen + CoreShortage::kLastsNs - 1));
  EXPECT_FALSE(shortage.lasts(seen + CoreShortage::kLastsNs));
}

TEST(CoreShortageTest, CanBeSwitchedOff) {
  CoreShortage shortage(false);
  for (int i = 0; i < 3; ++i) shortage.note_gap(kNow, std::nullopt, 2 * kNow);
  EXPECT_FALSE(shortage.lasts(2 * kNow));
}

TEST(UsableCoresTest, CountsTheCoresThatTheThreadMayRunOn) {
  std::thread([] {
    cpu_set_t all;
    ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
    EXPECT_EQ(usable_cores(), static_cast<uint32_t>(CPU_COUNT(&all)));
    int first = 0;
    while (!CPU_ISSET(first, &all)) ++first;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    EXPECT_EQ(usable_cores(), 1u);
  }).join();
}

}  // namespace
}  // namespace openmps
