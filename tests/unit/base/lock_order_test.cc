// SPDX-License-Identifier: Apache-2.0
// A thread that takes locks out of their order is ended, with the names of the locks. This program
// alone is compiled with OPENMPS_CHECK_LOCK_ORDER in every preset, so it links nothing of ours that
// has a Mutex.
#include "base/lock_order.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/clock.h"
#include "base/mutex.h"

namespace openmps {
namespace {

// The first lock of base/lock_order.def and the last two.
Mutex g_low(LockRank::kClientStart);
Mutex g_middle(LockRank::kContextStorage);
Mutex g_high(LockRank::kTrace);

TEST(LockOrder, RanksMayRise) {
  const MutexLock low(g_low);
  const MutexLock middle(g_middle);
  const MutexLock high(g_high);
}

TEST(LockOrder, ALowerRankEndsTheProgram) {
  EXPECT_DEATH(
      {
        const MutexLock high(g_high);
        const MutexLock low(g_low);
      },
      "out of order: kClientStart.*\n.*held: kTrace");
}

TEST(LockOrder, TwoOfOneRankEndTheProgram) {
  EXPECT_DEATH(
      {
        Mutex other(LockRank::kContextStorage);
        const MutexLock first(g_middle);
        const MutexLock second(other);
      },
      "out of order: kContextStorage");
}

TEST(LockOrder, ALockThatIsGivenBackEarlyNoLongerCounts) {
  MutexLock low(g_low);
  MutexLock high(g_high);
  low.unlock();
  high.unlock();
  const MutexLock middle(g_middle);
  EXPECT_DEATH(low.lock(), "out of order: kClientStart.*\n.*held: kContextStorage");
}

TEST(LockOrder, ReadersCountAsWriters) {
  SharedMutex shared(LockRank::kContextStorage);
  { const ReaderLock reader(shared); }
  EXPECT_DEATH(
      {
        const ReaderLock reader(shared);
        const MutexLock low(g_low);
      },
      "out of order: kClientStart");
}

TEST(LockOrder, WhatIsSaidToBeHeldIsChecked) {
  {
    const MutexLock lock(g_middle);
    g_middle.assert_held();
  }
  EXPECT_DEATH(g_middle.assert_held(), "not held: kContextStorage");
}

TEST(LockOrder, EachThreadHasItsOwn) {
  const MutexLock high(g_high);
  std::thread([] { const MutexLock low(g_low); }).join();
}

TEST(CondVar, AWaitHoldsTheMutexAgainWhenItReturns) {
  CondVar changed;
  bool ready = false;
  MutexLock lock(g_low);
  std::thread other([&] {
    const MutexLock inner(g_low);
    ready = true;
    changed.notify_one();
  });
  while (!ready) changed.wait(g_low);
  lock.unlock();
  other.join();
}

TEST(CondVar, AWaitEndsWithItsTime) {
  CondVar changed;
  const MutexLock lock(g_low);
  while (changed.wait_until(g_low, now_ns())) {
  }
  const MutexLock high(g_high);  // the wait has left g_low, which is lower, the one that is held
}

}  // namespace
}  // namespace openmps
