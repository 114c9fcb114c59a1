// SPDX-License-Identifier: Apache-2.0
// What waits for everything queued in a context, and what waits with it (SOFTGPU_LOADING_WAITS), as
// seen on an H200: docs/decisions/0009-quiescence.md.
#include "device_fixture.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "softgpu/device/contexts/context.h"
#include "softgpu/device/driver.h"
#include "softgpu/device/lifetime/start.h"
#include "softgpu/device/schedule/scheduler.h"

namespace openmps::softgpu::testing {
namespace {

// Somebody waits for what was put last into one of the context's streams.
bool somebody_waits(CUcontext context) {
  Driver& driver = *started_driver();
  const std::shared_ptr<ExecutionContext> execution = driver.contexts.find(context)->execution();
  return driver.scheduler.together([&](Submission&) {
    return std::any_of(
        execution->streams.begin(), execution->streams.end(),
        [](const auto& stream) { return stream->tail != nullptr && stream->tail->waiters > 0; });
  });
}

class LoadingTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    word_ = words(2);
    busy_ = stream();
    spare_ = stream();
    ASSERT_CU(cuLibraryLoadData(&library_, kFakeImage, nullptr, nullptr, 0, nullptr, nullptr, 0));
    ASSERT_CU(cuLibraryGetKernel(&kernel_, library_, "run"));
    ASSERT_CU(cuCtxSynchronize());
  }
  void TearDown() override {
    (void)cuLibraryUnload(library_);
    DeviceTest::TearDown();
  }

  // The context is busy until release(); then 1 is written behind it.
  void occupy() {
    launch(busy_, FakeAction::kWait, address_of(word_), 1);
    launch(busy_, FakeAction::kAdd, address_of(word_ + 1), 1);
  }
  void release() { store(word_, 1); }
  [[nodiscard]] bool ended() const { return load(word_ + 1) == 1; }

  // The call, on a thread of its own with `current`, returns after the work of `context` has ended.
  void expect_waits(const char* what, const std::function<CUresult()>& call,
                    CUcontext current = nullptr, CUcontext context = nullptr) {
    SCOPED_TRACE(what);
    if (context == nullptr) context = context_;
    std::atomic<bool> returned{false};
    bool had_ended = false;
    CUresult result = CUDA_ERROR_UNKNOWN;
    std::thread caller([&] {
      EXPECT_CU(cuCtxSetCurrent(current == nullptr ? context_ : current));
      result = call();
      had_ended = ended();
      returned = true;
    });
    while (!returned && !somebody_waits(context)) std::this_thread::yield();
    release();
    caller.join();
    EXPECT_CU(result);
    EXPECT_TRUE(had_ended);
  }

  uint32_t* word_ = nullptr;
  CUstream busy_ = nullptr;
  CUstream spare_ = nullptr;
  CUlibrary library_ = nullptr;
  CUkernel kernel_ = nullptr;
};

// The next stream, or graph, needs a lot that is not there yet; what has been given back is.
TEST_F(LoadingTest, RoomForStreamsAndGraphs) {
  CUgraph graph = nullptr;
  ASSERT_CU(cuGraphCreate(&graph, 0));
  for (int i = 0; i < 2; ++i) {
    CUgraphNode node = nullptr;
    ASSERT_CU(cuGraphAddEmptyNode(&node, graph, nullptr, 0));
  }
  const StreamLots& lots = *started_driver()->contexts.find(context_)->stream_lots;
  std::vector<CUstream> streams;
  const auto fill = [&](uint32_t left) {
    while (lots.left() > left) streams.push_back(stream());
  };
  CUstream made = nullptr;
  CUgraphExec exec = nullptr;
  fill(0);
  occupy();
  expect_waits("cuStreamCreate", [&] { return cuStreamCreate(&made, CU_STREAM_NON_BLOCKING); });
  EXPECT_EQ(lots.left(), StreamLots::kLot - 1);
  fill(1);
  store(word_, 0);
  store(word_ + 1, 0);
  occupy();
  expect_waits("cuGraphInstantiate", [&] { return cuGraphInstantiateWithFlags(&exec, graph, 0); });
  EXPECT_CU(cuGraphExecDestroy(exec));
  store(word_, 0);
  store(word_ + 1, 0);
  occupy();
  EXPECT_CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
  EXPECT_FALSE(ended());
  release();
  EXPECT_CU(cuCtxSynchronize());
  EXPECT_CU(cuGraphExecDestroy(exec));
  EXPECT_CU(cuGraphDestroy(graph));
  EXPECT_CU(cuStreamDestroy_v2(made));
}

TEST_F(LoadingTest, CallsThatWaitForTheContext) {
  CUmodule module = nullptr;
  CUmodule spent = nullptr;
  CUlibrary lazy = nullptr;
  CUmodule fresh = nullptr;
  CUfunction first = nullptr;
  CUfunction second = nullptr;
  CUfunction found = nullptr;
  CUdeviceptr memory = 0;
  std::vector<char> host(4096);
  int value = 0;
  ASSERT_CU(cuModuleLoadData(&spent, kFakeImage));
  ASSERT_CU(cuLibraryLoadData(&lazy, kFakeImage, nullptr, nullptr, 0, nullptr, nullptr, 0));
  ASSERT_CU(cuLibraryGetModule(&fresh, lazy));
  ASSERT_CU(cuModuleGetFunction(&first, fresh, "run"));
  ASSERT_CU(cuModuleGetFunction(&second, fresh, "wide"));
  ASSERT_CU(cuMemAlloc_v2(&memory, 16));
  ASSERT_CU(cuMemHostRegister_v2(host.data(), host.size(), 0));
  const struct {
    const char* name;
    std::function<CUresult()> call;
  } calls[] = {
      {"cuModuleLoadData", [&] { return cuModuleLoadData(&module, kFakeImage); }},
      {"a first launch", [&] { return try_launch(first, spare_, {}); }},
      {"cuFuncLoad", [&] { return cuFuncLoad(second); }},
      {"cuModuleUnload", [&] { return cuModuleUnload(spent); }},
      {"cuMemFree", [&] { return cuMemFree_v2(memory); }},
      {"cuMemHostUnregister", [&] { return cuMemHostUnregister(host.data()); }},
      {"cuLibraryGetModule", [&] { return cuLibraryGetModule(&module, library_); }},
      {"cuKernelGetFunction", [&] { return cuKernelGetFunction(&found, kernel_); }},
      {"cuLibraryUnload", [&] { return cuLibraryUnload(library_); }},
      {"cuFuncGetAttribute of one not loaded",
       [&] {
         CUfunction third = nullptr;
         const CUresult result = cuModuleGetFunction(&third, fresh, "another");
         return result == CUDA_SUCCESS
                    ? cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, third)
                    : result;
       }},
  };
  for (const auto& one : calls) {
    store(word_, 0);
    store(word_ + 1, 0);
    occupy();
    expect_waits(one.name, one.call);
    ASSERT_CU(cuCtxSynchronize());
  }
  EXPECT_CU(cuLibraryUnload(lazy));
}

TEST_F(LoadingTest, AKernelIsLoadedByItsFirstLaunchAndBeforeItsParametersAreShown) {
  CUkernel wide = nullptr;
  ASSERT_CU(cuLibraryGetKernel(&wide, library_, "wide"));
  occupy();
  expect_waits("a first launch",
               [&] { return try_launch(reinterpret_cast<CUfunction>(kernel_), spare_, {}); });
  ASSERT_CU(cuCtxSynchronize());
  store(word_, 0);
  store(word_ + 1, 0);
  occupy();
  size_t offset = 0;
  expect_waits("cuKernelGetParamInfo",
               [&] { return cuKernelGetParamInfo(wide, 1, &offset, nullptr); });
  EXPECT_EQ(offset, 8u);
}

// Whatever it is that has not ended.
TEST_F(LoadingTest, LoadingWaitsForStreamsThatWaitAndForHostFunctions) {
  CUmodule module = nullptr;
  const auto load_module = [&] { return cuModuleLoadData(&module, kFakeImage); };
  ASSERT_CU(cuStreamWaitValue32_v2(busy_, address_of(word_), 1, CU_STREAM_WAIT_VALUE_GEQ));
  ASSERT_CU(cuStreamWriteValue32_v2(busy_, address_of(word_ + 1), 1, 0));
  expect_waits("a wait for a value", load_module);
  ASSERT_CU(cuCtxSynchronize());
  store(word_, 0);
  store(word_ + 1, 0);
  const auto wait = [](void* word) {
    while (load(static_cast<uint32_t*>(word)) == 0) std::this_thread::yield();
  };
  ASSERT_CU(cuLaunchHostFunc(busy_, wait, word_));
  ASSERT_CU(cuStreamWriteValue32_v2(busy_, address_of(word_ + 1), 1, 0));
  expect_waits("a host function", load_module);
}

// All on one thread: what waited would never come back.
TEST_F(LoadingTest, CallsThatDoNotWait) {
  CUfunction here = nullptr;
  ASSERT_CU(cuKernelGetFunction(&here, kernel_));
  CUmodule lazy = nullptr;
  ASSERT_CU(cuLibraryGetModule(&lazy, library_));
  occupy();
  CUlibrary library = nullptr;
  ASSERT_CU(cuLibraryLoadData(&library, kFakeImage, nullptr, nullptr, 0, nullptr, nullptr, 0));
  CUkernel kernel = nullptr;
  EXPECT_CU(cuLibraryGetKernel(&kernel, library, "wide"));
  EXPECT_CU(cuLibraryUnload(library)) << "nothing of it was loaded";
  CUfunction unloaded = nullptr;
  EXPECT_CU(cuModuleGetFunction(&unloaded, lazy, "wide"));
  CUfunctionLoadingState state = CU_FUNCTION_LOADING_STATE_LOADED;
  EXPECT_CU(cuFuncIsLoaded(&state, unloaded));
  EXPECT_EQ(state, CU_FUNCTION_LOADING_STATE_UNLOADED);
  EXPECT_CU(try_launch(function("wide"), spare_, {})) << "of a module that was loaded as a whole";
  EXPECT_CU(cuFuncIsLoaded(&state, here));
  EXPECT_EQ(state, CU_FUNCTION_LOADING_STATE_LOADED);
  EXPECT_CU(cuKernelGetFunction(&here, kernel_));
  EXPECT_CU(cuFuncLoad(here));
  EXPECT_CU(cuFuncSetAttribute(here, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100 << 10));
  EXPECT_CU(try_launch(here, spare_, {}, 1, 32, 100 << 10));
  EXPECT_CU(cuStreamSynchronize(spare_));
  CUdeviceptr memory = 0;
  EXPECT_CU(cuMemAlloc_v2(&memory, 1 << 20));
  CUstream made = stream();
  EXPECT_CU(cuEventRecord(event(), made));
  EXPECT_FALSE(ended());
  release();
}

TEST_F(LoadingTest, LaunchesIntoTheContextWaitWithALoadThoseIntoAnotherDoNot) {
  CUcontext other = nullptr;
  ASSERT_CU(cuCtxCreate_v2(&other, 0, 0));
  CUmodule module = nullptr;
  CUfunction run = nullptr;
  ASSERT_CU(cuModuleLoadData(&module, kFakeImage));
  ASSERT_CU(cuModuleGetFunction(&run, module, "run"));
  CUstream elsewhere = stream();
  ASSERT_CU(cuCtxPopCurrent_v2(&other));

  occupy();
  std::atomic<bool> loaded{false};
  std::atomic<bool> launching{false};
  std::atomic<bool> launched{false};
  bool ended_first = false;
  std::thread loader([&] {
    CUmodule made = nullptr;
    EXPECT_CU(cuCtxSetCurrent(context_));
    EXPECT_CU(cuModuleLoadData(&made, kFakeImage));
    loaded = true;
  });
  while (!loaded && !somebody_waits(context_)) std::this_thread::yield();
  std::thread launcher([&] {
    EXPECT_CU(cuCtxSetCurrent(context_));
    launching = true;
    launch(spare_, FakeAction::kNothing);
    ended_first = ended();
    launched = true;
  });
  while (!launching) std::this_thread::yield();
  // The other context loads, launches and ends its work meanwhile.
  ASSERT_CU(cuCtxPushCurrent_v2(other));
  CUmodule another = nullptr;
  EXPECT_CU(cuModuleLoadData(&another, kFakeImage));
  for (int i = 0; i < 20; ++i) {
    EXPECT_CU(try_launch(run, elsewhere, {}));
    EXPECT_CU(cuStreamSynchronize(elsewhere));
  }
  ASSERT_CU(cuCtxPopCurrent_v2(&other));
  EXPECT_FALSE(loaded);
  EXPECT_FALSE(launched);
  release();
  loader.join();
  launcher.join();
  EXPECT_TRUE(ended_first);
  EXPECT_CU(cuCtxDestroy_v2(other));
}

TEST_F(LoadingTest, UnloadingAModuleHoldsNoLaunchBack) {
  CUmodule spent = nullptr;
  ASSERT_CU(cuModuleLoadData(&spent, kFakeImage));
  occupy();
  std::thread unloader([&] {
    EXPECT_CU(cuCtxSetCurrent(context_));
    EXPECT_CU(cuModuleUnload(spent));
  });
  while (!somebody_waits(context_)) std::this_thread::yield();
  launch(spare_, FakeAction::kNothing);
  EXPECT_CU(cuStreamSynchronize(spare_));
  EXPECT_FALSE(ended());
  release();
  unloader.join();
}

TEST_F(LoadingTest, SettingAKernelsAttributeLoadsItIntoThePrimaryContext) {
  CUcontext primary = nullptr;
  ASSERT_CU(cuDevicePrimaryCtxRetain(&primary, 0));
  ASSERT_CU(cuCtxPushCurrent_v2(primary));
  CUmodule module = nullptr;
  CUfunction run = nullptr;
  ASSERT_CU(cuModuleLoadData(&module, kFakeImage));
  ASSERT_CU(cuModuleGetFunction(&run, module, "run"));
  CUstream in_primary = stream();
  CUcontext popped = nullptr;
  ASSERT_CU(cuCtxPopCurrent_v2(&popped));
  const auto occupy_primary = [&] {
    store(word_, 0);
    store(word_ + 1, 0);
    ASSERT_CU(try_launch(run, in_primary, {FakeAction::kWait, address_of(word_), 1}));
    ASSERT_CU(try_launch(run, in_primary, {FakeAction::kAdd, address_of(word_ + 1), 1}));
  };
  // Loaded in the current context, which is idle.
  CUfunction here = nullptr;
  ASSERT_CU(cuKernelGetFunction(&here, kernel_));
  const auto set = [&] {
    return cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 50, kernel_, 0);
  };
  occupy_primary();
  expect_waits("cuKernelSetAttribute", set, context_, primary);
  ASSERT_CU(cuStreamSynchronize(in_primary));
  // The second time nothing has to be loaded; nor does the function of the current context wait.
  occupy_primary();
  EXPECT_CU(set());
  EXPECT_CU(cuFuncSetAttribute(here, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 20));
  EXPECT_CU(cuFuncSetCacheConfig(here, CU_FUNC_CACHE_PREFER_L1));
  int blocks = 0;
  EXPECT_CU(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, here, 32, 0));
  EXPECT_CU(try_launch(here, spare_, {}));
  EXPECT_CU(cuStreamSynchronize(spare_));
  EXPECT_FALSE(ended());
  release();
  ASSERT_CU(cuStreamSynchronize(in_primary));
  EXPECT_CU(cuDevicePrimaryCtxRelease_v2(0));
}

}  // namespace
}  // namespace openmps::softgpu::testing
