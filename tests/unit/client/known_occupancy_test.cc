// SPDX-License-Identifier: Apache-2.0
// What is remembered of the driver's answers about occupancy, and for how long.
#include "client/known_occupancy.h"

#include <gtest/gtest.h>

#include <optional>

namespace openmps::client {
namespace {

using Shape = KnownOccupancy::Shape;

constexpr Shape kShape{128, 0, 49152};

// What is remembered of a shape, and under which settings an answer may be.
std::optional<uint64_t> found(const KnownOccupancy& known, const Shape& shape,
                              uint32_t* settings = nullptr) {
  uint64_t blocks = 0;
  uint32_t ignored = 0;
  if (!known.find(shape, &blocks, settings != nullptr ? settings : &ignored)) return std::nullopt;
  return blocks;
}

TEST(KnownOccupancy, RemembersWhatItWasTold) {
  KnownOccupancy known;
  uint32_t settings = 0;
  EXPECT_EQ(found(known, kShape, &settings), std::nullopt);
  known.remember(kShape, 4, settings);
  EXPECT_EQ(found(known, kShape), 4u);
}

TEST(KnownOccupancy, EachPartOfAShapeCounts) {
  KnownOccupancy known;
  known.remember(kShape, 4, 0);
  for (const Shape& other : {Shape{64, 0, 49152}, Shape{128, 1, 49152}, Shape{128, 0, 49153}}) {
    EXPECT_EQ(found(known, other), std::nullopt);
  }
}

// A thread may have asked the worker when another one changed a setting and came back first.
TEST(KnownOccupancy, SettingsThatChangeEndIt) {
  KnownOccupancy known;
  uint32_t before = 0;
  uint32_t after = 0;
  EXPECT_EQ(found(known, kShape, &before), std::nullopt);
  known.remember(kShape, 4, before);
  known.forget();
  EXPECT_EQ(found(known, kShape, &after), std::nullopt);
  known.remember(kShape, 4, before);
  EXPECT_EQ(found(known, kShape), std::nullopt) << "an answer from before";
  known.remember(kShape, 2, after);
  EXPECT_EQ(found(known, kShape), 2u);
}

TEST(KnownOccupancy, HasABoundAndGoesOnBehindIt) {
  KnownOccupancy known;
  constexpr int kShapes = 10 * static_cast<int>(KnownOccupancy::kMost) + 1;
  for (int i = 0; i < kShapes; ++i) known.remember({i, 0, 0}, static_cast<uint64_t>(i), 0);
  EXPECT_EQ(found(known, {0, 0, 0}), std::nullopt);
  EXPECT_EQ(found(known, {kShapes - 1, 0, 0}), static_cast<uint64_t>(kShapes - 1));
}

}  // namespace
}  // namespace openmps::client
