// SPDX-License-Identifier: Apache-2.0
// Allocation, accounting, registration and pointer facts.
#include "device_fixture.h"

#include <sys/mman.h>

namespace openmps::softgpu::testing {
namespace {

class MemoryTest : public DeviceTest {
 protected:
  static size_t free_bytes() {
    size_t free = 0;
    size_t total = 0;
    EXPECT_CU(cuMemGetInfo_v2(&free, &total));
    EXPECT_EQ(total, 256u << 20);
    return free;
  }
};

TEST_F(MemoryTest, AllocationsAreAlignedCountedAndReturned) {
  size_t before = free_bytes();
  CUdeviceptr address = 0;
  ASSERT_CU(cuMemAlloc_v2(&address, 1000));
  EXPECT_EQ(address % 512, 0u);
  EXPECT_EQ(free_bytes(), before - 1024);
  CUdeviceptr base = 0;
  size_t size = 0;
  EXPECT_CU(cuMemGetAddressRange_v2(&base, &size, address + 999));
  EXPECT_EQ(base, address);
  EXPECT_EQ(size, 1000u);
  EXPECT_EQ(cuMemFree_v2(address + 512), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CU(cuMemFree_v2(address));
  EXPECT_EQ(free_bytes(), before);
  EXPECT_EQ(cuMemFree_v2(address), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CU(cuMemFree_v2(0));
  EXPECT_EQ(cuMemAlloc_v2(&address, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAlloc_v2(nullptr, 16), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(MemoryTest, TheDeviceIsAsLargeAsItSays) {
  CUdeviceptr address = 0;
  EXPECT_EQ(cuMemAlloc_v2(&address, 257u << 20), CUDA_ERROR_OUT_OF_MEMORY);
  size_t all = free_bytes();
  ASSERT_CU(cuMemAlloc_v2(&address, all));
  EXPECT_EQ(free_bytes(), 0u);
  CUdeviceptr more = 0;
  EXPECT_EQ(cuMemAlloc_v2(&more, 1), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_CU(cuMemFree_v2(address));
  EXPECT_EQ(free_bytes(), all);
}

TEST_F(MemoryTest, FreeWaitsForTheContext) {
  uint32_t* word = words(2);
  CUdeviceptr address = 0;
  ASSERT_CU(cuMemAlloc_v2(&address, 4096));
  CUstream s = stream();
  launch(s, FakeAction::kWait, address_of(&word[0]), 1);
  EXPECT_CU(cuMemsetD8Async(address, 1, 4096, s));
  EXPECT_CU(cuLaunchHostFunc(
      stream(), [](void* data) { store(static_cast<uint32_t*>(data), 1); }, word));
  EXPECT_CU(cuMemFree_v2(address));
  EXPECT_CU(cuStreamQuery(s));
}

TEST_F(MemoryTest, StreamOrderedFreeHappensInTheStream) {
  uint32_t* word = words(1);
  size_t before = free_bytes();
  CUstream s = stream();
  CUdeviceptr address = 0;
  ASSERT_CU(cuMemAllocAsync(&address, 4096, s));
  EXPECT_EQ(free_bytes(), before - 4096);
  launch(s, FakeAction::kWait, address_of(word), 1);
  EXPECT_CU(cuMemsetD8Async(address, 1, 4096, s));
  EXPECT_CU(cuMemFreeAsync(address, s));
  EXPECT_EQ(free_bytes(), before - 4096);
  store(word, 1);
  EXPECT_CU(cuStreamSynchronize(s));
  EXPECT_EQ(free_bytes(), before);
  EXPECT_EQ(cuMemFreeAsync(address, s), CUDA_ERROR_INVALID_VALUE);
}

// Where the thread has no context a stream that the program made says which is meant.
TEST_F(MemoryTest, StreamsNameTheirContext) {
  CUstream s = stream();
  CUmemoryPool pool = nullptr;
  CUevent event = nullptr;
  ASSERT_CU(cuDeviceGetDefaultMemPool(&pool, 0));
  ASSERT_CU(cuEventCreate(&event, CU_EVENT_DEFAULT));
  CUcontext context = nullptr;
  ASSERT_CU(cuCtxPopCurrent_v2(&context));
  CUdeviceptr address = 0, other = 0;
  EXPECT_CU(cuMemAllocAsync(&address, 4096, s));
  EXPECT_CU(cuMemAllocFromPoolAsync(&other, 4096, pool, s));
  EXPECT_CU(cuMemsetD8Async(address, 1, 4096, s));
  EXPECT_CU(cuMemcpyAsync(other, address, 4096, s));
  EXPECT_CU(cuEventRecord(event, s));
  EXPECT_CU(cuStreamWaitEvent(s, event, 0));
  EXPECT_CU(cuEventSynchronize(event));
  EXPECT_CU(cuEventQuery(event));
  EXPECT_CU(cuMemFreeAsync(address, s));
  EXPECT_CU(cuStreamSynchronize(s));
  EXPECT_CU(cuMemFree_v2(other));
  EXPECT_CU(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
  CUgraph graph = nullptr;
  EXPECT_CU(cuStreamEndCapture(s, &graph));
  EXPECT_CU(cuGraphDestroy(graph));
  EXPECT_EQ(cuMemAllocAsync(&address, 4096, nullptr), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cuMemAllocFromPoolAsync(&address, 4096, pool, CU_STREAM_PER_THREAD),
            CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cuMemFreeAsync(address, CU_STREAM_LEGACY), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cuEventRecord(event, nullptr), CUDA_ERROR_INVALID_CONTEXT);
  ASSERT_CU(cuCtxPushCurrent_v2(context));
  EXPECT_CU(cuEventDestroy_v2(event));
}

TEST_F(MemoryTest, PitchedRowsAreAligned) {
  CUdeviceptr address = 0;
  size_t pitch = 0;
  ASSERT_CU(cuMemAllocPitch_v2(&address, &pitch, 100, 10, 4));
  EXPECT_EQ(pitch, 512u);
  EXPECT_CU(cuMemFree_v2(address));
  EXPECT_EQ(cuMemAllocPitch_v2(&address, &pitch, 100, 10, 3), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(MemoryTest, PinnedMemoryIsReachedByKernels) {
  void* host = nullptr;
  ASSERT_CU(cuMemHostAlloc(&host, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
  CUdeviceptr device = 0;
  EXPECT_CU(cuMemHostGetDevicePointer_v2(&device, host, 0));
  EXPECT_EQ(device, reinterpret_cast<uint64_t>(host));
  auto* word = static_cast<uint32_t*>(host);
  store(word, 40);
  launch(nullptr, FakeAction::kAdd, device, 2);
  EXPECT_CU(cuCtxSynchronize());
  EXPECT_EQ(load(word), 42u);
  unsigned type = 0;
  EXPECT_CU(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, device));
  EXPECT_EQ(type, static_cast<unsigned>(CU_MEMORYTYPE_HOST));
  EXPECT_EQ(cuMemFree_v2(device), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CU(cuMemFreeHost(host));
  EXPECT_EQ(cuMemFreeHost(host), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(MemoryTest, RegistrationMakesOrdinaryMemoryReachable) {
  alignas(64) static uint32_t buffer[1024];
  auto address = reinterpret_cast<uint64_t>(buffer);
  store(buffer, 0);
  EXPECT_CU(cuMemHostRegister_v2(buffer, sizeof buffer, CU_MEMHOSTREGISTER_PORTABLE));
  EXPECT_EQ(cuMemHostRegister_v2(buffer + 1, 8, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  launch(nullptr, FakeAction::kAdd, address, 5);
  EXPECT_CU(cuCtxSynchronize());
  EXPECT_EQ(load(buffer), 5u);
  EXPECT_CU(cuMemHostUnregister(buffer));
  EXPECT_EQ(cuMemHostUnregister(buffer), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  launch(nullptr, FakeAction::kAdd, address, 5);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_F(MemoryTest, MemoryThatDoesNotExistIsNotRegistered) {
  void* gone = mmap(nullptr, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  munmap(gone, 8192);
  EXPECT_EQ(cuMemHostRegister_v2(gone, 8192, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemHostRegister_v2(nullptr, 8192, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(MemoryTest, PointerFacts) {
  CUdeviceptr address = 0;
  ASSERT_CU(cuMemAlloc_v2(&address, 4096));
  unsigned type = 0;
  int ordinal = -1;
  CUcontext owner = nullptr;
  CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                      CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                      CU_POINTER_ATTRIBUTE_CONTEXT};
  void* data[] = {&type, &ordinal, &owner};
  EXPECT_CU(cuPointerGetAttributes(3, attributes, data, address + 5));
  EXPECT_EQ(type, static_cast<unsigned>(CU_MEMORYTYPE_DEVICE));
  EXPECT_EQ(ordinal, 0);
  EXPECT_EQ(owner, context_);
  int local = 0;
  EXPECT_CU(cuPointerGetAttributes(3, attributes, data, reinterpret_cast<uint64_t>(&local)));
  EXPECT_EQ(type, 0u);
  EXPECT_EQ(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                  reinterpret_cast<uint64_t>(&local)),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(MemoryTest, ADestroyedContextReturnsItsMemory) {
  size_t before = free_bytes();
  CUcontext second = nullptr;
  ASSERT_CU(cuCtxCreate_v2(&second, 0, 0));
  CUdeviceptr address = 0;
  ASSERT_CU(cuMemAlloc_v2(&address, 1 << 20));
  EXPECT_LT(free_bytes(), before - (1 << 20));  // a context has storage of its own, too
  ASSERT_CU(cuCtxDestroy_v2(second));
  EXPECT_EQ(free_bytes(), before);
}

TEST_F(MemoryTest, APoolRemembersTheMostThatWasUsed) {
  CUmemoryPool pool = nullptr;
  ASSERT_CU(cuDeviceGetDefaultMemPool(&pool, 0));
  auto number = [&](CUmemPool_attribute attribute) {
    cuuint64_t value = 0;
    EXPECT_CU(cuMemPoolGetAttribute(pool, attribute, &value));
    return value;
  };
  cuuint64_t zero = 0;
  ASSERT_CU(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero));
  const cuuint64_t before = number(CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
  EXPECT_EQ(number(CU_MEMPOOL_ATTR_USED_MEM_HIGH), before);
  constexpr cuuint64_t kSize = 64 << 10;
  CUdeviceptr first = 0, second = 0;
  ASSERT_CU(cuMemAlloc_v2(&first, kSize));
  ASSERT_CU(cuMemAlloc_v2(&second, kSize));
  ASSERT_CU(cuMemFree_v2(first));
  EXPECT_EQ(number(CU_MEMPOOL_ATTR_USED_MEM_CURRENT), before + kSize);
  EXPECT_EQ(number(CU_MEMPOOL_ATTR_USED_MEM_HIGH), before + 2 * kSize);
  EXPECT_GE(number(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), before + 2 * kSize);
  ASSERT_CU(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero));
  EXPECT_EQ(number(CU_MEMPOOL_ATTR_USED_MEM_HIGH), before + kSize);
  EXPECT_GE(number(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), before + 2 * kSize);
  ASSERT_CU(cuMemFree_v2(second));
}

// The pools of a device by where they are.
TEST_F(MemoryTest, PoolsByLocation) {
  constexpr CUmemAllocationType kPinned = CU_MEM_ALLOCATION_TYPE_PINNED;
  CUmemLocation device{CU_MEM_LOCATION_TYPE_DEVICE, 0}, none{CU_MEM_LOCATION_TYPE_DEVICE, 9};
  CUmemLocation host{CU_MEM_LOCATION_TYPE_HOST, 0};
  CUmemoryPool first = nullptr, pool = nullptr, got = nullptr;
  ASSERT_CU(cuDeviceGetDefaultMemPool(&first, 0));
  EXPECT_CU(cuMemGetDefaultMemPool(&got, &device, kPinned));
  EXPECT_EQ(got, first);
  CUmemPoolProps properties{};
  properties.allocType = kPinned;
  properties.location = device;
  ASSERT_CU(cuMemPoolCreate(&pool, &properties));
  EXPECT_CU(cuMemSetMemPool(&device, kPinned, pool));
  EXPECT_CU(cuMemGetMemPool(&got, &device, kPinned));
  EXPECT_EQ(got, pool);
  EXPECT_CU(cuMemGetDefaultMemPool(&got, &device, kPinned));
  EXPECT_EQ(got, first);
  EXPECT_CU(cuMemPoolDestroy(pool));
  EXPECT_CU(cuMemGetMemPool(&got, &device, kPinned));
  EXPECT_EQ(got, first);
  EXPECT_EQ(cuMemGetMemPool(&got, &none, kPinned), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(cuMemGetMemPool(&got, &host, kPinned), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(cuMemGetMemPool(&got, nullptr, kPinned), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemSetMemPool(&device, CU_MEM_ALLOCATION_TYPE_MANAGED, first),
            CUDA_ERROR_NOT_SUPPORTED);
}

}  // namespace
}  // namespace openmps::softgpu::testing
