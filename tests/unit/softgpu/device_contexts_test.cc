// SPDX-License-Identifier: Apache-2.0
// Two contexts of one process: what each has for itself, what both reach, how they share the
// device. What is expected is what an H200 did.
#include "device_fixture.h"

#include <vector>

namespace openmps::softgpu::testing {
namespace {

class TwoContextsTest : public DeviceTest {
 protected:
  // The second context, current until leave().
  void SetUp() override {
    DeviceTest::SetUp();
    ASSERT_CU(cuCtxCreate_v2(&second_, 0, 0));
    ASSERT_CU(cuModuleLoadData(&second_module_, kFakeImage));
    ASSERT_CU(cuModuleGetFunction(&second_run_, second_module_, "run"));
    second_stream_ = stream();
    ASSERT_CU(cuCtxSetCurrent(context_));
    run_ = function("run");
    stream_ = stream();
  }
  void TearDown() override {
    CUcontext lower = nullptr;
    EXPECT_CU(cuCtxPopCurrent_v2(&lower));
    EXPECT_CU(cuCtxDestroy_v2(second_));
    DeviceTest::TearDown();
  }

  // The body runs with the second context current.
  template <typename Body>
  void in_second(Body&& body) {
    ASSERT_CU(cuCtxPushCurrent_v2(second_));
    body();
    CUcontext popped = nullptr;
    ASSERT_CU(cuCtxPopCurrent_v2(&popped));
  }
  void run_in_second(FakeAction action, uint64_t address = 0, uint64_t value = 0,
                     unsigned blocks = 1) {
    ASSERT_CU(try_launch(second_run_, second_stream_, {action, address, value}, blocks));
  }

  CUcontext second_ = nullptr;
  CUmodule second_module_ = nullptr;
  CUfunction second_run_ = nullptr;
  CUstream second_stream_ = nullptr;
  CUfunction run_ = nullptr;
  CUstream stream_ = nullptr;
};

TEST_F(TwoContextsTest, AFunctionOfOneDoesNotGoIntoAStreamOfTheOther) {
  EXPECT_EQ(try_launch(second_run_, stream_, {}), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(try_launch(run_, second_stream_, {}), CUDA_ERROR_INVALID_HANDLE);
  // Which context is current does not matter.
  EXPECT_CU(try_launch(second_run_, second_stream_, {}));
  EXPECT_CU(cuStreamSynchronize(second_stream_));
}

TEST_F(TwoContextsTest, VariablesAreReachedByKernelsAndCopiesButNotByFills) {
  CUdeviceptr mine = 0;
  CUdeviceptr theirs = 0;
  size_t bytes = 0;
  ASSERT_CU(cuModuleGetGlobal_v2(&mine, &bytes, module_, "counter"));
  in_second([&] {
    ASSERT_CU(cuModuleGetGlobal_v2(&theirs, &bytes, second_module_, "counter"));
    ASSERT_CU(cuMemsetD32_v2(theirs, 40, 1));
    ASSERT_CU(cuCtxSynchronize());
  });
  EXPECT_NE(mine, theirs);
  launch(stream_, FakeAction::kAdd, theirs, 2);
  uint32_t value = 0;
  ASSERT_CU(cuMemcpyDtoHAsync_v2(&value, theirs, 4, stream_));
  ASSERT_CU(cuStreamSynchronize(stream_));
  EXPECT_EQ(value, 42u);
  EXPECT_EQ(cuMemsetD32Async(theirs, 1, 1, stream_), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemsetD8_v2(theirs, 1, 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CU(cuMemsetD32Async(mine, 1, 1, stream_));
  // The stream decides, not the current context.
  EXPECT_CU(cuMemsetD32Async(theirs, 7, 1, second_stream_));
  EXPECT_CU(cuStreamSynchronize(second_stream_));
  value = 8;
  ASSERT_CU(cuMemcpyHtoDAsync_v2(theirs, &value, 4, stream_));
  ASSERT_CU(cuStreamSynchronize(stream_));
  in_second([&] {
    ASSERT_CU(cuMemcpyDtoH_v2(&value, theirs, 4));
    EXPECT_EQ(value, 8u);
  });
}

TEST_F(TwoContextsTest, TextureAndSurfaceObjectsAreEachContextsOwn) {
  const CUDA_ARRAY3D_DESCRIPTOR shape{.Width = 4,
                                      .Height = 0,
                                      .Depth = 0,
                                      .Format = CU_AD_FORMAT_UNSIGNED_INT32,
                                      .NumChannels = 1,
                                      .Flags = CUDA_ARRAY3D_SURFACE_LDST};
  CUarray array = nullptr;
  ASSERT_CU(cuArray3DCreate_v2(&array, &shape));
  CUDA_RESOURCE_DESC resource{};
  resource.resType = CU_RESOURCE_TYPE_ARRAY;
  resource.res.array.hArray = array;
  CUDA_TEXTURE_DESC description{};
  description.flags = CU_TRSF_READ_AS_INTEGER;
  CUtexObject texture = 0;
  CUsurfObject surface = 0;
  ASSERT_CU(cuTexObjectCreate(&texture, &resource, &description, nullptr));
  ASSERT_CU(cuSurfObjectCreate(&surface, &resource));
  uint32_t* found = words(4);
  launch(stream_, FakeAction::kTexture, address_of(found), texture);
  launch(stream_, FakeAction::kSurface, address_of(found + 1), surface);
  run_in_second(FakeAction::kTexture, address_of(found + 2), texture);
  run_in_second(FakeAction::kSurface, address_of(found + 3), surface);
  EXPECT_CU(cuStreamSynchronize(stream_));
  EXPECT_CU(cuStreamSynchronize(second_stream_));
  EXPECT_EQ(std::vector<uint32_t>(found, found + 4), (std::vector<uint32_t>{1, 1, 0, 0}));
}

TEST_F(TwoContextsTest, PrintingIsShownWhereItsContextIsSynchronised) {
  run_in_second(FakeAction::kPrint);
  // Without looking at the output yet.
  CUevent printed = nullptr;
  in_second([&] { printed = event(); });
  ASSERT_CU(cuEventRecord(printed, second_stream_));
  ASSERT_CU(cuStreamWaitEvent(stream_, printed, 0));
  ::testing::internal::CaptureStdout();
  EXPECT_CU(cuCtxSynchronize());
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
  ::testing::internal::CaptureStdout();
  in_second([] { EXPECT_CU(cuCtxSynchronize()); });
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "hello\n");
}

TEST_F(TwoContextsTest, EachHasAHeap) {
  constexpr uint64_t kHeap = 4 << 20;  // the least there is
  ASSERT_CU(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, kHeap));
  in_second([] { ASSERT_CU(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, kHeap)); });
  uint32_t* given = words(2);
  launch(stream_, FakeAction::kAllocate, address_of(given), kHeap);
  launch(stream_, FakeAction::kAllocate, address_of(given), 16);  // nothing is left
  run_in_second(FakeAction::kAllocate, address_of(given + 1), kHeap);
  EXPECT_CU(cuStreamSynchronize(stream_));
  EXPECT_CU(cuStreamSynchronize(second_stream_));
  EXPECT_EQ(load(given), 1u);
  EXPECT_EQ(load(given + 1), 1u);
}

TEST_F(TwoContextsTest, MappedAndRegisteredMemoryIsThereInBoth) {
  constexpr size_t kBytes = 2 << 20;  // the granularity of an H200
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemGenericAllocationHandle physical = 0;
  CUdeviceptr mapped = 0;
  ASSERT_CU(cuMemCreate(&physical, kBytes, &properties, 0));
  ASSERT_CU(cuMemAddressReserve(&mapped, kBytes, 0, 0, 0));
  ASSERT_CU(cuMemMap(mapped, kBytes, 0, physical, 0));
  CUmemAccessDesc access{};
  access.location = properties.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  ASSERT_CU(cuMemSetAccess(mapped, kBytes, &access, 1));
  std::vector<uint32_t> registered(16);
  ASSERT_CU(cuMemHostRegister_v2(registered.data(), registered.size() * sizeof(uint32_t), 0));

  ASSERT_CU(cuMemsetD32Async(mapped, 1, 1, second_stream_));
  run_in_second(FakeAction::kAdd, mapped, 2);
  run_in_second(FakeAction::kAdd, address_of(registered.data()), 5);
  EXPECT_CU(cuStreamSynchronize(second_stream_));
  launch(stream_, FakeAction::kAdd, mapped, 4);
  launch(stream_, FakeAction::kAdd, address_of(registered.data()), 6);
  uint32_t value = 0;
  ASSERT_CU(cuMemcpyDtoHAsync_v2(&value, mapped, 4, stream_));
  EXPECT_CU(cuStreamSynchronize(stream_));
  EXPECT_EQ(value, 7u);
  EXPECT_EQ(registered[0], 11u);
  EXPECT_CU(cuMemHostUnregister(registered.data()));
  EXPECT_CU(cuMemUnmap(mapped, kBytes));
  EXPECT_CU(cuMemRelease(physical));
  EXPECT_CU(cuMemAddressFree(mapped, kBytes));
}

TEST_F(TwoContextsTest, EventsOrderStreamsOfBoth) {
  uint32_t* word = words(3);
  launch(stream_, FakeAction::kWait, address_of(word), 1);
  launch(stream_, FakeAction::kAdd, address_of(word + 1), 1);
  CUevent first = event(CU_EVENT_DISABLE_TIMING);
  ASSERT_CU(cuEventRecord(first, stream_));
  // There and back.
  CUevent there = nullptr;
  in_second([&] { there = event(CU_EVENT_DISABLE_TIMING); });
  EXPECT_EQ(cuEventRecord(there, stream_), CUDA_ERROR_INVALID_HANDLE);
  ASSERT_CU(cuStreamWaitEvent(second_stream_, first, 0));
  run_in_second(FakeAction::kWait, address_of(word + 1), 1);
  run_in_second(FakeAction::kAdd, address_of(word + 1), 1);
  ASSERT_CU(cuEventRecord(there, second_stream_));
  CUstream last = stream();
  ASSERT_CU(cuStreamWaitEvent(last, there, 0));
  ASSERT_CU(cuMemcpyDtoDAsync_v2(address_of(word + 2), address_of(word + 1), 4, last));
  EXPECT_EQ(cuStreamQuery(last), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(cuEventQuery(there), CUDA_ERROR_NOT_READY);
  store(word, 1);
  EXPECT_CU(cuStreamSynchronize(last));
  EXPECT_EQ(load(word + 2), 2u);
}

TEST_F(TwoContextsTest, AGraphRunsKernelsOfBoth) {
  CUgraph graph = nullptr;
  ASSERT_CU(cuGraphCreate(&graph, 0));
  uint32_t* word = words(2);
  FakeParameters parameters[] = {{FakeAction::kWait, address_of(word), 1},
                                 {FakeAction::kAdd, address_of(word), 1},
                                 {FakeAction::kWait, address_of(word), 2},
                                 {FakeAction::kPrint, 0, 0}};
  CUfunction functions[] = {second_run_, run_, second_run_, second_run_};
  CUgraphNode before = nullptr;
  for (size_t i = 0; i < 4; ++i) {
    void* pointers[] = {&parameters[i].action, &parameters[i].address, &parameters[i].value};
    CUDA_KERNEL_NODE_PARAMS node{};
    node.func = functions[i];
    node.gridDimX = node.gridDimY = node.gridDimZ = 1;
    node.blockDimX = 32;
    node.blockDimY = node.blockDimZ = 1;
    node.kernelParams = pointers;
    CUgraphNode added = nullptr;
    ASSERT_CU(cuGraphAddKernelNode_v2(&added, graph, &before, i == 0 ? 0 : 1, &node));
    before = added;
  }
  CUgraphExec exec = nullptr;
  ASSERT_CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
  ASSERT_CU(cuGraphLaunch(exec, stream_));
  EXPECT_EQ(cuStreamQuery(stream_), CUDA_ERROR_NOT_READY);
  store(word, 1);
  EXPECT_CU(cuStreamSynchronize(stream_));
  EXPECT_EQ(load(word), 2u);
  ::testing::internal::CaptureStdout();
  in_second([] { EXPECT_CU(cuCtxSynchronize()); });
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "hello\n") << "printed by its own context";
  // Loading in the second context waits for such a kernel.
  ASSERT_CU(cuMemsetD32_v2(address_of(word), 1, 2));
  ASSERT_CU(cuCtxSynchronize());
  ASSERT_CU(cuGraphLaunch(exec, stream_));
  in_second([&] {
    CUmodule module = nullptr;
    EXPECT_CU(cuModuleLoadData(&module, kFakeImage));
    EXPECT_EQ(load(word), 2u);
  });
  EXPECT_CU(cuStreamSynchronize(stream_));
  EXPECT_CU(cuGraphExecDestroy(exec));
  EXPECT_CU(cuGraphDestroy(graph));
}

TEST_F(TwoContextsTest, AGraphOfADestroyedContextIsRefused) {
  CUcontext third = nullptr;
  CUmodule module = nullptr;
  CUfunction gone = nullptr;
  ASSERT_CU(cuCtxCreate_v2(&third, 0, 0));
  ASSERT_CU(cuModuleLoadData(&module, kFakeImage));
  ASSERT_CU(cuModuleGetFunction(&gone, module, "run"));
  FakeParameters parameters;
  void* pointers[] = {&parameters.action, &parameters.address, &parameters.value};
  CUDA_KERNEL_NODE_PARAMS node{};
  node.func = gone;
  node.gridDimX = node.gridDimY = node.gridDimZ = 1;
  node.blockDimX = node.blockDimY = node.blockDimZ = 1;
  node.kernelParams = pointers;
  CUgraph graph = nullptr;
  CUgraphNode added = nullptr;
  CUgraphExec exec = nullptr;
  ASSERT_CU(cuGraphCreate(&graph, 0));
  ASSERT_CU(cuGraphAddKernelNode_v2(&added, graph, nullptr, 0, &node));
  ASSERT_CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
  ASSERT_CU(cuCtxDestroy_v2(third));
  EXPECT_EQ(cuGraphLaunch(exec, stream_), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_CU(cuGraphExecDestroy(exec));
  EXPECT_CU(cuGraphDestroy(graph));
}

TEST_F(TwoContextsTest, AnEndlessKernelOfOneLeavesTheOtherItsTurns) {
  uint32_t* word = words(3);
  // Every place of the device is taken, with more in line.
  launch(stream_, FakeAction::kWait, address_of(word), 1, 2 * kSms * kBlocksPerSm);
  for (uint32_t round = 1; round <= 3; ++round) {
    run_in_second(FakeAction::kAdd, address_of(word + 1), 1, kSms * kBlocksPerSm);
    EXPECT_CU(cuStreamSynchronize(second_stream_));
    EXPECT_EQ(load(word + 1), round * kSms * kBlocksPerSm);
  }
  EXPECT_EQ(cuStreamQuery(stream_), CUDA_ERROR_NOT_READY);
  // Two endless ones: both go on when they may.
  run_in_second(FakeAction::kWait, address_of(word + 2), 1, kSms * kBlocksPerSm);
  store(word, 1);
  EXPECT_CU(cuStreamSynchronize(stream_));
  EXPECT_EQ(cuStreamQuery(second_stream_), CUDA_ERROR_NOT_READY);
  store(word + 2, 1);
  EXPECT_CU(cuStreamSynchronize(second_stream_));
}

TEST_F(TwoContextsTest, AFaultInOneEndsBoth) {
  uint32_t* word = words(1);
  launch(stream_, FakeAction::kWait, address_of(word), 1);
  CUstream waiting = stream();
  ASSERT_CU(cuStreamWaitValue32_v2(waiting, address_of(word), 1, CU_STREAM_WAIT_VALUE_GEQ));
  run_in_second(FakeAction::kFault, 0, CUDA_ERROR_ASSERT);
  // What would never end has ended, with the other's error.
  EXPECT_EQ(cuStreamSynchronize(stream_), CUDA_ERROR_ASSERT);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_ASSERT);
  EXPECT_EQ(try_launch(run_, stream_, {}), CUDA_ERROR_ASSERT);
  in_second([] {
    CUdeviceptr address = 0;
    EXPECT_EQ(cuMemAlloc_v2(&address, 16), CUDA_ERROR_ASSERT);
  });
}

TEST_F(TwoContextsTest, SettingsOfAFunctionAreItsContextsOwnThoseOfAKernelAreNot) {
  constexpr auto kMost = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  ASSERT_CU(cuLibraryLoadData(&library, kFakeImage, nullptr, nullptr, 0, nullptr, nullptr, 0));
  ASSERT_CU(cuLibraryGetKernel(&kernel, library, "run"));
  CUfunction here = nullptr;
  CUfunction there = nullptr;
  ASSERT_CU(cuKernelGetFunction(&here, kernel));
  in_second([&] { ASSERT_CU(cuKernelGetFunction(&there, kernel)); });
  ASSERT_NE(here, there);
  const auto limit = [](CUfunction function) {
    int value = 0;
    EXPECT_CU(cuFuncGetAttribute(&value, kMost, function));
    return value >> 10;
  };
  ASSERT_CU(cuFuncSetAttribute(there, kMost, 100 << 10));
  EXPECT_EQ(limit(there), 100);
  EXPECT_EQ(limit(here), 48);
  // Looking it up again does not set it back.
  in_second([&] { ASSERT_CU(cuKernelGetFunction(&there, kernel)); });
  EXPECT_EQ(limit(there), 100);
  ASSERT_CU(cuKernelSetAttribute(kMost, 64 << 10, kernel, 0));
  EXPECT_EQ(limit(there), 64);
  EXPECT_EQ(limit(here), 64);
  EXPECT_CU(cuLibraryUnload(library));
}

}  // namespace
}  // namespace openmps::softgpu::testing
