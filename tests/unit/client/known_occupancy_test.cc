// SPDX-License-Identifier: Apache-2.0
// What is remembered of the driver's answers about occupancy, and for how long.
#include "client/known_occupancy.h"

#include <gtest/gtest.h>

namespace openmps::client {
namespace {

using Shape = KnownOccupancy::Shape;

constexpr Shape kShape{128, 0, 49152};

TEST(KnownOccupancy, RemembersWhatItWasTold) {
  KnownOccupancy known;
  uint64_t blocks = 0;
  uint32_t settings = 0;
  ASSERT_FALSE(known.find(kShape, &blocks, &settings));
  known.remember(kShape, 4, settings);
  ASSERT_TRUE(known.find(kShape, &blocks, &settings));
  EXPECT_EQ(blocks, 4u);
}

TEST(KnownOccupancy, EachPartOfAShapeCounts) {
  KnownOccupancy known;
  known.remember(kShape, 4, 0);
  uint64_t blocks = 0;
  uint32_t settings = 0;
  for (const Shape& other : {Shape{64, 0, 49152}, Shape{128, 1, 49152}, Shape{128, 0, 49153}}) {
    EXPECT_FALSE(known.find(other, &blocks, &settings));
  }
}

TEST(KnownOccupancy, SettingsThatChangeEndIt) {
  KnownOccupancy known;
  known.remember(kShape, 4, 0);
  known.forget();
  uint64_t blocks = 0;
  uint32_t settings = 0;
  EXPECT_FALSE(known.find(kShape, &blocks, &settings));
  known.remember(kShape, 2, settings);
  ASSERT_TRUE(known.find(kShape, &blocks, &settings));
  EXPECT_EQ(blocks, 2u);
}

// A thread asked the worker, another one changed a setting and came back first.
TEST(KnownOccupancy, AnAnswerFromBeforeAChangeIsNotRemembered) {
  KnownOccupancy known;
  uint64_t blocks = 0;
  uint32_t asked_under = 0;
  ASSERT_FALSE(known.find(kShape, &blocks, &asked_under));
  known.forget();
  known.remember(kShape, 4, asked_under);
  uint32_t settings = 0;
  EXPECT_FALSE(known.find(kShape, &blocks, &settings));
}

TEST(KnownOccupancy, HasABoundAndGoesOnBehindIt) {
  KnownOccupancy known;
  uint64_t blocks = 0;
  uint32_t settings = 0;
  constexpr int kShapes = 10 * static_cast<int>(KnownOccupancy::kMost) + 1;
  for (int i = 0; i < kShapes; ++i) known.remember({i, 0, 0}, static_cast<uint64_t>(i), settings);
  EXPECT_FALSE(known.find({0, 0, 0}, &blocks, &settings));
  ASSERT_TRUE(known.find({kShapes - 1, 0, 0}, &blocks, &settings));
  EXPECT_EQ(blocks, static_cast<uint64_t>(kShapes - 1));
}

}  // namespace
}  // namespace openmps::client
