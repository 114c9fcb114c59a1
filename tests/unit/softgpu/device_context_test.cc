// SPDX-License-Identifier: Apache-2.0
// Contexts: stack, primary context, sticky errors, limits; and what a forked child may do.
#include "device_fixture.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

namespace openmps::softgpu::testing {
namespace {

using ContextTest = DeviceTest;

TEST_F(ContextTest, StackOfCurrentContexts) {
  CUcontext second = nullptr;
  CUcontext current = nullptr;
  ASSERT_CU(cuCtxCreate_v4(&second, nullptr, 0, 0));
  EXPECT_CU(cuCtxGetCurrent(&current));
  EXPECT_EQ(current, second);
  EXPECT_CU(cuCtxPopCurrent_v2(&current));
  EXPECT_EQ(current, second);
  EXPECT_CU(cuCtxGetCurrent(&current));
  EXPECT_EQ(current, context_);
  EXPECT_CU(cuCtxDestroy_v2(second));
  EXPECT_EQ(cuCtxPushCurrent_v2(second), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cuCtxDestroy_v2(second), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_CU(cuCtxSetCurrent(nullptr));
  CUdevice device = 0;
  EXPECT_EQ(cuCtxGetDevice(&device), CUDA_ERROR_INVALID_CONTEXT);
  CUdeviceptr address = 0;
  EXPECT_EQ(cuMemAlloc_v2(&address, 16), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_CU(cuCtxSetCurrent(context_));
}

TEST_F(ContextTest, PrimaryContextIsCountedAndStable) {
  unsigned flags = 0;
  int active = 1;
  EXPECT_CU(cuDevicePrimaryCtxGetState(0, &flags, &active));
  EXPECT_EQ(active, 0);
  EXPECT_EQ(cuDevicePrimaryCtxRelease_v2(0), CUDA_ERROR_INVALID_CONTEXT);
  CUcontext first = nullptr;
  CUcontext second = nullptr;
  ASSERT_CU(cuDevicePrimaryCtxRetain(&first, 0));
  ASSERT_CU(cuDevicePrimaryCtxRetain(&second, 0));
  EXPECT_EQ(first, second);
  EXPECT_EQ(cuCtxDestroy_v2(first), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_CU(cuDevicePrimaryCtxRelease_v2(0));
  EXPECT_CU(cuDevicePrimaryCtxGetState(0, &flags, &active));
  EXPECT_EQ(active, 1);
  ASSERT_CU(cuCtxPushCurrent_v2(first));
  EXPECT_CU(cuCtxSynchronize());
  EXPECT_CU(cuDevicePrimaryCtxRelease_v2(0));
  EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  ASSERT_CU(cuDevicePrimaryCtxRetain(&second, 0));
  EXPECT_EQ(first, second);  // the handle is valid again
  EXPECT_CU(cuCtxSynchronize());
  EXPECT_CU(cuDevicePrimaryCtxReset_v2(0));
  EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_CU(cuDevicePrimaryCtxRelease_v2(0));  // the reference outlives the reset
  EXPECT_EQ(cuDevicePrimaryCtxRelease_v2(0), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_CU(cuCtxPopCurrent_v2(&first));
}

TEST_F(ContextTest, AFaultSticksUntilTheContextIsDestroyed) {
  CUcontext other = nullptr;
  ASSERT_CU(cuCtxCreate_v2(&other, 0, 0));
  CUmodule module = nullptr;
  ASSERT_CU(cuModuleLoadData(&module, kFakeImage));
  CUfunction run = nullptr;
  ASSERT_CU(cuModuleGetFunction(&run, module, "run"));
  CUevent done = event();
  CUstream queued = stream();
  uint32_t* word = words(1);
  // Everything is queued before anything can fail.
  ASSERT_CU(try_launch(run, queued, {FakeAction::kWait, address_of(word), 1}));
  ASSERT_CU(try_launch(run, queued, {FakeAction::kAdd, 0x1000, 1}));
  ASSERT_CU(cuEventRecord(done, queued));
  store(word, 1);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
  CUdeviceptr address = 0;
  EXPECT_EQ(cuMemAlloc_v2(&address, 16), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(cuEventQuery(done), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(try_launch(run, nullptr, {}), CUDA_ERROR_ILLEGAL_ADDRESS);
  CUcontext popped = nullptr;
  EXPECT_CU(cuCtxPopCurrent_v2(&popped));
  EXPECT_CU(cuCtxDestroy_v2(other));
}

TEST_F(ContextTest, AFaultEndsKernelsThatWouldNeverEnd) {
  uint32_t* word = words(1);
  launch(stream(), FakeAction::kWait, address_of(word), 1, 3);
  CUstream faulty = stream();
  launch(faulty, FakeAction::kFault, 0, CUDA_ERROR_ASSERT);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_ASSERT);
}

TEST_F(ContextTest, LimitsAndFlags) {
  size_t value = 0;
  EXPECT_CU(cuCtxGetLimit(&value, CU_LIMIT_STACK_SIZE));
  EXPECT_EQ(value, 1024u);
  // What is granted is what can be had: whole units, with a least size.
  const struct {
    CUlimit limit;
    size_t wish;
    size_t granted;
  } wishes[] = {{CU_LIMIT_PRINTF_FIFO_SIZE, 1 << 16, 512 << 10},
                {CU_LIMIT_PRINTF_FIFO_SIZE, (2 << 20) + 1, (2 << 20) + 256},
                {CU_LIMIT_MALLOC_HEAP_SIZE, 1, 4 << 20},
                {CU_LIMIT_MALLOC_HEAP_SIZE, (8 << 20) + 1, (8 << 20) + (64 << 10)},
                {CU_LIMIT_STACK_SIZE, 1025, 1040}};
  for (const auto& one : wishes) {
    EXPECT_CU(cuCtxSetLimit(one.limit, one.wish));
    EXPECT_CU(cuCtxGetLimit(&value, one.limit));
    EXPECT_EQ(value, one.granted) << one.limit << " " << one.wish;
  }
  EXPECT_EQ(cuCtxSetLimit(CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH, 4), CUDA_ERROR_UNSUPPORTED_LIMIT);
  EXPECT_EQ(cuCtxGetLimit(&value, CU_LIMIT_MAX), CUDA_ERROR_INVALID_VALUE);
  CUcontext unused = nullptr;
  EXPECT_EQ(cuCtxCreate_v2(&unused, 0x1000, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuCtxCreate_v2(&unused, 3, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuCtxCreate_v2(&unused, 0, 99), CUDA_ERROR_INVALID_DEVICE);
  unsigned version = 0;
  EXPECT_CU(cuCtxGetApiVersion(context_, &version));
  EXPECT_EQ(version, 13000u);
}

TEST_F(ContextTest, DeviceFacts) {
  int value = 0;
  EXPECT_CU(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
  EXPECT_EQ(value, kSms);
  EXPECT_CU(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0));
  EXPECT_EQ(value, 9);
  EXPECT_CU(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 0));
  EXPECT_EQ(value, 1);
  EXPECT_EQ(cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(9999), 0),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, kDevices),
            CUDA_ERROR_INVALID_DEVICE);
  CUdevice device = 0;
  EXPECT_EQ(cuDeviceGet(&device, -1), CUDA_ERROR_INVALID_DEVICE);
  char bus[16] = "";
  EXPECT_CU(cuDeviceGetPCIBusId(bus, sizeof bus, 0));
  EXPECT_CU(cuDeviceGetByPCIBusId(&device, bus));
  EXPECT_EQ(device, 0);
}

// A part of the cache can be set aside, and no more than that.
TEST_F(ContextTest, PersistingCache) {
  int cache = 0, most = 0;
  EXPECT_CU(cuDeviceGetAttribute(&cache, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 0));
  EXPECT_CU(cuDeviceGetAttribute(&most, CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE, 0));
  EXPECT_GT(most, 0);
  EXPECT_LT(most, cache);
  size_t aside = 0;
  EXPECT_CU(cuCtxSetLimit(CU_LIMIT_PERSISTING_L2_CACHE_SIZE, static_cast<size_t>(most)));
  EXPECT_CU(cuCtxGetLimit(&aside, CU_LIMIT_PERSISTING_L2_CACHE_SIZE));
  EXPECT_EQ(aside, static_cast<size_t>(most));
  EXPECT_CU(cuCtxResetPersistingL2Cache());
}

TEST_F(ContextTest, ProcAddressGivesVersionedEntries) {
  void* entry = nullptr;
  CUdriverProcAddressQueryResult why{};
  EXPECT_CU(cuGetProcAddress_v2("cuMemAlloc", &entry, 13000, 0, &why));
  EXPECT_EQ(entry, reinterpret_cast<void*>(&cuMemAlloc_v2));
  EXPECT_CU(cuGetProcAddress_v2("cuMemcpyHtoDAsync", &entry, 13000,
                                CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &why));
  EXPECT_EQ(entry, reinterpret_cast<void*>(&cuMemcpyHtoDAsync_v2_ptsz));
  EXPECT_CU(cuGetProcAddress_v2("cuNoSuchThing", &entry, 13000, 0, &why));
  EXPECT_EQ(entry, nullptr);
  EXPECT_EQ(why, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  EXPECT_EQ(cuGetProcAddress("cuNoSuchThing", &entry, 13000, 0), CUDA_ERROR_NOT_FOUND);
}

TEST_F(ContextTest, AForkedChildIsRefusedAndHurtsNobody) {
  uint32_t* word = words(1);
  pid_t child = fork();
  if (child == 0) {
    int count = 0;
    bool refused = cuDeviceGetCount(&count) == CUDA_ERROR_NOT_INITIALIZED &&
                   cuInit(0) == CUDA_ERROR_NOT_INITIALIZED &&
                   cuCtxSynchronize() == CUDA_ERROR_NOT_INITIALIZED;
    exit(refused ? 0 : 1);  // with its exit handlers, which must leave the parent's device alone
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  launch(nullptr, FakeAction::kAdd, address_of(word), 1);
  EXPECT_CU(cuCtxSynchronize());
  EXPECT_EQ(load(word), 1u);
}

TEST_F(ContextTest, ErrorTexts) {
  const char* text = nullptr;
  EXPECT_CU(cuGetErrorName(CUDA_ERROR_ILLEGAL_ADDRESS, &text));
  EXPECT_STREQ(text, "CUDA_ERROR_ILLEGAL_ADDRESS");
  EXPECT_EQ(cuGetErrorString(static_cast<CUresult>(12345), &text), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuInit(77), CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace openmps::softgpu::testing
