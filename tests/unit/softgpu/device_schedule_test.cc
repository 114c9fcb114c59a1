// SPDX-License-Identifier: Apache-2.0
// The block scheduler, asserted on its trace: which block was placed before which was complete.
#include "device_fixture.h"

#include <algorithm>
#include <set>

namespace openmps::softgpu::testing {
namespace {

class ScheduleTest : public DeviceTest {
 protected:
  // Sequence numbers of the block events of a stream's kernels.
  static std::vector<uint64_t> sequences(const std::vector<TraceEvent>& events, const char* name,
                                         uint64_t stream) {
    std::vector<uint64_t> found;
    for (const TraceEvent& event : events) {
      if (event.category == "block" && event.name == name && event.stream == stream) {
        found.push_back(event.sequence);
      }
    }
    return found;
  }
};

TEST_F(ScheduleTest, BlocksSpreadOverAllSms) {
  uint32_t* sms = words(kSms);
  CUstream s = stream();
  launch(s, FakeAction::kRecordSm, address_of(sms), 0, kSms, 1024);
  EXPECT_CU(cuStreamSynchronize(s));
  EXPECT_EQ(std::set<uint32_t>(sms, sms + kSms), (std::set<uint32_t>{1, 2, 3, 4}));
}

TEST_F(ScheduleTest, SmallGridsOfTwoStreamsShareTheDevice) {
  uint32_t* word = words(1);
  CUstream a = stream();
  CUstream b = stream();
  launch(a, FakeAction::kWait, address_of(word), 1, 2);
  launch(b, FakeAction::kWait, address_of(word), 1, 2);
  while (sequences(trace(), "place", stream_id(b)).size() < 2) {
  }
  store(word, 1);
  EXPECT_CU(cuCtxSynchronize());
  auto events = trace();
  auto placed = sequences(events, "place", stream_id(b));
  auto complete = sequences(events, "complete", stream_id(a));
  ASSERT_EQ(placed.size(), 2u);
  ASSERT_EQ(complete.size(), 2u);
  EXPECT_LT(placed.back(), complete.front());
}

TEST_F(ScheduleTest, AFullDeviceHoldsBackWhatComesLater) {
  uint32_t* word = words(1);
  CUstream a = stream();
  CUstream b = stream();
  // More blocks than fit: 4 SMs x 2 blocks of 1024 threads.
  launch(a, FakeAction::kWait, address_of(word), 1, 2 * kSms + 1, 1024);
  launch(b, FakeAction::kNothing, 0, 0, 1, 32);
  EXPECT_EQ(cuStreamQuery(b), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(sequences(trace(), "place", stream_id(a)).size(), 2u * kSms);
  EXPECT_TRUE(sequences(trace(), "place", stream_id(b)).empty());
  store(word, 1);
  EXPECT_CU(cuCtxSynchronize());
  auto events = trace();
  // The head kernel's last block goes first: first come, first served.
  EXPECT_LT(sequences(events, "place", stream_id(a)).back(),
            sequences(events, "place", stream_id(b)).front());
}

TEST_F(ScheduleTest, ABlockedHeadKeepsSmallerWorkOfItsLevelBack) {
  uint32_t* word = words(1);
  CUstream a = stream();
  CUstream b = stream();
  CUstream c = stream();
  // Three 64 KiB blocks fill an SM's shared memory; the 13th block does not fit.
  ASSERT_CU(try_launch(function("wide"), a, {FakeAction::kWait, address_of(word), 1}, 3 * kSms));
  ASSERT_CU(try_launch(function("wide"), b, {FakeAction::kNothing, 0, 0}, 1));
  launch(c, FakeAction::kNothing);  // would fit, but came later
  EXPECT_TRUE(sequences(trace(), "place", stream_id(c)).empty());
  store(word, 1);
  EXPECT_CU(cuCtxSynchronize());
  auto events = trace();
  EXPECT_LT(sequences(events, "place", stream_id(b)).front(),
            sequences(events, "place", stream_id(c)).front());
}

TEST_F(ScheduleTest, LeftOverRoomGoesToTheNextKernel) {
  uint32_t* word = words(1);
  CUstream a = stream();
  CUstream b = stream();
  launch(a, FakeAction::kWait, address_of(word), 1, 2 * kSms - 1, 1024);
  launch(b, FakeAction::kNothing, 0, 0, 1, 1024);
  EXPECT_CU(cuStreamSynchronize(b));  // ran beside it
  EXPECT_EQ(cuStreamQuery(a), CUDA_ERROR_NOT_READY);
  store(word, 1);
  EXPECT_CU(cuStreamSynchronize(a));
}

TEST_F(ScheduleTest, HigherPriorityIsPlacedFirst) {
  uint32_t* word = words(1);
  CUstream filler = stream();
  CUstream low = stream(CU_STREAM_NON_BLOCKING, 0);
  CUstream high = stream(CU_STREAM_NON_BLOCKING, -5);
  launch(filler, FakeAction::kWait, address_of(word), 1, 2 * kSms, 1024);
  launch(low, FakeAction::kNothing, 0, 0, 2 * kSms, 1024);
  launch(high, FakeAction::kNothing, 0, 0, 2 * kSms, 1024);
  store(word, 1);
  EXPECT_CU(cuCtxSynchronize());
  auto events = trace();
  EXPECT_LT(sequences(events, "place", stream_id(high)).back(),
            sequences(events, "place", stream_id(low)).front());
}

TEST_F(ScheduleTest, AStreamsKernelsNeverOverlap) {
  CUstream s = stream();
  for (int i = 0; i < 20; ++i) launch(s, FakeAction::kCount, 0, 1000, 3);
  EXPECT_CU(cuStreamSynchronize(s));
  auto events = trace();
  uint64_t launch_now = 0;
  int open = 0;
  for (const TraceEvent& event : events) {
    if (event.category != "block" || event.stream != stream_id(s)) continue;
    if (event.name == "place") {
      if (event.launch != launch_now) {
        EXPECT_EQ(open, 0);
      }
      launch_now = event.launch;
      ++open;
    } else {
      EXPECT_EQ(event.launch, launch_now);
      --open;
    }
  }
  EXPECT_EQ(open, 0);
}

TEST_F(ScheduleTest, ASpinningBlockDoesNotStarveItsProducer) {
  uint32_t* word = words(1);
  CUstream s = stream();
  // All blocks wait for each other: each must run although there are fewer threads than blocks.
  CUdeviceptr address = address_of(word);
  FakeParameters parameters{FakeAction::kGridSync, address, kSms * 8};
  void* pointers[] = {&parameters.action, &parameters.address, &parameters.value};
  ASSERT_CU(cuLaunchCooperativeKernel(function("run"), kSms * 8, 1, 1, 256, 1, 1, 0, s, pointers));
  EXPECT_CU(cuStreamSynchronize(s));
  EXPECT_EQ(load(word), kSms * 8u);
  // One block more than can be resident.
  EXPECT_EQ(
      cuLaunchCooperativeKernel(function("run"), kSms * 8 + 1, 1, 1, 256, 1, 1, 0, s, pointers),
      CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
}

TEST_F(ScheduleTest, GreenContextsKeepToTheirSms) {
  CUdevResource all = {};
  CUdevResource groups[2] = {};
  unsigned count = 2;
  ASSERT_CU(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
  EXPECT_EQ(all.sm.smCount, static_cast<unsigned>(kSms));
  ASSERT_CU(cuDevSmResourceSplitByCount(groups, &count, &all, nullptr, 0, 2));
  ASSERT_EQ(count, 2u);
  CUcontext primary = nullptr;
  ASSERT_CU(cuDevicePrimaryCtxRetain(&primary, 0));
  ASSERT_CU(cuCtxPushCurrent_v2(primary));
  CUmodule module = nullptr;
  ASSERT_CU(cuModuleLoadData(&module, kFakeImage));
  CUfunction run = nullptr;
  ASSERT_CU(cuModuleGetFunction(&run, module, "run"));
  CUgreenCtx green[2] = {};
  CUstream streams[2] = {};
  for (int i = 0; i < 2; ++i) {
    CUdevResourceDesc description = nullptr;
    ASSERT_CU(cuDevResourceGenerateDesc(&description, &groups[i], 1));
    ASSERT_CU(cuGreenCtxCreate(&green[i], description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    ASSERT_CU(cuGreenCtxStreamCreate(&streams[i], green[i], CU_STREAM_NON_BLOCKING, 0));
  }
  uint32_t* word = words(1);
  uint32_t* sms = words(64);
  // The first partition is full and has work waiting; the second is not concerned.
  FakeParameters wait{FakeAction::kWait, address_of(word), 1};
  ASSERT_CU(try_launch(run, streams[0], wait, 5, 1024));
  ASSERT_CU(try_launch(run, streams[1], {FakeAction::kRecordSm, address_of(sms), 0}, 64, 1024));
  EXPECT_CU(cuStreamSynchronize(streams[1]));
  std::set<uint32_t> used(sms, sms + 64);
  EXPECT_EQ(used, (std::set<uint32_t>{3, 4}));
  EXPECT_EQ(cuStreamQuery(streams[0]), CUDA_ERROR_NOT_READY);
  store(word, 1);
  EXPECT_CU(cuStreamSynchronize(streams[0]));
  for (CUgreenCtx g : green) EXPECT_CU(cuGreenCtxDestroy(g));
  CUcontext popped = nullptr;
  EXPECT_CU(cuCtxPopCurrent_v2(&popped));
  EXPECT_CU(cuDevicePrimaryCtxReset_v2(0));
  EXPECT_CU(cuDevicePrimaryCtxRelease_v2(0));
}

}  // namespace
}  // namespace openmps::softgpu::testing
