// SPDX-License-Identifier: Apache-2.0
// Whether there are cores for all, and threads that ask for short turns.
#include "base/cores.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>

#include <thread>

namespace openmps {
namespace {

constexpr uint64_t kNow = 5'000'000'000;

TEST(CoreShortageTest, BeginsWhenSomebodyHadTheCore) {
  CoreShortage shortage;
  const uint64_t seen = kNow + CoreShortage::kTakenNs;
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(shortage.note_look(kNow, seen - 1));
  EXPECT_FALSE(shortage.note_look(kNow, seen)) << "once is nothing";
  EXPECT_FALSE(shortage.lasts(seen));
  EXPECT_TRUE(shortage.note_look(kNow, seen + CoreShortage::kAgainNs));
  EXPECT_TRUE(shortage.lasts(seen + CoreShortage::kAgainNs));
}

TEST(CoreShortageTest, NowAndThenIsNone) {
  CoreShortage shortage;
  for (uint64_t now = kNow; now < 2 * kNow; now += CoreShortage::kAgainNs + 1) {
    EXPECT_FALSE(shortage.note_look(now - CoreShortage::kTakenNs, now));
    EXPECT_FALSE(shortage.lasts(now));
  }
}

TEST(CoreShortageTest, EndsByItself) {
  CoreShortage shortage;
  const uint64_t seen = kNow + CoreShortage::kTakenNs;
  ASSERT_FALSE(shortage.note_look(kNow, seen));
  ASSERT_TRUE(shortage.note_look(kNow, seen));
  EXPECT_TRUE(shortage.lasts(seen + CoreShortage::kLastsNs - 1));
  EXPECT_FALSE(shortage.lasts(seen + CoreShortage::kLastsNs));
}

TEST(CoreShortageTest, CanBeSwitchedOff) {
  CoreShortage shortage(false);
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(shortage.note_look(kNow, 2 * kNow));
  EXPECT_FALSE(shortage.lasts(2 * kNow));
}

TEST(ShortTurnsTest, LeaveNiceAndOtherPoliciesAlone) {
  std::thread([] {
    ASSERT_EQ(setpriority(PRIO_PROCESS, 0, 7), 0);  // this thread's, on Linux
    prefer_short_turns();
    EXPECT_EQ(getpriority(PRIO_PROCESS, 0), 7);
    EXPECT_EQ(sched_getscheduler(0), SCHED_OTHER);
  }).join();
  std::thread([] {
    const sched_param none{};
    ASSERT_EQ(sched_setscheduler(0, SCHED_BATCH, &none), 0);
    prefer_short_turns();
    EXPECT_EQ(sched_getscheduler(0), SCHED_BATCH);
  }).join();
}

}  // namespace
}  // namespace openmps
