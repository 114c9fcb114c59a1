// SPDX-License-Identifier: Apache-2.0
// One thread sees what the streams of all sessions wait for.
#include "worker/device/value_watch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "base/clock.h"

namespace openmps::worker {
namespace {

class ValueWatchTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(watch_.start().ok()); }
  wire::StreamValue wait_for(uint64_t number, uint64_t value, uint32_t width = 4,
                             uint32_t flags = CU_STREAM_WAIT_VALUE_GEQ) {
    return {reinterpret_cast<uint64_t>(&words_[number]), value, width, flags};
  }
  void put(uint64_t number, uint64_t value) {
    std::atomic_ref(words_[number]).store(value, std::memory_order_release);
  }
  // Until it is rung, or for long.
  static bool is_rung(Bell& bell) {
    constexpr uint64_t kLongNs = 10'000'000'000;
    const uint64_t end = now_ns() + kLongNs;
    while (!bell.rung().load() && now_ns() < end) std::this_thread::yield();
    return bell.rung().load();
  }

  alignas(8) uint64_t words_[8] = {};
  const std::shared_ptr<Bell> first_ = std::make_shared<Bell>();
  const std::shared_ptr<Bell> second_ = std::make_shared<Bell>();
  ValueWatch watch_{monotonic_clock()};
};

TEST_F(ValueWatchTest, WhoseWordHasComeIsRungFor) {
  const ValueWatch::Row first = watch_.watch(first_, wait_for(0, 5));
  const ValueWatch::Row second = watch_.watch(second_, wait_for(1, 5));
  put(1, 5);
  EXPECT_TRUE(is_rung(*second_));
  EXPECT_FALSE(first_->rung().load());
  put(0, 7);
  EXPECT_TRUE(is_rung(*first_));
}

// What it waited for may be behind something else, and be taken later.
TEST_F(ValueWatchTest, ItRingsAgainWhileTheWordIsThere) {
  const ValueWatch::Row row = watch_.watch(first_, wait_for(0, 1));
  put(0, 1);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(is_rung(*first_));
    first_->answer();
  }
}

TEST_F(ValueWatchTest, NobodyLooksAtWhatIsNoLongerWatched) {
  auto gone = std::make_unique<uint64_t>(0);
  {
    const ValueWatch::Row row = watch_.watch(
        first_, {reinterpret_cast<uint64_t>(gone.get()), 1, 8, CU_STREAM_WAIT_VALUE_GEQ});
    EXPECT_EQ(first_.use_count(), 2);
  }
  EXPECT_EQ(first_.use_count(), 1);
  gone.reset();  // a sanitizer would tell of a look
  const ValueWatch::Row row = watch_.watch(second_, wait_for(0, 1));
  put(0, 1);
  EXPECT_TRUE(is_rung(*second_));
  EXPECT_FALSE(first_->rung().load());
}

TEST_F(ValueWatchTest, ManyComeAndGo) {
  for (int round = 0; round < 200; ++round) {
    std::vector<ValueWatch::Row> rows;
    for (uint64_t i = 0; i < 8; ++i) {
      put(i, 0);
      rows.push_back(watch_.watch(i == 3 ? second_ : first_, wait_for(i, 1)));
    }
    put(3, 1);
    EXPECT_TRUE(is_rung(*second_));
    rows.erase(rows.begin() + 3);
    second_->answer();
    rows.clear();
    second_->answer();
  }
  EXPECT_FALSE(first_->rung().load());
  EXPECT_EQ(first_.use_count(), 1);
}

}  // namespace
}  // namespace openmps::worker
