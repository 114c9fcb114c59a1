// SPDX-License-Identifier: Apache-2.0
// Streams, events, host functions and stream memory operations.
#include "device_fixture.h"

#include <atomic>
#include <thread>

namespace openmps::softgpu::testing {
namespace {

using StreamTest = DeviceTest;

TEST_F(StreamTest, OperationsOfAStreamRunInOrder) {
  uint32_t* word = words(2);
  CUstream s = stream();
  launch(s, FakeAction::kWait, address_of(&word[0]), 1);
  EXPECT_CU(cuMemsetD32Async(address_of(&word[1]), 7, 1, s));
  EXPECT_EQ(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(load(&word[1]), 0u);
  store(&word[0], 1);
  EXPECT_CU(cuStreamSynchronize(s));
  EXPECT_EQ(load(&word[1]), 7u);
  EXPECT_CU(cuStreamQuery(s));
}

TEST_F(StreamTest, KernelsOfTwoStreamsOverlap) {
  uint32_t* word = words(2);
  CUstream a = stream();
  CUstream b = stream();
  // Each ends only after the other has begun: impossible unless they run at the same time.
  launch(a, FakeAction::kWait, address_of(&word[0]), 1);
  launch(b, FakeAction::kAdd, address_of(&word[0]), 1);
  EXPECT_CU(cuStreamSynchronize(a));
  EXPECT_CU(cuStreamSynchronize(b));
}

TEST_F(StreamTest, EventOrdersTwoStreams) {
  uint32_t* word = words(2);
  CUstream a = stream();
  CUstream b = stream();
  CUevent e = event(CU_EVENT_DISABLE_TIMING);
  EXPECT_CU(cuEventQuery(e));  // never recorded: complete
  launch(a, FakeAction::kWait, address_of(&word[0]), 1);
  EXPECT_CU(cuEventRecord(e, a));
  EXPECT_EQ(cuEventQuery(e), CUDA_ERROR_NOT_READY);
  EXPECT_CU(cuStreamWaitEvent(b, e, 0));
  launch(b, FakeAction::kAdd, address_of(&word[1]), 1);
  EXPECT_EQ(cuStreamQuery(b), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(load(&word[1]), 0u);
  store(&word[0], 1);
  EXPECT_CU(cuStreamSynchronize(b));
  EXPECT_EQ(load(&word[1]), 1u);
  EXPECT_CU(cuEventSynchronize(e));
}

TEST_F(StreamTest, AWaitTakesTheRecordingBeforeIt) {
  uint32_t* word = words(1);
  CUstream a = stream();
  CUstream b = stream();
  CUevent e = event();
  EXPECT_CU(cuEventRecord(e, a));
  EXPECT_CU(cuStreamWaitEvent(b, e, 0));
  launch(a, FakeAction::kWait, address_of(word), 1);
  EXPECT_CU(cuEventRecord(e, a));  // does not concern the wait above
  EXPECT_CU(cuStreamSynchronize(b));
  store(word, 1);
  EXPECT_CU(cuStreamSynchronize(a));
}

TEST_F(StreamTest, ElapsedTimeAndItsErrors) {
  CUstream s = stream();
  CUevent start = event();
  CUevent end = event();
  CUevent untimed = event(CU_EVENT_DISABLE_TIMING);
  float ms = -1;
  EXPECT_EQ(cuEventElapsedTime_v2(&ms, start, end), CUDA_ERROR_INVALID_HANDLE);
  uint32_t* word = words(1);
  EXPECT_CU(cuEventRecord(start, s));
  launch(s, FakeAction::kWait, address_of(word), 1);
  EXPECT_CU(cuEventRecord(end, s));
  EXPECT_CU(cuEventRecord(untimed, s));
  EXPECT_EQ(cuEventElapsedTime_v2(&ms, start, end), CUDA_ERROR_NOT_READY);
  store(word, 1);
  EXPECT_CU(cuEventSynchronize(end));
  EXPECT_CU(cuEventElapsedTime_v2(&ms, start, end));
  EXPECT_GT(ms, 0);
  EXPECT_EQ(cuEventElapsedTime_v2(&ms, start, untimed), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(StreamTest, LegacyStreamIsABarrierForBlockingStreamsOnly) {
  uint32_t* word = words(3);
  CUstream blocking = stream(CU_STREAM_DEFAULT);
  CUstream free_running = stream(CU_STREAM_NON_BLOCKING);
  launch(blocking, FakeAction::kWait, address_of(&word[0]), 1);
  launch(nullptr, FakeAction::kAdd, address_of(&word[1]), 1);
  launch(free_running, FakeAction::kAdd, address_of(&word[2]), 1);
  EXPECT_CU(cuStreamSynchronize(free_running));
  EXPECT_EQ(load(&word[1]), 0u);  // waits for the blocking stream
  EXPECT_EQ(cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY);
  store(&word[0], 1);
  EXPECT_CU(cuStreamSynchronize(nullptr));
  EXPECT_EQ(load(&word[1]), 1u);
}

TEST_F(StreamTest, BlockingStreamWaitsForTheLegacyStream) {
  uint32_t* word = words(2);
  CUstream blocking = stream(CU_STREAM_DEFAULT);
  launch(nullptr, FakeAction::kWait, address_of(&word[0]), 1);
  launch(blocking, FakeAction::kAdd, address_of(&word[1]), 1);
  EXPECT_EQ(cuStreamQuery(blocking), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(load(&word[1]), 0u);
  store(&word[0], 1);
  EXPECT_CU(cuCtxSynchronize());
  EXPECT_EQ(load(&word[1]), 1u);
}

TEST_F(StreamTest, PerThreadStreamsAreIndependent) {
  uint32_t* word = words(1);
  launch(CU_STREAM_PER_THREAD, FakeAction::kWait, address_of(word), 1);
  std::thread([&] {
    EXPECT_CU(cuCtxSetCurrent(context_));
    launch(CU_STREAM_PER_THREAD, FakeAction::kAdd, address_of(word), 1);
    EXPECT_CU(cuStreamSynchronize(CU_STREAM_PER_THREAD));
  }).join();
  EXPECT_CU(cuStreamSynchronize_ptsz(nullptr));
}

TEST_F(StreamTest, MemoryWordsOrderTheStreamAndTheHost) {
  uint32_t* word = words(8);
  auto* wide = reinterpret_cast<uint64_t*>(&word[4]);
  CUstream s = stream();
  EXPECT_CU(cuStreamWaitValue32_v2(s, address_of(&word[0]), 5, CU_STREAM_WAIT_VALUE_GEQ));
  EXPECT_CU(cuStreamWriteValue64_v2(s, reinterpret_cast<uint64_t>(wide), 0x1122334455667788, 0));
  EXPECT_CU(cuStreamWriteValue32_v2(s, address_of(&word[1]), 9, 0));
  EXPECT_EQ(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
  store(&word[0], 4);
  EXPECT_EQ(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
  store(&word[0], 6);
  EXPECT_CU(cuStreamSynchronize(s));
  EXPECT_EQ(load(&word[1]), 9u);
  EXPECT_EQ(*wide, 0x1122334455667788u);
  // A wait of one stream is ended by a write of another.
  CUstream other = stream();
  EXPECT_CU(cuStreamWaitValue32_v2(s, address_of(&word[2]), 1, CU_STREAM_WAIT_VALUE_EQ));
  EXPECT_CU(cuStreamWriteValue32_v2(other, address_of(&word[2]), 1, 0));
  EXPECT_CU(cuStreamSynchronize(s));
  EXPECT_EQ(cuStreamWriteValue32_v2(s, 0x1000, 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuStreamWriteValue64_v2(s, address_of(&word[1]), 1, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(StreamTest, BatchOfMemoryOperations) {
  uint32_t* word = words(2);
  CUstreamBatchMemOpParams params[2] = {};
  params[0].operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  params[0].writeValue.address = address_of(&word[0]);
  params[0].writeValue.value = 3;
  params[1].operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  params[1].waitValue.address = address_of(&word[0]);
  params[1].waitValue.value = 3;
  params[1].waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
  CUstream s = stream();
  EXPECT_CU(cuStreamBatchMemOp_v2(s, 2, params, 0));
  EXPECT_CU(cuStreamSynchronize(s));
  EXPECT_EQ(load(&word[0]), 3u);
  EXPECT_CU(cuStreamBatchMemOp_v2(s, 0, params, 0));
  std::vector<CUstreamBatchMemOpParams> many(256, params[0]);
  EXPECT_EQ(cuStreamBatchMemOp_v2(s, 256, many.data(), 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CU(cuStreamBatchMemOp_v2(s, 255, many.data(), 0));
}

struct HostCall {
  std::atomic<int> calls{0};
  std::atomic<int> inner_result{-1};
  std::atomic<int> status{-1};
};

TEST_F(StreamTest, HostFunctionsRunInOrderAndMustNotCallCuda) {
  uint32_t* word = words(1);
  HostCall call;
  CUstream s = stream();
  launch(s, FakeAction::kWait, address_of(word), 1);
  EXPECT_CU(cuLaunchHostFunc(
      s,
      [](void* data) {
        auto* self = static_cast<HostCall*>(data);
        int count = 0;
        self->inner_result = cuDeviceGetCount(&count);
        ++self->calls;
      },
      &call));
  EXPECT_EQ(call.calls, 0);
  store(word, 1);
  EXPECT_CU(cuStreamSynchronize(s));
  EXPECT_EQ(call.calls, 1);
  EXPECT_EQ(call.inner_result, CUDA_ERROR_NOT_PERMITTED);
  EXPECT_EQ(cuLaunchHostFunc(s, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(StreamTest, CallbacksLearnOfAFault) {
  CUstream s = stream();
  launch(s, FakeAction::kFault, 0, CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(cuStreamSynchronize(s), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(cuStreamAddCallback(s, nullptr, nullptr, 0), CUDA_ERROR_LAUNCH_FAILED);
}

TEST_F(StreamTest, AFullStreamHoldsBackWhoSubmitsToItAlone) {
  uint32_t* word = words(2);
  CUstream full = stream();
  launch(full, FakeAction::kWait, address_of(word), 1);
  for (int i = 1; i < kStreamItems; ++i) launch(full, FakeAction::kNothing);
  uint32_t seen = 0;
  std::atomic<bool> submitted{false};
  std::atomic<bool> submitting{false};
  std::thread submitter([&] {
    EXPECT_CU(cuCtxSetCurrent(context_));
    submitting = true;
    launch(full, FakeAction::kNothing);
    seen = load(word);
    submitted = true;
  });
  while (!submitting) std::this_thread::yield();
  CUstream other = stream();
  for (int i = 0; i < 20; ++i) {
    launch(other, FakeAction::kAdd, address_of(word + 1), 1);
    EXPECT_CU(cuStreamSynchronize(other));
  }
  EXPECT_EQ(load(word + 1), 20u);
  EXPECT_FALSE(submitted);
  store(word, 1);
  submitter.join();
  EXPECT_EQ(seen, 1u);
  EXPECT_CU(cuStreamSynchronize(full));
}

TEST_F(StreamTest, PropertiesOfStreams) {
  int least = 1;
  int greatest = 1;
  EXPECT_CU(cuCtxGetStreamPriorityRange(&least, &greatest));
  EXPECT_EQ(least, 0);
  EXPECT_EQ(greatest, -5);
  CUstream s = stream(CU_STREAM_NON_BLOCKING, -100);
  int priority = 0;
  unsigned flags = 0;
  CUcontext owner = nullptr;
  CUdevice device = -1;
  EXPECT_CU(cuStreamGetPriority(s, &priority));
  EXPECT_EQ(priority, -5);
  EXPECT_CU(cuStreamGetFlags(s, &flags));
  EXPECT_EQ(flags, static_cast<unsigned>(CU_STREAM_NON_BLOCKING));
  EXPECT_CU(cuStreamGetCtx(s, &owner));
  EXPECT_EQ(owner, context_);
  EXPECT_CU(cuStreamGetDevice(s, &device));
  EXPECT_EQ(device, 0);
  EXPECT_NE(stream_id(s), stream_id(nullptr));
}

TEST_F(StreamTest, BadHandlesAndFlags) {
  CUstream s = nullptr;
  EXPECT_EQ(cuStreamCreate(&s, 0x80), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuStreamCreate(nullptr, 0), CUDA_ERROR_INVALID_VALUE);
  s = stream();
  EXPECT_CU(cuStreamDestroy_v2(s));
  EXPECT_EQ(cuStreamDestroy_v2(s), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuStreamSynchronize(s), CUDA_ERROR_INVALID_HANDLE);
  auto* invented = reinterpret_cast<CUstream>(static_cast<uintptr_t>(0xdeadbee0));
  EXPECT_EQ(cuStreamQuery(invented), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuStreamDestroy_v2(nullptr), CUDA_ERROR_INVALID_HANDLE);
  // A handle of one kind is none of another.
  CUevent e = event();
  EXPECT_EQ(cuStreamQuery(reinterpret_cast<CUstream>(e)), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuEventQuery(reinterpret_cast<CUevent>(stream())), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_CU(cuEventDestroy_v2(e));
  EXPECT_EQ(cuEventDestroy_v2(e), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuEventCreate(&e, 0x80), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(StreamTest, DestroyedStreamFinishesItsWork) {
  uint32_t* word = words(2);
  CUstream s = stream();
  launch(s, FakeAction::kWait, address_of(&word[0]), 1);
  launch(s, FakeAction::kAdd, address_of(&word[1]), 1);
  EXPECT_CU(cuStreamDestroy_v2(s));
  store(&word[0], 1);
  EXPECT_CU(cuCtxSynchronize());
  EXPECT_EQ(load(&word[1]), 1u);
}

TEST_F(StreamTest, EventsOfAWholeContext) {
  uint32_t* word = words(2);
  CUstream a = stream();
  CUstream b = stream();
  CUevent e = event();
  launch(a, FakeAction::kWait, address_of(&word[0]), 1);
  EXPECT_CU(cuCtxRecordEvent(context_, e));
  EXPECT_EQ(cuEventQuery(e), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(cuCtxWaitEvent(nullptr, e), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_CU(cuCtxWaitEvent(context_, e));
  launch(b, FakeAction::kAdd, address_of(&word[1]), 1);
  EXPECT_EQ(cuStreamQuery(b), CUDA_ERROR_NOT_READY);
  store(&word[0], 1);
  EXPECT_CU(cuStreamSynchronize(b));
  EXPECT_CU(cuEventQuery(e));
}

TEST_F(StreamTest, WaitsThatNobodyEndsDoNotOutliveTheContext) {
  uint32_t* word = words(1);
  EXPECT_CU(cuStreamWaitValue32_v2(stream(), address_of(word), 1, CU_STREAM_WAIT_VALUE_EQ));
  // TearDown destroys the context, which must not hang.
}

}  // namespace
}  // namespace openmps::softgpu::testing
