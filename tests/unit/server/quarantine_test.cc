// SPDX-License-Identifier: Apache-2.0
// Which programs are kept apart, and for how long, with the test's own times.
#include "server/quarantine.h"

#include <gtest/gtest.h>

#include <string>

namespace openmps::server {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;
constexpr uint64_t kNow = 1000 * kSecond;

TEST(Quarantine, AGuiltyProgramIsKeptApartUntilItHasNotFaultedForLongEnough) {
  Quarantine quarantine;
  EXPECT_FALSE(quarantine.holds("python3 bad.py", kNow));
  quarantine.note_guilty("python3 bad.py", kNow);
  EXPECT_TRUE(quarantine.holds("python3 bad.py", kNow));
  EXPECT_FALSE(quarantine.holds("python3 good.py", kNow));
  EXPECT_TRUE(quarantine.holds("python3 bad.py", kNow + Quarantine::kGuiltyNs - 1));
  EXPECT_FALSE(quarantine.holds("python3 bad.py", kNow + Quarantine::kGuiltyNs));
  quarantine.note_guilty("python3 bad.py", kNow + 300 * kSecond);
  EXPECT_TRUE(quarantine.holds("python3 bad.py", kNow + Quarantine::kGuiltyNs));
}

TEST(Quarantine, ASuspectIsKeptApartForAWhileWhenItIsOneAgain) {
  Quarantine quarantine;
  EXPECT_FALSE(quarantine.note_suspect("./serve", kNow));
  EXPECT_FALSE(quarantine.holds("./serve", kNow));
  EXPECT_FALSE(quarantine.note_suspect("./train", kNow)) << "each program is counted for itself";
  EXPECT_TRUE(quarantine.note_suspect("./serve", kNow + kSecond));
  EXPECT_TRUE(quarantine.holds("./serve", kNow + Quarantine::kSuspectNs));
  EXPECT_FALSE(quarantine.holds("./serve", kNow + kSecond + Quarantine::kSuspectNs));
}

TEST(Quarantine, SuspicionsThatLieFarApartDoNotCountTogether) {
  Quarantine quarantine;
  EXPECT_FALSE(quarantine.note_suspect("./serve", kNow));
  EXPECT_FALSE(quarantine.note_suspect("./serve", kNow + Quarantine::kGuiltyNs));
}

TEST(Quarantine, ASuspicionDoesNotShortenTheTimeOfAGuiltyProgram) {
  Quarantine quarantine;
  quarantine.note_guilty("./serve", kNow);
  EXPECT_TRUE(quarantine.note_suspect("./serve", kNow + kSecond)) << "it is kept apart already";
  EXPECT_TRUE(quarantine.note_suspect("./serve", kNow + 2 * kSecond));
  EXPECT_TRUE(quarantine.holds("./serve", kNow + Quarantine::kGuiltyNs - 1));
}

TEST(Quarantine, TheProgramsThatAreRememberedAreBounded) {
  Quarantine quarantine;
  for (size_t i = 0; i <= Quarantine::kMost; ++i) {
    quarantine.note_guilty(std::to_string(i), kNow + i);
  }
  EXPECT_FALSE(quarantine.holds("0", kNow + kSecond)) << "the one that was due first";
  EXPECT_TRUE(quarantine.holds("1", kNow + kSecond));
  EXPECT_TRUE(quarantine.holds(std::to_string(Quarantine::kMost), kNow + kSecond));
}

}  // namespace
}  // namespace openmps::server
