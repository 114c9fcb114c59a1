// SPDX-License-Identifier: Apache-2.0
// A thread that takes locks out of order aborts the process with the names of the locks. This test
// is compiled with OPENMPS_CHECK_LOCK_ORDER in every preset, unlike the libraries of OpenMPS, so it
// links none that has a Mutex.
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

TEST(LockOrder, ALockThatIsReleasedEarlyNoLongerCounts) {
  MutexLock low(g_low);
  MutexLock high(g_high);
  low.unlock();
  high.unlock();
  const MutexLock middle(g_middle);
  EXPECT_DEATH(low.lock(), "out of order: kClientStart.*\n.*held: kContextStorage");
}

TEST(LockOrder, ReaderLocksCountAsWriterLocks) {
  SharedMutex shared(LockRank::kContextStorage);
  { const ReaderLock reader(shared); }
  EXPECT_DEATH(
      {
        const ReaderLock reader(shared);
        const MutexLock low(g_low);
      },
      "out of order: kClientStart");
}

TEST(LockOrder, AssertHeldChecksThatTheLockIsHeld) {
  {
    const MutexLock lock(g_middle);
    g_middle.assert_held();
  }
  EXPECT_DEATH(g_middle.assert_held(), "not held: kContextStorage");
}

TEST(LockOrder, EachThreadHasItsOwnOrder) {
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

TEST(CondVar, AWaitEndsAtItsTimeLimit) {
  CondVar changed;
  const MutexLock lock(g_low);
  while (changed.wait_until(g_low, now_ns())) {
  }
  // Allowed, since g_low, of a lower rank, is the only lock that is held after the wait.
  const MutexLock high(g_high);
}

}  // namespace
}  // namespace openmps
