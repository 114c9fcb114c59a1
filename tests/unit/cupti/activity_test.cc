// SPDX-License-Identifier: Apache-2.0
// What is in the records that a profiler gets, and which it gets.
#include <pthread.h>
#include <unistd.h>

#include <thread>

#include "base/clock.h"
#include "profiler.h"

namespace openmps::cupti::test {
namespace {

Activity full_kernel() {
  Activity kernel = activity(ActivityKind::kKernel, 77);
  kernel.device = 1;
  kernel.context = 2;
  kernel.stream = 3;
  kernel.graph = 4;
  kernel.graph_node = uint64_t{5} << 32;
  kernel.grid[0] = 6;
  kernel.grid[1] = 7;
  kernel.grid[2] = 8;
  kernel.block[0] = 9;
  kernel.block[1] = 10;
  kernel.block[2] = 11;
  kernel.registers = 12;
  kernel.static_shared_bytes = 13;
  kernel.dynamic_shared_bytes = 14;
  kernel.local_bytes = 15;
  return kernel;
}

TEST_P(Profiler, AKernelsRecord) {
  register_callbacks();
  ASSERT_EQ(enable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), CUPTI_SUCCESS);
  const uint64_t before = timestamp();
  driver().tell(full_kernel(), "_Z3addPf");
  const uint64_t after = timestamp();
  ASSERT_EQ(flush(), CUPTI_SUCCESS);
  const auto records = records_as<CUpti_ActivityKernel10>();
  ASSERT_EQ(records.size(), 1u);
  const CUpti_ActivityKernel10& record = records[0];
  EXPECT_EQ(record.kind, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  EXPECT_STREQ(record.name, "_Z3addPf");
  EXPECT_EQ(record.correlationId, 77u);
  EXPECT_EQ(record.deviceId, 1u);
  EXPECT_EQ(record.contextId, 2u);
  EXPECT_EQ(record.streamId, 3u);
  EXPECT_EQ(record.graphId, 4u);
  EXPECT_EQ(record.graphNodeId, uint64_t{5} << 32);
  EXPECT_EQ(record.gridX, 6);
  EXPECT_EQ(record.gridY, 7);
  EXPECT_EQ(record.gridZ, 8);
  EXPECT_EQ(record.blockX, 9);
  EXPECT_EQ(record.blockY, 10);
  EXPECT_EQ(record.blockZ, 11);
  EXPECT_EQ(record.registersPerThread, 12);
  EXPECT_EQ(record.staticSharedMemory, 13);
  EXPECT_EQ(record.dynamicSharedMemory, 14);
  EXPECT_EQ(record.localMemoryPerThread, 15u);
  EXPECT_EQ(record.channelType, CUPTI_CHANNEL_TYPE_COMPUTE);
  EXPECT_EQ(record.completed, record.end);
  EXPECT_EQ(record.queued, 0u);
  EXPECT_EQ(record.isDeviceLaunched, 0);
  // It ended 990 ns before it was told.
  EXPECT_LT(record.start, record.end);
  EXPECT_GT(record.end, before - 1'000'000);
  EXPECT_LT(record.end, after);
  // What a later CUDA's record has behind these is zero.
  const std::vector<uint8_t>& bytes = buffers().records[0];
  ASSERT_GT(bytes.size(), sizeof record);
  for (size_t i = sizeof record; i < bytes.size(); ++i) EXPECT_EQ(bytes[i], 0);
}

TEST_P(Profiler, ANameStaysWhenItsKernelHasGone) {
  register_callbacks();
  ASSERT_EQ(enable(CUPTI_ACTIVITY_KIND_KERNEL), CUPTI_SUCCESS);
  for (int i = 0; i < 2; ++i) {
    std::string name = "short_lived";
    driver().tell(activity(ActivityKind::kKernel, 1), name.c_str());
    name = "overwritten";
  }
  driver().tell(activity(ActivityKind::kKernel, 1), nullptr);
  ASSERT_EQ(flush(), CUPTI_SUCCESS);
  ASSERT_EQ(cupti("cuptiFinalize"), CUPTI_SUCCESS);
  const auto records = records_as<CUpti_ActivityKernel10>();
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(records[0].kind, CUPTI_ACTIVITY_KIND_KERNEL);
  EXPECT_STREQ(records[0].name, "short_lived");
  EXPECT_EQ(records[0].name, records[1].name);
  EXPECT_STREQ(records[2].name, "");
}

TEST_P(Profiler, AKernelHasOneRecord) {
  ASSERT_EQ(enable(CUPTI_ACTIVITY_KIND_KERNEL), CUPTI_SUCCESS);
  EXPECT_EQ(enable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), CUPTI_ERROR_NOT_COMPATIBLE);
  EXPECT_EQ(enable(CUPTI_ACTIVITY_KIND_KERNEL), CUPTI_SUCCESS);
  ASSERT_EQ(disable(CUPTI_ACTIVITY_KIND_KERNEL), CUPTI_SUCCESS);
  EXPECT_EQ(enable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), CUPTI_SUCCESS);
  EXPECT_EQ(enable(CUPTI_ACTIVITY_KIND_KERNEL), CUPTI_ERROR_NOT_COMPATIBLE);
}

TEST_P(Profiler, CopiesAndFills) {
  register_callbacks();
  ASSERT_EQ(enable(CUPTI_ACTIVITY_KIND_MEMCPY), CUPTI_SUCCESS);
  ASSERT_EQ(enable(CUPTI_ACTIVITY_KIND_MEMSET), CUPTI_SUCCESS);
  Activity copy = activity(ActivityKind::kCopy, 5);
  copy.bytes = uint64_t{3} << 32;
  copy.from = MemoryKind::kPageable;
  copy.to = MemoryKind::kDevice;
  copy.stream = 9;
  driver().tell(copy);
  Activity peer = copy;
  peer.is_peer = 1;
  peer.peer = 6;
  driver().tell(peer);
  Activity fill = activity(ActivityKind::kFill, 6);
  fill.bytes = 4096;
  fill.value = 0xabcd;
  fill.to = MemoryKind::kManaged;
  driver().tell(fill);
  ASSERT_EQ(enable(CUPTI_ACTIVITY_KIND_MEMCPY2), CUPTI_SUCCESS);
  driver().tell(peer);
  ASSERT_EQ(flush(), CUPTI_SUCCESS);
  ASSERT_EQ(kinds(), (std::vector{CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMCPY,
                                  CUPTI_ACTIVITY_KIND_MEMSET, CUPTI_ACTIVITY_KIND_MEMCPY2}));
  const auto copies = records_as<CUpti_ActivityMemcpy6>();
  EXPECT_EQ(copies[0].copyKind, CUPTI_ACTIVITY_MEMCPY_KIND_HTOD);
  EXPECT_EQ(copies[0].srcKind, CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE);
  EXPECT_EQ(copies[0].dstKind, CUPTI_ACTIVITY_MEMORY_KIND_DEVICE);
  EXPECT_EQ(copies[0].bytes, uint64_t{3} << 32);
  EXPECT_EQ(copies[0].streamId, 9u);
  EXPECT_EQ(copies[0].correlationId, 5u);
  EXPECT_EQ(copies[0].copyCount, 1u);
  EXPECT_EQ(copies[1].copyKind, CUPTI_ACTIVITY_MEMCPY_KIND_PTOP);
  const auto fills = records_as<CUpti_ActivityMemset4>();
  EXPECT_EQ(fills[2].value, 0xabcdu);
  EXPECT_EQ(fills[2].bytes, 4096u);
  EXPECT_EQ(fills[2].memoryKind, CUPTI_ACTIVITY_MEMORY_KIND_MANAGED);
  EXPECT_EQ(fills[2].correlationId, 6u);
  const auto peers = records_as<CUpti_ActivityMemcpyPtoP4>();
  EXPECT_EQ(peers[3].copyKind, CUPTI_ACTIVITY_MEMCPY_KIND_PTOP);
  EXPECT_EQ(peers[3].srcDeviceId, 0u);
  EXPECT_EQ(peers[3].dstDeviceId, 6u);
  EXPECT_EQ(peers[3].bytes, uint64_t{3} << 32);
}

TEST_P(Profiler, OnlyWhatItWants) {
  register_callbacks();
  ASSERT_EQ(enable(CUPTI_ACTIVITY_KIND_MEMSET), CUPTI_SUCCESS);
  driver().tell(activity(ActivityKind::kKernel, 1), "kernel");
  driver().tell(activity(ActivityKind::kCopy, 2));
  driver().tell(activity(ActivityKind::kCall, 3));
  EXPECT_EQ(buffers().requested, 0);
  ASSERT_EQ(flush(), CUPTI_SUCCESS);
  EXPECT_EQ(dropped(), 0u);
  EXPECT_TRUE(buffers().records.empty());
}

TEST_P(Profiler, KindsWithoutRecordsAreNoError) {
  for (const CUpti_ActivityKind kind :
       {CUPTI_ACTIVITY_KIND_RUNTIME, CUPTI_ACTIVITY_KIND_OVERHEAD,
        CUPTI_ACTIVITY_KIND_SYNCHRONIZATION, CUPTI_ACTIVITY_KIND_MARKER,
        CUPTI_ACTIVITY_KIND_UNIFIED_MEMORY_COUNTER, CUPTI_ACTIVITY_KIND_GRAPH_TRACE}) {
    EXPECT_EQ(enable(kind), CUPTI_SUCCESS) << kind;
    EXPECT_EQ(disable(kind), CUPTI_SUCCESS) << kind;
  }
  EXPECT_EQ(driver().starts, 0);
  EXPECT_EQ(enable(CUPTI_ACTIVITY_KIND_PC_SAMPLING), CUPTI_ERROR_LEGACY_PROFILER_NOT_SUPPORTED);
  EXPECT_EQ(enable(CUPTI_ACTIVITY_KIND_INVALID), CUPTI_ERROR_NOT_COMPATIBLE);
  EXPECT_EQ(enable(CUPTI_ACTIVITY_KIND_COUNT), CUPTI_ERROR_NOT_COMPATIBLE);
  EXPECT_EQ(disable(static_cast<CUpti_ActivityKind>(0xffffffff)), CUPTI_ERROR_INVALID_KIND);
}

Activity call_of(CallKind kind, uint32_t correlation) {
  Activity call = activity(ActivityKind::kCall, correlation);
  call.call = kind;
  call.thread = 4711;
  call.result = 2;
  return call;
}

TEST_P(Profiler, CallsOfTheDriver) {
  register_callbacks();
  ASSERT_EQ(enable(CUPTI_ACTIVITY_KIND_DRIVER), CUPTI_SUCCESS);
  driver().tell(call_of(CallKind::kLaunch, 21));
  ASSERT_EQ(cupti("cuptiSetThreadIdType", CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM), CUPTI_SUCCESS);
  driver().tell(call_of(CallKind::kGraphLaunch, 22));
  ASSERT_EQ(flush(), CUPTI_SUCCESS);
  const auto records = records_as<CUpti_ActivityAPI>();
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].kind, CUPTI_ACTIVITY_KIND_DRIVER);
  EXPECT_EQ(records[0].cbid, 307u);
  EXPECT_EQ(records[0].correlationId, 21u);
  EXPECT_EQ(records[0].returnValue, 2u);
  EXPECT_EQ(records[0].processId, static_cast<uint32_t>(getpid()));
  EXPECT_EQ(records[0].threadId, static_cast<uint32_t>(pthread_self()));
  EXPECT_EQ(records[1].cbid, 514u);
  EXPECT_EQ(records[1].threadId, 4711u);
}

TEST_P(Profiler, SingleFunctionsOfTheDriver) {
  register_callbacks();
  const auto set = [&](CallKind call, uint8_t on) {
    EXPECT_EQ(cupti("cuptiActivityEnableDriverApi", static_cast<CUpti_CallbackId>(call), on),
              CUPTI_SUCCESS);
  };
  const auto tell_all = [&] {
    for (const CallKind call : {CallKind::kFill, CallKind::kCopy, CallKind::kLaunch}) {
      driver().tell(call_of(call, static_cast<uint32_t>(call)));
    }
  };
  set(CallKind::kCopy, 1);  // without the kind
  tell_all();
  set(CallKind::kCopy, 0);
  EXPECT_EQ(driver().starts, 1);
  EXPECT_EQ(driver().stops, 1);
  ASSERT_EQ(enable(CUPTI_ACTIVITY_KIND_DRIVER), CUPTI_SUCCESS);
  set(CallKind::kLaunch, 0);  // all but one
  EXPECT_EQ(cupti("cuptiActivityEnableDriverApi", 617u, uint8_t{0}), CUPTI_SUCCESS);
  tell_all();
  ASSERT_EQ(enable(CUPTI_ACTIVITY_KIND_DRIVER), CUPTI_SUCCESS);  // all again
  tell_all();
  ASSERT_EQ(flush(), CUPTI_SUCCESS);
  std::vector<uint32_t> found;
  for (const auto& record : records_as<CUpti_ActivityAPI>()) found.push_back(record.cbid);
  EXPECT_EQ(found, (std::vector<uint32_t>{306, 216, 306, 216, 306, 307}));
}

struct External {
  uint32_t kind, correlation;
  uint64_t id;
  bool operator==(const External&) const = default;
};

TEST_P(Profiler, ExternalNumbersComeBeforeTheCall) {
  constexpr auto custom0 = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0;
  constexpr auto custom1 = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM1;
  const auto push = [&](CUpti_ExternalCorrelationKind kind, uint64_t id) {
    EXPECT_EQ(cupti("cuptiActivityPushExternalCorrelationId", kind, id), CUPTI_SUCCESS);
  };
  const auto pop = [&](CUpti_ExternalCorrelationKind kind) {
    uint64_t id = 0;
    EXPECT_EQ(cupti("cuptiActivityPopExternalCorrelationId", kind, &id), CUPTI_SUCCESS);
    return id;
  };
  register_callbacks();
  ASSERT_EQ(enable(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION), CUPTI_SUCCESS);
  ASSERT_EQ(enable(CUPTI_ACTIVITY_KIND_DRIVER), CUPTI_SUCCESS);
  driver().tell(call_of(CallKind::kLaunch, 1));
  push(custom0, 100);
  push(custom1, uint64_t{7} << 40);
  push(custom0, 101);
  driver().tell(call_of(CallKind::kLaunch, 2));
  std::thread([&] {  // has a stack of its own
    push(custom0, 300);
    driver().tell(call_of(CallKind::kLaunch, 3));
  })
      .join();
  EXPECT_EQ(pop(custom0), 101u);
  driver().tell(call_of(CallKind::kLaunch, 4));
  EXPECT_EQ(pop(custom1), uint64_t{7} << 40);
  EXPECT_EQ(pop(custom0), 100u);
  driver().tell(call_of(CallKind::kLaunch, 5));
  ASSERT_EQ(flush(), CUPTI_SUCCESS);
  constexpr auto kCall = CUPTI_ACTIVITY_KIND_DRIVER;
  constexpr auto kNumber = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION;
  EXPECT_EQ(kinds(), (std::vector{kCall, kNumber, kNumber, kCall, kNumber, kCall, kNumber, kNumber,
                                  kCall, kCall}));
  std::vector<External> found;
  for (const auto& record : records_as<CUpti_ActivityExternalCorrelation>()) {
    if (record.kind == kNumber) {
      found.push_back({record.externalKind, record.correlationId, record.externalId});
    }
  }
  EXPECT_EQ(found, (std::vector<External>{{custom0, 2, 101},
                                          {custom1, 2, uint64_t{7} << 40},
                                          {custom0, 3, 300},
                                          {custom0, 4, 100},
                                          {custom1, 4, uint64_t{7} << 40}}));
  EXPECT_EQ(
      cupti("cuptiActivityPopExternalCorrelationId", custom0, static_cast<uint64_t*>(nullptr)),
      CUPTI_ERROR_QUEUE_EMPTY);
  EXPECT_EQ(cupti("cuptiActivityPushExternalCorrelationId", CUPTI_EXTERNAL_CORRELATION_KIND_INVALID,
                  uint64_t{1}),
            CUPTI_ERROR_INVALID_PARAMETER);
  EXPECT_EQ(cupti("cuptiActivityPushExternalCorrelationId", CUPTI_EXTERNAL_CORRELATION_KIND_SIZE,
                  uint64_t{1}),
            CUPTI_ERROR_INVALID_PARAMETER);
}

TEST_P(Profiler, ExternalNumbersWithoutDriverRecords) {
  register_callbacks();
  ASSERT_EQ(enable(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION), CUPTI_SUCCESS);
  ASSERT_EQ(cupti("cuptiActivityPushExternalCorrelationId", CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM2,
                  uint64_t{9}),
            CUPTI_SUCCESS);
  driver().tell(call_of(CallKind::kFill, 8));
  ASSERT_EQ(cupti("cuptiActivityPopExternalCorrelationId", CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM2,
                  static_cast<uint64_t*>(nullptr)),
            CUPTI_SUCCESS);
  ASSERT_EQ(flush(), CUPTI_SUCCESS);
  EXPECT_EQ(kinds(), std::vector{CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION});
}

uint64_t three_ticks_a_ns() { return now_ns() * 3; }

TEST_P(Profiler, TimesAreThoseOfItsClock) {
  register_callbacks();
  ASSERT_EQ(cupti("cuptiActivityRegisterTimestampCallback", &three_ticks_a_ns), CUPTI_SUCCESS);
  ASSERT_EQ(enable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), CUPTI_SUCCESS);
  const uint64_t before = now_ns();
  EXPECT_GE(timestamp(), before * 3);
  // One after another on a stream, and told in another order.
  std::vector<Activity> kernels;
  for (uint32_t i = 0; i < 100; ++i) {
    Activity kernel = activity(ActivityKind::kKernel, i, 0);
    kernel.end_ns = kernel.begin_ns;  // now
    kernels.push_back(kernel);
    while (now_ns() < kernel.begin_ns + 5'000) cpu_relax();
  }
  for (size_t i = 1; i < kernels.size(); i += 2) driver().tell(kernels[i], "kernel");
  for (size_t i = 0; i < kernels.size(); i += 2) driver().tell(kernels[i], "kernel");
  ASSERT_EQ(flush(), CUPTI_SUCCESS);
  std::vector<uint64_t> starts(kernels.size());
  for (const auto& record : records_as<CUpti_ActivityKernel10>()) {
    starts.at(record.correlationId) = record.start;
  }
  for (size_t i = 0; i < kernels.size(); ++i) {
    // The pairs of times are read in less than 10 us, unless this thread has to wait meanwhile.
    EXPECT_NEAR(static_cast<double>(starts[i]), static_cast<double>(kernels[i].begin_ns) * 3,
                3 * 10'000'000.0);
    if (i > 0) {
      EXPECT_GT(starts[i], starts[i - 1]);
    }
  }
  EXPECT_EQ(cupti("cuptiActivityRegisterTimestampCallback",
                  static_cast<CUpti_TimestampCallbackFunc>(nullptr)),
            CUPTI_ERROR_INVALID_PARAMETER);
}

TEST_P(Profiler, TimesAreTheWallClocksOtherwise) {
  const uint64_t before = wall_clock_ns();
  const uint64_t time = timestamp();
  EXPECT_GE(time, before);
  EXPECT_LE(time, wall_clock_ns());
}

}  // namespace
}  // namespace openmps::cupti::test
