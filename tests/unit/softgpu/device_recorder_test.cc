// SPDX-License-Identifier: Apache-2.0
// What a recording tells of kernels, copies, fills, graphs and calls, and when it tells nothing.
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "cupti/activity.h"
#include "device_fixture.h"

namespace openmps::softgpu::testing {
namespace {

using cupti::Activity;
using cupti::ActivityKind;
using cupti::ActivitySink;
using cupti::ActivityTable;
using cupti::CallKind;
using cupti::MemoryKind;

struct Told {
  Activity activity;
  std::string name;  // empty: told without one
};

class RecorderTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    const void* found = nullptr;
    ASSERT_CU(cuGetExportTable(&found, &cupti::kActivityTableId));
    table_ = static_cast<const ActivityTable*>(found);
    ASSERT_EQ(table_->bytes, sizeof(ActivityTable));
  }
  void TearDown() override {
    EXPECT_CU(table_->stop());
    DeviceTest::TearDown();
  }

  void start() {
    const ActivitySink sink{take, this};
    const char* why = nullptr;
    ASSERT_CU(table_->start(&sink, &why));
  }

  // Of all, in the order in which they were told; after everything in the context has ended.
  std::vector<Told> told() {
    EXPECT_CU(cuCtxSynchronize());
    EXPECT_CU(table_->flush());
    return told_so_far();
  }
  std::vector<Told> told_so_far() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return told_;
  }
  std::vector<Told> told(ActivityKind kind) {
    std::vector<Told> all = told();
    std::erase_if(all, [&](const Told& one) { return one.activity.kind != kind; });
    return all;
  }
  // The only one of its kind.
  Activity only(ActivityKind kind) {
    const std::vector<Told> all = told(kind);
    EXPECT_EQ(all.size(), 1u);
    return all.size() == 1 ? all.front().activity : Activity{};
  }
  void forget() {
    told();
    const std::lock_guard<std::mutex> lock(mutex_);
    told_.clear();
  }

  // Each block adds 1 to the word, and ends when that is `value`.
  void launch_meeting(CUstream stream, uint32_t* word, uint32_t value, unsigned blocks,
                      unsigned threads) {
    FakeParameters parameters{FakeAction::kGridSync, address_of(word), value};
    void* pointers[] = {&parameters.action, &parameters.address, &parameters.value};
    ASSERT_CU(cuLaunchCooperativeKernel(function("run"), blocks, 1, 1, threads, 1, 1, 0, stream,
                                        pointers));
  }

  static uint32_t number_of(CUstream stream) { return static_cast<uint32_t>(stream_id(stream)); }
  static uint32_t number_of(CUcontext context) {
    unsigned long long id = 0;
    EXPECT_CU(cuCtxGetId(context, &id));
    return static_cast<uint32_t>(id);
  }
  static CUdeviceptr device_memory(size_t bytes) {
    CUdeviceptr address = 0;
    EXPECT_CU(cuMemAlloc_v2(&address, bytes));
    return address;
  }
  static void* pinned(size_t bytes) {
    void* host = nullptr;
    EXPECT_CU(cuMemHostAlloc(&host, bytes, 0));
    return host;
  }

  const ActivityTable* table_ = nullptr;

 private:
  static void take(void* self, const Activity* activity, const char* name) {
    auto& test = *static_cast<RecorderTest*>(self);
    const std::lock_guard<std::mutex> lock(test.mutex_);
    test.told_.push_back({*activity, name == nullptr ? "" : name});
  }

  std::mutex mutex_;
  std::vector<Told> told_;
};

// ---- Kernels ----------------------------------------------------------------------------------

TEST_F(RecorderTest, AKernelAndTheCallThatGaveIt) {
  CUstream s = stream();
  start();
  const uint64_t before = now_ns();
  ASSERT_CU(try_launch(function("wide"), s, {}, 3, 64, 256));
  EXPECT_CU(cuStreamSynchronize(s));
  const uint64_t after = now_ns();

  const Told kernel = told(ActivityKind::kKernel).at(0);
  EXPECT_EQ(kernel.name, "wide");
  const Activity& it = kernel.activity;
  EXPECT_EQ(std::vector<uint32_t>(it.grid, it.grid + 3), (std::vector<uint32_t>{3, 1, 1}));
  EXPECT_EQ(std::vector<uint32_t>(it.block, it.block + 3), (std::vector<uint32_t>{64, 1, 1}));
  EXPECT_EQ(it.registers, 32u);
  EXPECT_EQ(it.static_shared_bytes, 64u << 10);
  EXPECT_EQ(it.dynamic_shared_bytes, 256u);
  EXPECT_EQ(it.device, 0u);
  EXPECT_EQ(it.context, number_of(context_));
  EXPECT_EQ(it.stream, number_of(s));
  EXPECT_EQ(it.graph, 0u);
  EXPECT_EQ(it.graph_node, 0u);
  EXPECT_LE(before, it.begin_ns);
  EXPECT_LE(it.begin_ns, it.end_ns);
  EXPECT_LE(it.end_ns, after);

  const Activity call = only(ActivityKind::kCall);
  EXPECT_EQ(call.call, CallKind::kLaunch);
  EXPECT_NE(call.correlation, 0u);
  EXPECT_EQ(call.correlation, it.correlation);
  EXPECT_EQ(call.thread, static_cast<uint32_t>(syscall(SYS_gettid)));
  EXPECT_EQ(call.result, CUDA_SUCCESS);
  EXPECT_LE(before, call.begin_ns);
  EXPECT_LE(call.begin_ns, call.end_ns);
  EXPECT_LE(call.end_ns, after);
  EXPECT_LE(call.begin_ns, it.begin_ns);
}

TEST_F(RecorderTest, KernelsOfTwoStreamsOverlap) {
  uint32_t* word = words(1);
  CUstream streams[] = {stream(), stream()};
  start();
  for (CUstream s : streams) launch_meeting(s, word, 2, 1, 32);
  const std::vector<Told> kernels = told(ActivityKind::kKernel);
  ASSERT_EQ(kernels.size(), 2u);
  const Activity& a = kernels[0].activity;
  const Activity& b = kernels[1].activity;
  EXPECT_LE(a.begin_ns, b.end_ns);
  EXPECT_LE(b.begin_ns, a.end_ns);
  EXPECT_EQ((std::set<uint32_t>{a.stream, b.stream}),
            (std::set<uint32_t>{number_of(streams[0]), number_of(streams[1])}));
}

// A kernel that waits for multiprocessors has not begun.
TEST_F(RecorderTest, AKernelBeginsWithItsFirstBlock) {
  constexpr uint32_t kBlocks = 2 * kSms;  // of 1024 threads: all that the device holds
  uint32_t* word = words(1);
  CUstream a = stream();
  CUstream b = stream();
  start();
  launch_meeting(a, word, kBlocks + 1, kBlocks, 1024);
  launch(b, FakeAction::kNothing, 0, 0, 1, 1024);
  while (load(word) < kBlocks) usleep(200);
  const uint64_t freed = now_ns();
  store(word, kBlocks + 1);
  const std::vector<Told> kernels = told(ActivityKind::kKernel);
  ASSERT_EQ(kernels.size(), 2u);
  for (const Told& kernel : kernels) {
    const bool waited = kernel.activity.stream == number_of(b);
    EXPECT_EQ(kernel.activity.begin_ns >= freed, waited);
    EXPECT_GE(kernel.activity.end_ns, freed);
  }
}

TEST_F(RecorderTest, AStreamsWorkIsToldInItsOrder) {
  constexpr int kCount = 20;
  CUstream s = stream();
  CUdeviceptr memory = device_memory(4096);
  start();
  for (int i = 0; i < kCount; ++i) {
    launch(s, FakeAction::kCount, 0, 1000, 3);
    ASSERT_CU(cuMemsetD8Async(memory, 1, 4096, s));
  }
  std::vector<Told> work = told();
  std::erase_if(work, [](const Told& one) { return one.activity.kind == ActivityKind::kCall; });
  ASSERT_EQ(work.size(), 2u * kCount);
  std::set<uint32_t> correlations;
  for (size_t i = 0; i < work.size(); ++i) {
    const Activity& it = work[i].activity;
    EXPECT_EQ(it.kind, i % 2 == 0 ? ActivityKind::kKernel : ActivityKind::kFill);
    EXPECT_LE(it.begin_ns, it.end_ns);
    if (i > 0) {
      EXPECT_GE(it.begin_ns, work[i - 1].activity.end_ns);
    }
    correlations.insert(it.correlation);
  }
  EXPECT_EQ(correlations.size(), work.size());
  EXPECT_EQ(told(ActivityKind::kCall).size(), work.size());
  EXPECT_EQ(table_->lost(), 0u);
}

TEST_F(RecorderTest, WorkAfterAFaultHasNotBegun) {
  uint32_t* word = words(1);
  CUstream s = stream();
  start();
  launch(s, FakeAction::kWait, address_of(word), 1);
  launch(s, FakeAction::kFault, 0, CUDA_ERROR_LAUNCH_FAILED);
  launch(s, FakeAction::kNothing);
  store(word, 1);
  EXPECT_EQ(cuStreamSynchronize(s), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_CU(table_->flush());
  size_t kernels = 0;
  for (const Told& one : told_so_far()) kernels += one.activity.kind == ActivityKind::kKernel;
  EXPECT_EQ(kernels, 2u);
}

// ---- Copies and fills -------------------------------------------------------------------------

constexpr size_t kBytes = 96 << 10;  // more than what is copied aside

TEST_F(RecorderTest, CopiesSayWhereTheyGo) {
  std::vector<uint8_t> pageable(kBytes);
  void* host = pinned(kBytes);
  const auto pinned_address = reinterpret_cast<CUdeviceptr>(host);
  CUdeviceptr device = device_memory(kBytes);
  CUdeviceptr other = device_memory(kBytes);
  const CUdeviceptr managed = address_of(words(kBytes / sizeof(uint32_t)));
  const CUDA_ARRAY_DESCRIPTOR shape{kBytes, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1};
  CUarray array = nullptr;
  ASSERT_CU(cuArrayCreate_v2(&array, &shape));
  CUstream s = stream();
  start();

  const auto expect = [&](MemoryKind from, MemoryKind to, CUresult result, size_t bytes = kBytes) {
    EXPECT_EQ(result, CUDA_SUCCESS);
    const Activity copy = only(ActivityKind::kCopy);
    EXPECT_EQ(copy.from, from);
    EXPECT_EQ(copy.to, to);
    EXPECT_EQ(copy.bytes, bytes);
    EXPECT_EQ(copy.is_peer, 0);
    EXPECT_EQ(copy.context, number_of(context_));
    const Activity call = only(ActivityKind::kCall);
    EXPECT_EQ(call.call, CallKind::kCopy);
    EXPECT_EQ(call.correlation, copy.correlation);
    EXPECT_LE(call.begin_ns, copy.begin_ns);
    EXPECT_LE(copy.begin_ns, copy.end_ns);
    forget();
  };
  using enum MemoryKind;
  expect(kPageable, kDevice, cuMemcpyHtoD_v2(device, pageable.data(), kBytes));
  expect(kDevice, kPageable, cuMemcpyDtoH_v2(pageable.data(), device, kBytes));
  expect(kPinned, kDevice, cuMemcpyHtoDAsync_v2(device, host, kBytes, s));
  expect(kDevice, kPinned, cuMemcpyDtoHAsync_v2(host, device, kBytes, s));
  // Copied aside first.
  expect(kPageable, kDevice, cuMemcpyHtoDAsync_v2(device, pageable.data(), 64, s), 64);
  expect(kDevice, kDevice, cuMemcpyDtoD_v2(other, device, kBytes));
  expect(kManaged, kDevice, cuMemcpy(device, managed, kBytes));
  expect(kPinned, kManaged, cuMemcpyAsync(managed, pinned_address, kBytes, s));
  expect(kPageable, kPinned,
         cuMemcpy(pinned_address, reinterpret_cast<CUdeviceptr>(pageable.data()), kBytes));
  expect(kPageable, kArray, cuMemcpyHtoA_v2(array, 0, pageable.data(), kBytes));
  expect(kArray, kDevice, cuMemcpyAtoD_v2(device, array, 0, kBytes));
  CUDA_MEMCPY2D rows = {};
  rows.srcMemoryType = rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  rows.srcDevice = device;
  rows.dstDevice = other;
  rows.srcPitch = rows.dstPitch = 1024;
  rows.WidthInBytes = 100;
  rows.Height = 10;
  expect(kDevice, kDevice, cuMemcpy2D_v2(&rows), 1000);
  EXPECT_CU(cuArrayDestroy(array));
  EXPECT_CU(cuMemFreeHost(host));
}

TEST_F(RecorderTest, ACopyToAnotherDevice) {
  CUcontext second = nullptr;
  ASSERT_CU(cuCtxCreate_v2(&second, 0, 1));
  CUdeviceptr there = device_memory(4096);
  CUcontext popped = nullptr;
  ASSERT_CU(cuCtxPopCurrent_v2(&popped));
  CUdeviceptr here = device_memory(4096);
  start();
  ASSERT_CU(cuMemcpyPeer(there, second, here, context_, 4096));
  const Activity to = only(ActivityKind::kCopy);
  forget();
  ASSERT_CU(cuMemcpyPeerAsync(here, context_, there, second, 4096, nullptr));
  const Activity back = only(ActivityKind::kCopy);
  for (const Activity& copy : {to, back}) {
    EXPECT_EQ(copy.from, MemoryKind::kDevice);
    EXPECT_EQ(copy.to, MemoryKind::kDevice);
    EXPECT_EQ(copy.is_peer, 1);
  }
  EXPECT_EQ(to.device, 0u);
  EXPECT_EQ(to.peer, 1u);
  EXPECT_EQ(back.device, 1u);
  EXPECT_EQ(back.peer, 0u);
  EXPECT_CU(cuCtxDestroy_v2(second));
}

TEST_F(RecorderTest, FillsSayWithWhat) {
  CUdeviceptr device = device_memory(4096);
  void* host = pinned(4096);
  CUstream s = stream();
  start();
  const auto expect = [&](uint32_t value, uint64_t bytes, MemoryKind to, CUresult result) {
    EXPECT_EQ(result, CUDA_SUCCESS);
    const Activity fill = only(ActivityKind::kFill);
    EXPECT_EQ(fill.value, value);
    EXPECT_EQ(fill.bytes, bytes);
    EXPECT_EQ(fill.to, to);
    EXPECT_LE(fill.begin_ns, fill.end_ns);
    const Activity call = only(ActivityKind::kCall);
    EXPECT_EQ(call.call, CallKind::kFill);
    EXPECT_EQ(call.correlation, fill.correlation);
    forget();
  };
  using enum MemoryKind;
  expect(7, 4096, kDevice, cuMemsetD8_v2(device, 7, 4096));
  expect(0x1234, 100, kDevice, cuMemsetD16Async(device, 0x1234, 50, s));
  expect(5, 4 * 10 * 3, kDevice, cuMemsetD2D32_v2(device, 64, 5, 10, 3));
  expect(9, 4096, kPinned, cuMemsetD8_v2(reinterpret_cast<CUdeviceptr>(host), 9, 4096));
  EXPECT_CU(cuMemFreeHost(host));
}

TEST_F(RecorderTest, ABatchIsOneCall) {
  CUdeviceptr memory = device_memory(4096);
  CUstream s = stream();
  start();
  CUdeviceptr to[] = {memory, memory + 1024};
  CUdeviceptr from[] = {memory + 2048, memory + 3072};
  size_t sizes[] = {16, 32};
  size_t first = 0;
  CUmemcpyAttributes attributes = {};
  attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  ASSERT_CU(cuMemcpyBatchAsync(to, from, sizes, 2, &attributes, &first, 1, nullptr, s));
  const std::vector<Told> copies = told(ActivityKind::kCopy);
  const Activity call = only(ActivityKind::kCall);
  ASSERT_EQ(copies.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(copies[i].activity.correlation, call.correlation);
    EXPECT_EQ(copies[i].activity.bytes, sizes[i]);
  }
}

TEST_F(RecorderTest, CallsThatGiveNothingAreNotTold) {
  CUdeviceptr memory = device_memory(16);
  CUstream s = stream();
  start();
  EXPECT_CU(cuMemcpyDtoDAsync_v2(memory, memory, 0, s));
  EXPECT_CU(cuMemsetD8_v2(memory, 1, 0));
  EXPECT_EQ(cuMemsetD8_v2(memory, 1, 1 << 30), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(try_launch(function("run"), s, {}, 1, 4096), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CU(cuEventRecord(event(), s));
  EXPECT_CU(cuStreamSynchronize(s));
  EXPECT_TRUE(told().empty());
}

// ---- Graphs -----------------------------------------------------------------------------------

TEST_F(RecorderTest, AGraphsNodesAreToldWhenItIsLaunched) {
  CUdeviceptr memory = device_memory(4096);
  void* host = pinned(4096);
  CUstream s = stream();
  start();
  ASSERT_CU(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
  launch(s, FakeAction::kNothing);
  ASSERT_CU(cuMemsetD8Async(memory, 3, 4096, s));
  ASSERT_CU(cuMemcpyDtoHAsync_v2(host, memory, 4096, s));
  CUgraph graph = nullptr;
  ASSERT_CU(cuStreamEndCapture(s, &graph));
  CUgraphExec exec = nullptr;
  ASSERT_CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
  EXPECT_TRUE(told().empty());

  CUgraphNode nodes[3] = {};
  size_t count = 3;
  ASSERT_CU(cuGraphGetNodes(graph, nodes, &count));
  ASSERT_EQ(count, 3u);
  uint32_t last_correlation = 0;
  uint32_t number = 0;
  for (int round = 0; round < 2; ++round) {
    ASSERT_CU(cuGraphLaunch(exec, s));
    const Activity call = only(ActivityKind::kCall);
    EXPECT_EQ(call.call, CallKind::kGraphLaunch);
    EXPECT_NE(call.correlation, last_correlation);
    last_correlation = call.correlation;
    const Activity parts[] = {only(ActivityKind::kKernel), only(ActivityKind::kFill),
                              only(ActivityKind::kCopy)};
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(parts[i].correlation, call.correlation);
      EXPECT_EQ(parts[i].graph_node, reinterpret_cast<uint64_t>(nodes[i]));
      EXPECT_EQ(parts[i].graph, parts[0].graph);
      EXPECT_EQ(parts[i].stream, number_of(s));
      EXPECT_EQ(parts[i].context, number_of(context_));
      if (i > 0) {
        EXPECT_GE(parts[i].begin_ns, parts[i - 1].end_ns);
      }
    }
    EXPECT_NE(parts[0].graph, 0u);
    if (round > 0) {
      EXPECT_EQ(parts[0].graph, number);
    }
    number = parts[0].graph;
    EXPECT_EQ(parts[1].to, MemoryKind::kDevice);
    EXPECT_EQ(parts[2].from, MemoryKind::kDevice);
    EXPECT_EQ(parts[2].to, MemoryKind::kPinned);
    forget();
  }
  // A node that is switched off does nothing.
  ASSERT_CU(cuGraphNodeSetEnabled(exec, nodes[1], 0));
  ASSERT_CU(cuGraphLaunch(exec, s));
  EXPECT_TRUE(told(ActivityKind::kFill).empty());
  EXPECT_EQ(told(ActivityKind::kKernel).size(), 1u);
  EXPECT_CU(cuGraphExecDestroy(exec));
  EXPECT_CU(cuGraphDestroy(graph));
  EXPECT_CU(cuMemFreeHost(host));
}

TEST_F(RecorderTest, TheBodyOfAConditionalNodeIsOfTheLaunch) {
  CUgraph graph = nullptr;
  ASSERT_CU(cuGraphCreate(&graph, 0));
  CUgraphConditionalHandle condition = 0;
  ASSERT_CU(
      cuGraphConditionalHandleCreate(&condition, graph, context_, 1, CU_GRAPH_COND_ASSIGN_DEFAULT));
  CUgraphNodeParams parameters = {};
  parameters.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
  parameters.conditional.handle = condition;
  parameters.conditional.type = CU_GRAPH_COND_TYPE_IF;
  parameters.conditional.size = 1;
  parameters.conditional.ctx = context_;
  CUgraphNode conditional = nullptr;
  ASSERT_CU(cuGraphAddNode_v2(&conditional, graph, nullptr, nullptr, 0, &parameters));
  FakeParameters nothing;
  void* pointers[] = {&nothing.action, &nothing.address, &nothing.value};
  CUDA_KERNEL_NODE_PARAMS kernel = {};
  kernel.func = function("run");
  kernel.gridDimX = kernel.gridDimY = kernel.gridDimZ = 1;
  kernel.blockDimX = kernel.blockDimY = kernel.blockDimZ = 1;
  kernel.kernelParams = pointers;
  CUgraphNode node = nullptr;
  ASSERT_CU(
      cuGraphAddKernelNode_v2(&node, parameters.conditional.phGraph_out[0], nullptr, 0, &kernel));
  CUgraphExec exec = nullptr;
  ASSERT_CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
  start();
  ASSERT_CU(cuGraphLaunch(exec, nullptr));
  const Activity body = only(ActivityKind::kKernel);
  EXPECT_EQ(body.correlation, only(ActivityKind::kCall).correlation);
  EXPECT_EQ(body.graph_node, reinterpret_cast<uint64_t>(node));
  EXPECT_NE(body.graph, 0u);
  EXPECT_CU(cuGraphExecDestroy(exec));
  EXPECT_CU(cuGraphDestroy(graph));
}

// ---- Recordings -------------------------------------------------------------------------------

TEST_F(RecorderTest, OneRecordingAtATime) {
  const ActivitySink nowhere{};
  EXPECT_EQ(table_->start(&nowhere, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(table_->start(nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
  start();
  const ActivitySink other{[](void*, const Activity*, const char*) { FAIL(); }, nullptr};
  const char* why = nullptr;
  EXPECT_EQ(table_->start(&other, &why), CUDA_ERROR_ALREADY_ACQUIRED);
  launch(nullptr, FakeAction::kNothing);
  only(ActivityKind::kKernel);
  EXPECT_CU(table_->stop());
  EXPECT_CU(table_->stop());
  EXPECT_CU(table_->flush());
}

// Work that a recording has not seen end is nobody's, even if the next one does.
TEST_F(RecorderTest, NothingIsToldAfterTheEnd) {
  uint32_t* word = words(1);
  CUstream s = stream();
  launch(s, FakeAction::kNothing);
  start();
  launch(s, FakeAction::kWait, address_of(word), 1);
  EXPECT_CU(table_->stop());
  EXPECT_EQ(told_so_far().size(), 1u);  // the call
  start();
  store(word, 1);
  EXPECT_EQ(told().size(), 1u);
  launch(s, FakeAction::kNothing);
  EXPECT_EQ(told().size(), 3u);
  EXPECT_CU(table_->stop());
  launch(s, FakeAction::kNothing);
  EXPECT_EQ(told().size(), 3u);
}

TEST_F(RecorderTest, WorkIsToldWithoutAFlush) {
  start();
  launch(nullptr, FakeAction::kNothing);
  while (told_so_far().size() < 2) usleep(200);
}

TEST_F(RecorderTest, CallsOfManyThreads) {
  constexpr int kThreads = 4;
  constexpr int kLaunches = 200;
  start();
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      EXPECT_CU(cuCtxSetCurrent(context_));
      CUstream s = stream();
      for (int n = 0; n < kLaunches; ++n) {
        launch(s, FakeAction::kNothing);
        if (n % 16 == 0) {
          EXPECT_CU(table_->flush());
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::set<uint32_t> calls;
  std::set<uint32_t> tids;
  for (const Told& call : told(ActivityKind::kCall)) {
    calls.insert(call.activity.correlation);
    tids.insert(call.activity.thread);
  }
  std::set<uint32_t> kernels;
  for (const Told& kernel : told(ActivityKind::kKernel)) {
    kernels.insert(kernel.activity.correlation);
  }
  EXPECT_EQ(calls.size(), size_t{kThreads} * kLaunches);
  EXPECT_EQ(kernels, calls);
  EXPECT_EQ(tids.size(), size_t{kThreads});
}

TEST_F(RecorderTest, AForkedChildHasNoRecording) {
  uint32_t* word = words(1);
  start();
  launch(nullptr, FakeAction::kWait, address_of(word), 1);
  const pid_t child = fork();
  if (child == 0) {
    const ActivitySink sink{[](void*, const Activity*, const char*) {}, nullptr};
    const char* why = nullptr;
    const bool sound = cuMemsetD8_v2(1, 0, 1) == CUDA_ERROR_NOT_INITIALIZED &&
                       table_->flush() == CUDA_SUCCESS && table_->stop() == CUDA_SUCCESS &&
                       table_->start(&sink, &why) == CUDA_ERROR_NOT_SUPPORTED && why != nullptr;
    exit(sound ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  store(word, 1);
  EXPECT_EQ(told().size(), 2u);
}

TEST_F(RecorderTest, AProcessMayEndDuringARecording) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  uint32_t* word = words(1);
  EXPECT_EXIT(
      {
        start();
        launch(nullptr, FakeAction::kNothing);
        launch(nullptr, FakeAction::kWait, address_of(word), 1);
        exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace openmps::softgpu::testing
