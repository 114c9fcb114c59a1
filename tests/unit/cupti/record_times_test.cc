// SPDX-License-Identifier: Apache-2.0
#include "cupti/record_times.h"

#include <gtest/gtest.h>

#include "base/clock.h"

namespace openmps::cupti {
namespace {

uint64_t three_ticks_a_ns() { return now_ns() * 3; }

TEST(RecordTimesTest, WithoutAReadingItIsTheTimeItself) { EXPECT_EQ(RecordTimes().at(17), 17u); }

TEST(RecordTimesTest, OneReadingIsADistance) {
  RecordTimes times;
  times.add({1000, 5000});
  EXPECT_EQ(times.at(1000), 5000u);
  EXPECT_EQ(times.at(1010), 5010u);
  EXPECT_EQ(times.at(990), 4990u);
}

TEST(RecordTimesTest, BetweenReadingsAndBeyondThem) {
  RecordTimes times;
  times.add({1000, 10'000});
  times.add({2000, 13'000});  // 3 ticks a nanosecond
  times.add({3000, 14'000});  // 1
  EXPECT_EQ(times.at(1000), 10'000u);
  EXPECT_EQ(times.at(1500), 11'500u);
  EXPECT_EQ(times.at(2000), 13'000u);
  EXPECT_EQ(times.at(2500), 13'500u);
  EXPECT_EQ(times.at(3500), 14'500u);
  EXPECT_EQ(times.at(900), 9'700u);
}

TEST(RecordTimesTest, AClockMayBeSetBack) {
  RecordTimes times;
  times.add({1000, 10'000});
  times.add({2000, 9'000});
  EXPECT_EQ(times.at(1500), 9'500u);
}

TEST(RecordTimesTest, AnOlderReadingChangesNothing) {
  RecordTimes times;
  times.add({1000, 10'000});
  times.add({900, 1});
  EXPECT_EQ(times.size(), 1u);
  EXPECT_TRUE(times.covers(1000));
  EXPECT_FALSE(times.covers(1001));
}

TEST(RecordTimesTest, KeepsABoundedNumber) {
  RecordTimes times;
  constexpr uint64_t kReadings = 100'000;
  for (uint64_t i = 1; i <= kReadings; ++i) {
    times.add({i * 1000, i * 3000});
    ASSERT_LE(times.size(), kMostReadings);
  }
  for (uint64_t ns = 1000; ns <= kReadings * 1000; ns += 7777) EXPECT_EQ(times.at(ns), ns * 3);
}

TEST(RecordTimesTest, ReadsTwoClocksNearEachOther) {
  const uint64_t before = now_ns();
  const RecordTimes::Reading reading = RecordTimes::read(&three_ticks_a_ns);
  const uint64_t after = now_ns();
  EXPECT_GE(reading.ns, before);
  EXPECT_LE(reading.ns, after);
  EXPECT_GE(reading.time, before * 3);
  EXPECT_LE(reading.time, after * 3);
}

}  // namespace
}  // namespace openmps::cupti
