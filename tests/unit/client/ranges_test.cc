// SPDX-License-Identifier: Apache-2.0
// Range allocation and the map of intervals.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "client/memory/interval_map.h"
#include "client/memory/range_allocator.h"

namespace openmps::client {
namespace {

TEST(RangeAllocator, TakesTheBestFitAndMergesNeighbours) {
  RangeAllocator ranges;
  ranges.add(0, 100);
  EXPECT_EQ(ranges.allocate(40), 0u);
  EXPECT_EQ(ranges.allocate(20), 40u);
  EXPECT_EQ(ranges.allocate(41), std::nullopt);
  ranges.add(0, 40);
  EXPECT_EQ(ranges.allocate(40), 0u) << "the exact fit, not a piece of the larger range behind";
  ranges.add(0, 40);
  ranges.add(40, 20);
  EXPECT_TRUE(ranges.is_free(0, 100));
  EXPECT_EQ(ranges.free_bytes(), 100u);
}

TEST(RangeAllocator, NeverMergesAcrossABoundary) {
  RangeAllocator ranges(64);
  ranges.add(0, 64);
  ranges.add(64, 64);
  EXPECT_EQ(ranges.allocate(128), std::nullopt);
  EXPECT_EQ(ranges.allocate(64), 0u);
}

TEST(RangeAllocator, TakesAnExactPiece) {
  RangeAllocator ranges;
  ranges.add(0, 100);
  EXPECT_TRUE(ranges.take(30, 40));
  EXPECT_FALSE(ranges.take(60, 20)) << "part of it is in use";
  EXPECT_TRUE(ranges.is_free(0, 30));
  EXPECT_TRUE(ranges.is_free(70, 30));
  EXPECT_FALSE(ranges.is_free(29, 2));
}

TEST(RangeAllocator, RandomUseNeverOverlapsAndLosesNothing) {
  constexpr uint64_t kBytes = 1 << 16;
  RangeAllocator ranges;
  ranges.add(0, kBytes);
  std::mt19937 random(1);
  std::vector<std::pair<uint64_t, uint64_t>> live;
  std::vector<bool> used(kBytes);
  for (int i = 0; i < 20000; ++i) {
    if (random() % 2 == 0) {
      const uint64_t bytes = 1 + random() % 700;
      const auto base = ranges.allocate(bytes);
      if (!base.has_value()) continue;
      for (uint64_t b = *base; b < *base + bytes; ++b) {
        ASSERT_FALSE(used[b]);
        used[b] = true;
      }
      live.emplace_back(*base, bytes);
    } else if (!live.empty()) {
      std::swap(live[random() % live.size()], live.back());
      const auto [base, bytes] = live.back();
      live.pop_back();
      for (uint64_t b = base; b < base + bytes; ++b) used[b] = false;
      ranges.add(base, bytes);
    }
  }
  for (const auto& [base, bytes] : live) ranges.add(base, bytes);
  EXPECT_TRUE(ranges.is_free(0, kBytes));
}

TEST(IntervalMap, FindsByAnyAddressInside) {
  IntervalMap<int> map;
  EXPECT_TRUE(map.insert(100, 50, 1));
  EXPECT_TRUE(map.insert(150, 10, 2)) << "neighbours do not overlap";
  EXPECT_EQ(map.find(99), nullptr);
  EXPECT_EQ(map.find(100)->value, 1);
  EXPECT_EQ(map.find(149)->value, 1);
  EXPECT_EQ(map.find(150)->value, 2);
  EXPECT_EQ(map.find(160), nullptr);
}

TEST(IntervalMap, RefusesWhatOverlapsOrWraps) {
  IntervalMap<int> map;
  ASSERT_TRUE(map.insert(100, 50, 1));
  EXPECT_FALSE(map.insert(149, 1, 2));
  EXPECT_FALSE(map.insert(90, 11, 2));
  EXPECT_FALSE(map.insert(110, 5, 2));
  EXPECT_FALSE(map.insert(10, 0, 2));
  EXPECT_FALSE(map.insert(~0ull - 4, 10, 2));
  EXPECT_FALSE(map.erase(101)) << "only the start names an entry";
  EXPECT_TRUE(map.erase(100));
  EXPECT_TRUE(map.empty());
}

}  // namespace
}  // namespace openmps::client
