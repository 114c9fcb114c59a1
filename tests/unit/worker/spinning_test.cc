// SPDX-License-Identifier: Apache-2.0
// Who is waited for awake.
#include "worker/session/spinning.h"

#include <gtest/gtest.h>

namespace openmps::worker {
namespace {

constexpr uint64_t kShort = kLingerNs / 2;

TEST(SpinningTest, PausesAreShortAfterSome) {
  Pauses pauses;
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(pauses.linger_end_ns(1000), 0u);
    pauses.note(kShort);
  }
  EXPECT_EQ(pauses.linger_end_ns(1000), 1000 + kLingerNs);
  pauses.note(kLingerNs);
  EXPECT_NE(pauses.linger_end_ns(1000), 0u);
}

TEST(SpinningTest, ALongOneEndsIt) {
  Pauses pauses;
  for (int i = 0; i < 100; ++i) pauses.note(kShort);
  pauses.note(kLingerNs + 1);
  EXPECT_EQ(pauses.linger_end_ns(1000), 0u);
}

TEST(SpinningTest, ABudgetIsForSoMany) {
  SpinBudget budget(2);
  EXPECT_TRUE(budget.enter());
  EXPECT_TRUE(budget.enter());
  EXPECT_FALSE(budget.enter());
  budget.leave();
  EXPECT_TRUE(budget.enter());
}

TEST(SpinningTest, CoresAreLeftToTheOthers) {
  Spinning large(16, 50'000, {});
  EXPECT_TRUE(large.lingering.enter());
  EXPECT_TRUE(large.lingering.enter());
  EXPECT_FALSE(large.lingering.enter());
  Spinning small(4, 20'000, {});
  EXPECT_TRUE(small.brief.enter());
  EXPECT_FALSE(small.lingering.enter()) << "none to spare";
}

TEST(SpinningTest, ItCanBeSwitchedOff) {
  Spinning without(64, 50'000, {.lingers = false});
  EXPECT_FALSE(without.lingering.enter());
  Spinning nobody_spins(64, 0, {});
  EXPECT_FALSE(nobody_spins.lingering.enter());
}

TEST(SpinningTest, NapsAreForAShortageOfCores) {
  constexpr uint64_t kNow = 3'600'000'000'000;
  const auto make_short = [](Spinning& spinning) {
    spinning.shortage.note_gap(1, std::nullopt, kNow);
    spinning.shortage.note_gap(1, std::nullopt, kNow);
  };
  Spinning spinning(16, 50'000, {});
  EXPECT_FALSE(spinning.naps(kNow, kNow));
  make_short(spinning);
  EXPECT_TRUE(spinning.naps(kNow, kNow));
  EXPECT_FALSE(spinning.naps(kNow - kNapsForNs, kNow)) << "nothing comes";
  Spinning without(16, 50'000, {.naps = false});
  make_short(without);
  EXPECT_FALSE(without.naps(kNow, kNow));
  Spinning never_short(16, 50'000, {.spares_cores = false});
  make_short(never_short);
  EXPECT_FALSE(never_short.naps(kNow, kNow));
}

}  // namespace
}  // namespace openmps::worker
