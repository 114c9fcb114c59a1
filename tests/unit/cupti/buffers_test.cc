// SPDX-License-Identifier: Apache-2.0
// When a profiler gives buffers and gets them back, what is lost, and when the driver records.
#include <atomic>
#include <thread>

#include "cupti/records.h"
#include "profiler.h"

namespace openmps::cupti::test {
namespace {

constexpr size_t kFillBytes = sizeof(CUpti_ActivityMemset4);

// Tells of that many fills, of which each has its number.
void tell_fills(uint32_t count, uint32_t first = 0) {
  for (uint32_t i = 0; i < count; ++i) {
    fake_driver().tell(activity(ActivityKind::kFill, first + i));
  }
}

TEST_P(Profiler, AFullBufferComesBackAtOnceAndInOrder) {
  buffers().bytes = 3 * kFillBytes + 8;
  register_callbacks();
  ASSERT_EQ(enable(CUPTI_ACTIVITY_KIND_MEMSET), CUPTI_SUCCESS);
  EXPECT_EQ(buffers().requested, 0);
  tell_fills(7);
  EXPECT_EQ(buffers().requested, 3);
  EXPECT_EQ(buffers().valid, (std::vector<size_t>{3 * kFillBytes, 3 * kFillBytes}));
  ASSERT_EQ(flush(), CUPTI_SUCCESS);
  EXPECT_EQ(buffers().valid.back(), kFillBytes);
  const auto records = records_as<CUpti_ActivityMemset4>();
  ASSERT_EQ(records.size(), 7u);
  for (uint32_t i = 0; i < 7; ++i) EXPECT_EQ(records[i].correlationId, i);
  EXPECT_EQ(dropped(), 0u);
}

TEST_P(Profiler, ABufferForSoManyRecords) {
  buffers().most_records = 2;
  register_callbacks();
  ASSERT_EQ(enable(CUPTI_ACTIVITY_KIND_MEMSET), CUPTI_SUCCESS);
  tell_fills(5);
  EXPECT_EQ(buffers().valid, (std::vector<size_t>{2 * kFillBytes, 2 * kFillBytes}));
}

TEST_P(Profiler, ATinyBufferLosesWhatIsLarger) {
  buffers().bytes = kFillBytes;
  register_callbacks();
  ASSERT_EQ(enable(CUPTI_ACTIVITY_KIND_MEMSET), CUPTI_SUCCESS);
  ASSERT_EQ(enable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), CUPTI_SUCCESS);
  driver().tell(activity(ActivityKind::kKernel, 1), "kernel");
  driver().tell(activity(ActivityKind::kKernel, 2), "kernel");
  EXPECT_EQ(buffers().requested, 1);
  tell_fills(1);
  EXPECT_EQ(dropped(), 2u);
  EXPECT_EQ(dropped(), 0u);
  ASSERT_EQ(flush(), CUPTI_SUCCESS);
  EXPECT_EQ(kinds(), std::vector{CUPTI_ACTIVITY_KIND_MEMSET});
}

TEST_P(Profiler, WithoutABufferRecordsAreLostAndCounted) {
  ASSERT_EQ(enable(CUPTI_ACTIVITY_KIND_MEMSET), CUPTI_SUCCESS);
  tell_fills(2);  // no callbacks yet
  register_callbacks();
  buffers().bytes = 0;
  tell_fills(3);
  EXPECT_EQ(dropped(), 5u);
  driver().lost = 40;  // by the driver itself
  EXPECT_EQ(dropped(), 40u);
  driver().lost = 42;
  EXPECT_EQ(dropped(), 2u);
  driver().lost = 45;
  ASSERT_EQ(disable(CUPTI_ACTIVITY_KIND_MEMSET), CUPTI_SUCCESS);
  EXPECT_EQ(dropped(), 3u);
  EXPECT_EQ(dropped(), 0u);
}

// Older ones take it that nothing was recorded if none of their buffers is away when they come for
// the records.
TEST_P(Profiler, WhatKinetoDoes) {
  register_callbacks();
  ASSERT_EQ(enable(CUPTI_ACTIVITY_KIND_MEMSET), CUPTI_SUCCESS);
  ASSERT_EQ(enable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), CUPTI_SUCCESS);
  ASSERT_EQ(flush(), CUPTI_SUCCESS);
  EXPECT_EQ(buffers().requested, 0);
  tell_fills(1);
  ASSERT_EQ(flush(), CUPTI_SUCCESS);  // the end of its warm-up
  EXPECT_EQ(buffers().records.size(), 1u);
  EXPECT_EQ(buffers().outstanding(), 0);
  driver().ended = {{activity(ActivityKind::kKernel, 2), "in_the_worker"}};
  ASSERT_EQ(disable(CUPTI_ACTIVITY_KIND_MEMSET), CUPTI_SUCCESS);
  ASSERT_EQ(disable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), CUPTI_SUCCESS);
  EXPECT_EQ(driver().stops, 1);
  EXPECT_EQ(buffers().outstanding(), 1);
  ASSERT_EQ(flush(), CUPTI_SUCCESS);
  EXPECT_EQ(buffers().outstanding(), 0);
  ASSERT_EQ(buffers().records.size(), 2u);
  EXPECT_STREQ(records_as<CUpti_ActivityKernel10>()[1].name, "in_the_worker");
}

TEST_P(Profiler, WhatHasEndedWhenItsKindEndsIsRecorded) {
  register_callbacks();
  ASSERT_EQ(enable(CUPTI_ACTIVITY_KIND_MEMSET), CUPTI_SUCCESS);
  ASSERT_EQ(enable(CUPTI_ACTIVITY_KIND_MEMCPY), CUPTI_SUCCESS);
  driver().ended = {{activity(ActivityKind::kFill, 1), ""}};
  ASSERT_EQ(disable(CUPTI_ACTIVITY_KIND_MEMSET), CUPTI_SUCCESS);
  driver().ended = {{activity(ActivityKind::kFill, 2), ""}};
  ASSERT_EQ(flush(), CUPTI_SUCCESS);
  EXPECT_EQ(buffers().records.size(), 1u);
}

TEST_P(Profiler, TheDriverRecordsFromTheFirstKindToTheLast) {
  ASSERT_EQ(enable(CUPTI_ACTIVITY_KIND_RUNTIME), CUPTI_SUCCESS);
  EXPECT_EQ(driver().starts, 0);
  ASSERT_EQ(enable(CUPTI_ACTIVITY_KIND_MEMSET), CUPTI_SUCCESS);
  ASSERT_EQ(enable(CUPTI_ACTIVITY_KIND_MEMCPY), CUPTI_SUCCESS);
  ASSERT_EQ(enable(CUPTI_ACTIVITY_KIND_MEMCPY), CUPTI_SUCCESS);
  ASSERT_EQ(disable(CUPTI_ACTIVITY_KIND_MEMCPY), CUPTI_SUCCESS);
  EXPECT_EQ(driver().stops, 0);
  ASSERT_EQ(disable(CUPTI_ACTIVITY_KIND_MEMCPY), CUPTI_SUCCESS);
  ASSERT_EQ(disable(CUPTI_ACTIVITY_KIND_MEMSET), CUPTI_SUCCESS);
  EXPECT_EQ(driver().starts, 1);
  EXPECT_EQ(driver().stops, 1);
  ASSERT_EQ(enable(CUPTI_ACTIVITY_KIND_MEMSET), CUPTI_SUCCESS);
  EXPECT_EQ(driver().starts, 2);
}

TEST_P(Profiler, FinalizeEndsAllAndItMayBeginAgain) {
  for (int round = 0; round < 2; ++round) {
    register_callbacks();
    ASSERT_EQ(enable(CUPTI_ACTIVITY_KIND_MEMSET), CUPTI_SUCCESS);
    tell_fills(1);
    driver().ended = {{activity(ActivityKind::kFill, 2), ""}};
    ASSERT_EQ(cupti("cuptiFinalize"), CUPTI_SUCCESS);
    EXPECT_EQ(driver().stops, round + 1);
    EXPECT_EQ(buffers().outstanding(), 0);
    EXPECT_EQ(buffers().records.size(), static_cast<size_t>(2 * (round + 1)));
  }
  tell_fills(1);
  ASSERT_EQ(flush(), CUPTI_SUCCESS);
  EXPECT_EQ(buffers().records.size(), 4u);
  EXPECT_EQ(dropped(), 0u);
}

// While another thread stops the driver, which waits for those that tell it something.
TEST_P(Profiler, ItsFunctionsMayAsk) {
  buffers().bytes = kFillBytes;
  buffers().in_complete = [&] {
    dropped();
    timestamp();
  };
  register_callbacks();
  ASSERT_EQ(enable(CUPTI_ACTIVITY_KIND_MEMSET), CUPTI_SUCCESS);
  tell_fills(3);
  driver().ended = {{activity(ActivityKind::kFill, 3), ""}, {activity(ActivityKind::kFill, 4), ""}};
  driver().in_stop = [&] { dropped(); };
  ASSERT_EQ(disable(CUPTI_ACTIVITY_KIND_MEMSET), CUPTI_SUCCESS);
  driver().in_stop = nullptr;
  ASSERT_EQ(flush(), CUPTI_SUCCESS);
  EXPECT_EQ(buffers().records.size(), 5u);
}

TEST_P(Profiler, ManyThreads) {
  constexpr uint32_t kThreads = 4;
  constexpr uint32_t kEach = 5000;
  buffers().bytes = 10 * kFillBytes;
  register_callbacks();
  ASSERT_EQ(enable(CUPTI_ACTIVITY_KIND_MEMSET), CUPTI_SUCCESS);
  std::atomic<bool> done{false};
  std::thread other([&] {
    while (!done) {
      EXPECT_EQ(flush(), CUPTI_SUCCESS);
      EXPECT_EQ(enable(CUPTI_ACTIVITY_KIND_MEMCPY), CUPTI_SUCCESS);
      EXPECT_EQ(disable(CUPTI_ACTIVITY_KIND_MEMCPY), CUPTI_SUCCESS);
    }
  });
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([i] { tell_fills(kEach, i * kEach); });
  }
  for (std::thread& thread : threads) thread.join();
  done = true;
  other.join();
  ASSERT_EQ(disable(CUPTI_ACTIVITY_KIND_MEMSET), CUPTI_SUCCESS);
  ASSERT_EQ(flush(), CUPTI_SUCCESS);
  EXPECT_EQ(buffers().outstanding(), 0);
  EXPECT_EQ(dropped(), 0u);
  std::vector<int> seen(kThreads * kEach);
  for (const auto& record : records_as<CUpti_ActivityMemset4>()) ++seen.at(record.correlationId);
  EXPECT_EQ(seen, std::vector<int>(kThreads * kEach, 1));
}

TEST_P(Profiler, WithoutADriverThatRecords) {
  driver().has_table = false;
  testing::internal::CaptureStderr();
  EXPECT_EQ(enable(CUPTI_ACTIVITY_KIND_MEMSET), CUPTI_ERROR_NOT_INITIALIZED);
  EXPECT_EQ(enable(CUPTI_ACTIVITY_KIND_MEMCPY), CUPTI_ERROR_NOT_INITIALIZED);
  EXPECT_EQ(enable(CUPTI_ACTIVITY_KIND_RUNTIME), CUPTI_SUCCESS);
  EXPECT_EQ(disable(CUPTI_ACTIVITY_KIND_MEMSET), CUPTI_SUCCESS);
  EXPECT_EQ(flush(), CUPTI_SUCCESS);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "openmps: this libcupti records programs that run behind OpenMPS, and this one does "
            "not: run it without --profile\n");
  driver().has_table = true;  // a driver that was loaded later
  EXPECT_EQ(enable(CUPTI_ACTIVITY_KIND_MEMSET), CUPTI_SUCCESS);
}

TEST_P(Profiler, ADriverThatRefuses) {
  driver().start_result = CUDA_ERROR_ALREADY_ACQUIRED;
  EXPECT_EQ(enable(CUPTI_ACTIVITY_KIND_MEMSET), CUPTI_ERROR_DISABLED);
  driver().start_result = CUDA_ERROR_NOT_SUPPORTED;
  driver().why = "because";
  EXPECT_EQ(enable(CUPTI_ACTIVITY_KIND_MEMSET), CUPTI_ERROR_NOT_SUPPORTED);
  driver().start_result = CUDA_ERROR_OUT_OF_MEMORY;
  EXPECT_EQ(enable(CUPTI_ACTIVITY_KIND_MEMSET), CUPTI_ERROR_OUT_OF_MEMORY);
  driver().start_result = CUDA_ERROR_UNKNOWN;
  EXPECT_EQ(enable(CUPTI_ACTIVITY_KIND_MEMSET), CUPTI_ERROR_UNKNOWN);
  EXPECT_EQ(cupti("cuptiActivityEnableDriverApi", 307u, uint8_t{1}), CUPTI_ERROR_UNKNOWN);
}

TEST_P(Profiler, WrongCalls) {
  EXPECT_EQ(cupti("cuptiActivityRegisterCallbacks",
                  static_cast<CUpti_BuffersCallbackRequestFunc>(nullptr),
                  static_cast<CUpti_BuffersCallbackCompleteFunc>(nullptr)),
            CUPTI_ERROR_INVALID_PARAMETER);
  EXPECT_EQ(
      cupti("cuptiActivityGetNumDroppedRecords", CUcontext{}, 0u, static_cast<size_t*>(nullptr)),
      CUPTI_ERROR_INVALID_PARAMETER);
  CUpti_Activity* record = nullptr;
  EXPECT_EQ(cupti("cuptiActivityGetNextRecord", static_cast<uint8_t*>(nullptr), size_t{8}, &record),
            CUPTI_ERROR_INVALID_PARAMETER);
  alignas(8) uint8_t bytes[64] = {CUPTI_ACTIVITY_KIND_RUNTIME};
  EXPECT_EQ(cupti("cuptiActivityGetNextRecord", +bytes, sizeof bytes, &record),
            CUPTI_ERROR_INVALID_KIND);
  bytes[0] = CUPTI_ACTIVITY_KIND_MEMSET;  // cut off
  EXPECT_EQ(cupti("cuptiActivityGetNextRecord", +bytes, sizeof bytes, &record),
            CUPTI_ERROR_MAX_LIMIT_REACHED);
  EXPECT_EQ(cupti("cuptiActivityGetNextRecord", +bytes, size_t{0}, &record),
            CUPTI_ERROR_MAX_LIMIT_REACHED);
  EXPECT_EQ(record, nullptr);
}

}  // namespace
}  // namespace openmps::cupti::test
